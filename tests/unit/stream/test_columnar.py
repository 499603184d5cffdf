"""Columns are the fragments that they were made of, byte for byte, or are refused."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from anabranch.stream.columnar import from_columns, to_columns
from anabranch.stream.compression import BlockCache, compressed, expanded
from anabranch.stream.entry_id import make
from anabranch.stream.packed_ids import PackedIds
from tests.support.compressing import whatever_it_gains
from tests.unit.spark.exports import columns as columns_by_hand
from tests.unit.spark.exports import fragment
from tests.unit.stream.test_compression import block_of

MS = 1_700_000_000_000
COMPRESSOR = zstandard.ZstdCompressor(level=1)

words = st.one_of(
    st.sampled_from([b"", b"a", b"\r\n", b"$1\r\na\r\n", b"*2\r\n", b"0", b"12"]),
    st.binary(max_size=40),
    st.binary(min_size=250, max_size=300),
)


@st.composite
def alike(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[list[tuple[bytes, bytes]]]]:
    """IDs, and entries with the same names."""
    first = draw(st.sampled_from([0, 1, 998, 999, 1000, 123_456, MS, (1 << 62) - 2000]))
    steps = draw(
        st.lists(
            st.one_of(
                st.just((0, 1)),
                st.tuples(st.just(0), st.integers(1, 5000)),
                st.tuples(st.integers(1, 3000), st.integers(0, 100)),
            ),
            max_size=60,
        )
    )
    ids = [(first, draw(st.sampled_from([0, 1, 9, 99, 4095, 4096])))]
    for ms, seq in steps:
        ids.append((ids[-1][0] + ms, seq if ms else ids[-1][1] + seq))
    names = draw(st.lists(words, min_size=1, max_size=4))
    rows = [[(name, draw(words)) for name in names] for _ in ids]
    return ids, rows


def packed(ids: Sequence[tuple[int, int]]) -> PackedIds:
    found = PackedIds.pack([make(*each) for each in ids])
    assert found is not None
    return found


def joined(fragments: Sequence[bytes]) -> tuple[array[int], bytes]:
    return array("H", list(accumulate(map(len, fragments)))), b"".join(fragments)


@given(alike())
def test_columns_become_the_fragments_again(
    given_: tuple[list[tuple[int, int]], list[list[tuple[bytes, bytes]]]],
) -> None:
    ids, rows = given_
    ends, data = joined([fragment(*each, fields) for each, fields in zip(ids, rows, strict=True)])
    columns = to_columns(packed(ids), ends, data)
    assert columns == columns_by_hand(rows)
    assert from_columns(packed(ids), columns) == (ends, data)
    with whatever_it_gains():
        whole = compressed(packed(ids), ends, data, COMPRESSOR)
    assert whole is not None
    found, *contents = expanded(whole)
    assert list(found) == [make(*each) for each in ids]
    assert contents == [ends, data]


@given(st.data())
def test_what_would_not_be_the_same_bytes_again_is_refused(data: st.DataObject) -> None:
    ids, rows = data.draw(alike())
    ends, right = joined([fragment(*each, fields) for each, fields in zip(ids, rows, strict=True)])
    at = data.draw(st.integers(0, len(right) - 1))
    wrong = bytearray(right)
    wrong[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):  # the size of a value may still fit, and other bytes be cut off
        del wrong[data.draw(st.integers(0, len(right) - 1)) :]
    columns = to_columns(packed(ids), ends, bytes(wrong))
    assert columns is None or from_columns(packed(ids), columns) == (ends, bytes(wrong))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([(b"a", b"1")], [(b"b", b"1")]),
        ([(b"a", b"1")], [(b"a", b"1"), (b"a", b"1")]),
        ([(b"a", b"1"), (b"b", b"2")], [(b"b", b"2"), (b"a", b"1")]),
        ([(b"a", b"1" * 40_000)], [(b"a", b"1" * 40_000)]),
    ],
)
def test_other_names_and_large_values_are_refused(
    first: list[tuple[bytes, bytes]], second: list[tuple[bytes, bytes]]
) -> None:
    fragments = [fragment(MS, 1, first), fragment(MS, 2, second)]
    ends = array("Q", accumulate(map(len, fragments)))
    assert to_columns(packed([(MS, 1), (MS, 2)]), ends, b"".join(fragments)) is None


@pytest.mark.parametrize("field", [b"01", b"+1", b" 1", b"1 ", b"", b"-1", b"99999", b"2"])
def test_a_size_that_is_written_in_another_way_is_refused(field: bytes) -> None:
    whole = fragment(MS, 1, [(b"a", b"1")]).replace(b"$1\r\n1", b"$%b\r\n1" % field)
    assert to_columns(packed([(MS, 1)]), array("H", [len(whole)]), whole) is None


def test_the_id_of_a_fragment_must_be_that_of_the_block() -> None:
    ends, data = joined([fragment(MS, 1, [(b"a", b"1")])])
    assert to_columns(packed([(MS, 1)]), ends, data)
    for other in [(MS, 2), (MS + 1, 1), (MS // 10, 1), (7, 1)]:
        assert to_columns(packed([other]), ends, data) is None


def test_a_block_that_was_written_as_columns_is_read_as_before() -> None:
    blocks = {}
    for as_columns in (False, True):
        cache = BlockCache(1 << 20, as_columns=as_columns)
        block = block_of(100)
        expected = block.slice(0, 100), list(block.ids)
        assert block.compress(cache)
        assert (block.slice(0, 100), list(block.ids)) == expected
        block.check()
        block.kill_all(list(range(70)))
        assert block.packed is not None
        assert block.slice(0, 30) == expected[0][-len(block.slice(0, 30)) :]
        blocks[as_columns] = len(block.packed)
    assert blocks[True] < blocks[False]
