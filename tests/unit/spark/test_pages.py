"""Pages of XRANGE that arrive in pieces, with values made to look like entries."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.spark.decoding.entries import Entries
from anabranch.spark.decoding.pages import received
from anabranch.spark.decoding.wire_entries import WireEntries
from tests.unit.spark.exports import fragment

INFO = b"*4\r\n$6\r\nlength\r\n:5\r\n$11\r\nfirst-entry\r\n" + fragment(7, 0, [(b"a", b"*2\r\n$")])

Row = tuple[int, int, list[tuple[bytes, bytes]]]

ENTRY = fragment(5, 5, [(b"x", b"y")])
HOSTILE = st.one_of(
    st.sampled_from(
        [
            b"", b"\r\n", b"\r\n*2\r\n$", b"*2\r\n$3\r\n1-1\r\n", b"\r\n" + ENTRY, ENTRY + b"\r\n",
            b"\r\n" + ENTRY[:-4], b"\r\n*2\r\n$x\r\n", b"\r\n*2\r\n$" + b"9" * 5000 + b"\r\n",
        ]
    ),
    st.binary(max_size=12),
)  # fmt: skip
PLAIN = st.binary(max_size=9).filter(lambda value: b"*" not in value)
NAMES = st.sampled_from([b"a", b"b", b"sensor", b""])


def rows(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Row]]:
    ids = st.integers(0, 2**64 - 1)
    fields = st.lists(st.tuples(NAMES, values), min_size=1, max_size=4)
    return st.lists(st.tuples(ids, ids, fields), min_size=1, max_size=30)


def reply(given: list[Row]) -> bytes:
    return INFO + b"*%d\r\n" % len(given) + b"".join(fragment(*row) for row in given)


def arriving(data: bytes, rng: random.Random) -> list[Any]:
    """What is received in pieces; it must not wait for more than there is, nor leave any."""
    at = 0

    def more() -> bytes:
        nonlocal at
        assert at < len(data), "all has arrived"
        size = rng.choice((1, 3, 20, 400, 1 << 20))
        piece, at = data[at : at + size], at + size
        return piece

    found = received(more)
    assert at >= len(data)
    return found


def listed(entries: Entries) -> list[Row]:
    offsets, names, values = entries.fields()
    pairs = list(zip(names.to_pylist(), values.to_pylist(), strict=True))
    fields = [pairs[low:high] for low, high in pairwise(offsets)]
    return list(zip(entries.ms.view("u8").tolist(), entries.seq.tolist(), fields, strict=True))


@settings(max_examples=200, deadline=None)
@given(rows(HOSTILE), st.randoms(use_true_random=False))
def test_values_that_look_like_entries_are_values(given: list[Row], rng: random.Random) -> None:
    info, entries = arriving(reply(given), rng)
    assert info[:2] == [b"length", 5]
    assert entries.positions is None
    assert listed(entries) == given
    first = [dict(reversed(fields)).get(b"a") for _, _, fields in given]
    assert entries.values([b"a", b"missing"])[0].to_pylist() == first


@settings(max_examples=60, deadline=None)
@given(rows(PLAIN), st.randoms(use_true_random=False))
def test_usual_entries_are_decoded_by_vectors(given: list[Row], rng: random.Random) -> None:
    _, entries = arriving(reply(given), rng)
    assert isinstance(entries, WireEntries)
    assert listed(entries) == given


def test_entries_of_many_shapes_are_decoded_by_vectors() -> None:
    given = [(each, 0, [(b"f%d" % each, b"v")]) for each in range(200)]
    _, entries = arriving(reply(given), random.Random(1))
    assert isinstance(entries, WireEntries)
    assert listed(entries) == given


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"*0\r\n", None),
        (b"*-1\r\n", None),
        (b"-NOPERM this user\r\n", redis.ResponseError),
    ],
)
def test_no_entries_and_errors_are_replies_as_well(data: bytes, wanted: Any) -> None:
    info, found = arriving(INFO + data, random.Random(2))
    assert info[0] == b"length"
    assert found is None if wanted is None else isinstance(found, wanted)
    info, found = arriving(b"-ERR no such key\r\n" + data, random.Random(3))
    assert isinstance(info, redis.ResponseError)
