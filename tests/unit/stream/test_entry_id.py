"""Entry IDs as text and as numbers."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.stream.entry_id import MAX_ID, MAX_SEQ, InvalidId, make, parse, parse_all, text

halves = st.one_of(st.integers(0, MAX_SEQ), st.sampled_from([0, 1, MAX_SEQ]))


@given(ms=halves, seq=halves)
def test_text_and_back(ms: int, seq: int) -> None:
    entry_id = make(ms, seq)
    assert text(entry_id) == f"{ms}-{seq}".encode()
    assert parse(text(entry_id)) == entry_id
    assert parse(str(ms).encode(), seq) == entry_id


@given(one=st.tuples(halves, halves), other=st.tuples(halves, halves))
def test_numbers_compare_like_pairs(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (make(*one) < make(*other)) == (one < other)


_HALF = rb"[ \t\n\v\f\r]*\+?[0-9]+"
_ID = re.compile(rb"(%b)(?:-(%b))?" % (_HALF, _HALF), re.DOTALL)


def _naive(raw: bytes) -> int | None:
    """The rules of the specification in one expression (§1.3)."""
    if len(raw) > 127:
        return None
    match = _ID.fullmatch(raw.split(b"\0")[0])
    if match is None:
        return None
    ms, seq = (int(half or b"0") for half in match.groups())
    return make(ms, seq) if max(ms, seq) <= MAX_SEQ else None


ALPHABET = st.sampled_from(b"0123456789999-+-- \t\0x*.")


@given(raw=st.one_of(st.lists(ALPHABET, max_size=30).map(bytes), st.binary(max_size=140)))
@example(raw=b"")
@example(raw=b"-")
@example(raw=b"1-")
@example(raw=b"+-1")
@example(raw=b"1-+")
@example(raw=b" 1")
@example(raw=b"1 -1")
@example(raw=b"++1")
@example(raw=b"18446744073709551616-0")
@example(raw=b"0-18446744073709551616")
@example(raw=b"9999999999999999999-9999999999999999999")
@example(raw=b"18446744073709551615-18446744073709551615")
@example(raw=b"0" * 127)
@example(raw=b"0" * 128)
@example(raw=b"\xb2-1")
@example(raw="٣-1".encode())
def test_parse_follows_the_rules(raw: bytes) -> None:
    expected = _naive(raw)
    if expected is None:
        with pytest.raises(InvalidId):
            parse(raw)
    else:
        assert parse(raw) == expected
        assert expected <= MAX_ID


_EVERYDAY = st.builds(lambda ms, seq: b"%d-%d" % (ms, seq), halves, halves)
_NEARLY = st.one_of(
    _EVERYDAY,
    st.lists(st.sampled_from(b"0123456789-+ ,[]"), max_size=12).map(bytes),
    st.sampled_from([b"1-2],[3-4", b"1,2", b"1-2-3", b"7", b"007-1", b"1-", b"-1-1", b"1--1", b""]),
)


@given(raw_ids=st.one_of(st.lists(_EVERYDAY, min_size=1), st.lists(_NEARLY, min_size=1)))
@example(raw_ids=[b"1", b"1-2-3"])
@example(raw_ids=[b"1-2],[3-4", b""])
@example(raw_ids=[b"1-18446744073709551616"])
@example(raw_ids=[b"9223372036854775808-1"])
def test_ids_read_together_are_those_read_one_by_one(raw_ids: list[bytes]) -> None:
    expected = [_naive(raw) for raw in raw_ids]
    if None in expected:
        with pytest.raises(InvalidId):
            parse_all(raw_ids)
    else:
        assert parse_all(raw_ids) == expected
