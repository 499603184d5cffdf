"""Columns are the fragments that they were made of, byte for byte, or are refused."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import zstd
from anabranch.stream.columnar import Columns, to_columns
from anabranch.stream.compression import BlockCache, compressed, expanded
from anabranch.stream.entry_id import make
from anabranch.stream.packed_ids import PackedIds
from tests.support.compressing import whatever_it_gains
from tests.unit.spark.exports import columns as columns_by_hand
from tests.unit.spark.exports import fragment
from tests.unit.stream.test_compression import block_of

MS = 1_700_000_000_000
COMPRESSOR = zstd.FrameCompressor(1)

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
    assert Columns(packed(ids), columns).whole() == (ends, data)
    with whatever_it_gains():
        whole = compressed(packed(ids), ends, data, COMPRESSOR)
    assert whole is not None
    found, *contents = expanded(whole)
    assert list(found) == [make(*each) for each in ids]
    assert contents == [ends, data]


def test_columns_need_memory_for_each_field_and_for_data_that_nobody_else_holds() -> None:
    sizes = []
    for names in ([b"a"], [b"a", b"b"], [b"a", b"b", b"c"]):
        ids = [(MS, number) for number in range(20)]
        rows = [[(name, b"value") for name in names] for _ in ids]
        ends, data = joined([fragment(*each, row) for each, row in zip(ids, rows, strict=True)])
        written = to_columns(packed(ids), ends, data)
        assert written is not None
        columns = Columns(packed(ids), written)
        sizes.append(columns.nbytes_beside(written))
        assert columns.nbytes_beside(None) == sizes[-1] + len(written)
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] > 100


@given(alike(), st.data())
def test_any_entries_can_be_made_of_columns(
    given_: tuple[list[tuple[int, int]], list[list[tuple[bytes, bytes]]]], data: st.DataObject
) -> None:
    ids, rows = given_
    fragments = [fragment(*each, fields) for each, fields in zip(ids, rows, strict=True)]
    written = to_columns(packed(ids), *joined(fragments))
    assert written is not None
    columns = Columns(packed(ids), b"before" + written, len(b"before"))
    for _ in range(5):
        low = data.draw(st.integers(0, len(ids)))
        high = data.draw(st.integers(low, len(ids)))
        assert columns.fragments(low, high) == b"".join(fragments[low:high])
    assert columns.whole() == joined(fragments)


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
    assert columns is None or Columns(packed(ids), columns).whole() == (ends, bytes(wrong))


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
    cache = BlockCache(1 << 20)
    block = block_of(100)
    expected = block.slice(0, 100), list(block.ids)
    without_columns = len(COMPRESSOR.compress(expected[0]))
    assert block.compress(cache)
    assert (block.slice(0, 100), list(block.ids)) == expected
    block.check()
    block.kill_all(list(range(70)))
    assert block.packed is not None
    assert block.slice(0, 30) == expected[0][-len(block.slice(0, 30)) :]
    assert len(block.packed) < without_columns


def test_fragments_are_made_one_by_one_until_they_are_as_many_as_the_block_has() -> None:
    cache = BlockCache(1 << 20)
    block, twin = block_of(100), block_of(100)
    assert block.compress(cache)
    for at in range(99):
        assert block.fragment(at) == twin.fragment(at)
    few = cache.held
    assert block.fragment(99) == twin.fragment(99)
    assert cache.held > few + len(twin.data) / 2
    assert cache.opens == 1
    block.shut()
    cache.discard(block)
    assert cache.held == 0
    assert block.slice(3, 70) == twin.slice(3, 70)
    assert cache.held == few
    assert block.slice(30, 63) == twin.slice(30, 63)
    assert cache.held > few + len(twin.data) / 2


@pytest.mark.parametrize("seed", range(30))
def test_a_block_that_is_opened_in_any_way_is_read_as_if_it_were_not_compressed(seed: int) -> None:
    rng = random.Random(seed)
    cache = BlockCache(rng.choice([0, 6000, 1 << 20]))
    pairs = [(block_of(size), block_of(size)) for size in (100, 100, 40, 1)]
    for block, _ in pairs:
        assert block.compress(cache, if_smaller=False)
    for _ in range(200):
        block, twin = rng.choice(pairs)
        low = rng.randrange(twin.count)
        high = rng.randint(low + 1, min(twin.count, low + rng.choice([1, 3, 100])))
        match rng.randrange(9):
            case 0 | 1:
                assert block.slice(low, high) == twin.slice(low, high)
            case 2:
                assert block.fragment(low) == twin.fragment(low)
            case 3:
                assert block.fragments(low, high) == twin.fragments(low, high)
            case 4:
                assert block.sizes(low, high) == twin.sizes(low, high)
            case 5:
                assert list(block.ids) == list(twin.ids)
            case 6:
                held = cache.held
                assert block.contents()[1:] == (twin.ends, twin.data)
                assert cache.held == held
            case 7:
                assert (block.ends, block.data) == (twin.ends, twin.data)
            case _:
                cache.shut_oldest(cache.opens)
        opened = [each for each, _ in pairs if each in cache]
        assert cache.held <= cache.bytes_max or len(opened) == 1
        assert cache.held or not opened
    for block, twin in pairs:
        block.check()
        assert block.copy().data == twin.data
        gone = [index for index in range(twin.count) if rng.random() < 0.7][: twin.count - 1]
        block.kill_all(gone)
        twin.kill_all(gone)
        live = [block.fragment(each) for run in block.runs(0, block.count) for each in range(*run)]
        assert live == [twin.fragment(at) for run in twin.runs(0, twin.count) for at in range(*run)]
