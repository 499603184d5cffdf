"""Compressed blocks are the blocks that they were made of."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import zstd
from anabranch.stream.block import Block, full_block
from anabranch.stream.compression import BlockCache, compressed, expanded, opened
from anabranch.stream.entry_id import make
from anabranch.stream.packed_ids import PackedIds
from tests.unit.spark.exports import fragment

COMPRESSOR = zstd.FrameCompressor(1)
MS = 1_700_000_000_000


@given(
    steps=st.lists(
        st.one_of(
            st.just(1), st.integers(1, 300), st.integers(1, 1 << 30).map(lambda ms: ms << 64)
        ),
        min_size=1,
        max_size=120,
    ),
    size=st.sampled_from([1, 40, 255, 256, 65_534, 70_000]),
    extra=st.integers(0, 3),
)
def test_what_is_expanded_is_what_was_compressed(steps: list[int], size: int, extra: int) -> None:
    ids = PackedIds.pack(list(accumulate(steps, initial=make(MS, 0))))
    assert ids is not None
    sizes = [size + at % (extra + 1) for at in range(len(ids))]
    data = b"".join(bytes([at % 7]) * length for at, length in enumerate(sizes))
    ends = array("H" if len(data) < 1 << 16 else "Q", list(accumulate(sizes)))
    for lightly in (False, True):
        packed = compressed(ids, ends, data, COMPRESSOR, lightly=lightly)
        assert packed is not None
        found, found_ends, found_data = expanded(packed)
        assert (found.base_ms, found.words) == (ids.base_ms, ids.words)
        assert (found_ends, found_ends.typecode) == (ends, ends.typecode)
        assert found_data == data


@pytest.mark.parametrize("size", [65_535, 65_536, 70_000, 131_071, 131_072])
def test_offsets_are_as_wide_as_the_last_one_needs(size: int) -> None:
    ids = PackedIds.pack([make(MS, 0), make(MS, 1)])
    assert ids is not None
    ends = array("H" if size < 1 << 16 else "Q", [10, size])
    packed = compressed(ids, ends, bytes(size), COMPRESSOR, lightly=True)
    assert packed is not None
    _, found_ends, found_data = expanded(packed)
    assert (found_ends, found_ends.typecode) == (ends, ends.typecode)
    assert found_data == bytes(size)


UNEVEN = (b"f", b"g")


def block_of(count: int, first_ms: int = MS, names: tuple[bytes, ...] = (b"f",)) -> Block:
    """Entries that compress well; of those whose fields differ in names no columns are made."""
    ids = [make(first_ms, at) for at in range(count)]
    values = [b"%03d" % (at * 7919 % 1000) for at in range(count)]
    fragments = [
        fragment(first_ms, at, [(names[at % len(names)], value)]) for at, value in enumerate(values)
    ]
    ends = list(accumulate(map(len, fragments)))
    return full_block(ids, b"".join(fragments), ends, 10 * count)


def test_the_cache_holds_what_it_may_and_shuts_what_was_opened_first() -> None:
    cache = BlockCache(bytes_max=0)  # those have the same size, opened
    blocks = [block_of(100, MS + at, UNEVEN) for at in range(5)]
    expected = [block.slice(0, 100) for block in blocks]
    assert all(block.compress(cache) for block in blocks)
    assert cache.compressions == 5
    assert cache.held == cache.opens == 0
    assert [block.count for block in blocks] == [100] * 5, "known without opening"
    assert cache.opens == 0
    assert blocks[0].slice(0, 100) == expected[0]
    size = cache.held
    assert size > len(expected[0])
    assert [block.slice(0, 100) for block in blocks] == expected
    assert cache.opens == 5, "the first one was open"
    assert cache.held == size, "the last one stays"
    assert blocks[4] in cache
    assert blocks[3] not in cache
    cache.configure(3 * size, 1)
    assert [block.find(make(MS + at, 7)) for at, block in enumerate(blocks)] == [7] * 5
    assert cache.held == 3 * size
    assert [block in cache for block in blocks] == [False, False, True, True, True]
    cache.configure(0, 3)
    assert cache.held == size


def test_a_block_packed_lightly_is_the_same_block_and_can_be_compressed() -> None:
    cache = BlockCache(bytes_max=1 << 20)
    block = block_of(100)
    expected, before = block.slice(0, 100), block.content_bytes
    assert block.compress(cache, lightly=True)
    assert not block.is_dense
    light = block.content_bytes
    assert light * 3.5 < before
    assert cache.saved == before - light
    assert block.slice(3, 5) == expected[len(block.fragment(0)) * 3 :][: len(block.slice(3, 5))]
    assert cache.held > len(expected), "the entries are there as they are"
    assert block.slice(0, 100) == expected
    twin = block.copy()
    assert block.compress(cache)
    assert block.is_dense
    assert block not in cache
    assert block.content_bytes < light
    assert cache.saved == before - block.content_bytes
    assert block.compress(cache, lightly=True), "it is packed better than so"
    assert block.is_dense
    assert block.slice(0, 100) == expected == twin.slice(0, 100)
    twin.kill_all(list(range(70)))
    assert twin.packed is not None
    assert not twin.is_dense
    assert twin.content_bytes < light
    twin.check()
    block.kill_all(list(range(70)))
    assert block.is_dense
    block.check()


def test_a_closed_cache_refers_to_no_block() -> None:
    """Otherwise blocks and cache would refer to each other after a server has ended."""
    cache = BlockCache(bytes_max=1 << 20)
    blocks = [block_of(100, MS + at) for at in range(3)]
    expected = [block.slice(0, 100) for block in blocks]
    for block in blocks:
        assert block.compress(cache)
        block.slice(0, 100)
    assert all(block in cache for block in blocks)
    cache.close()
    assert not any(block in cache for block in blocks)
    assert cache.held == 0
    assert [block.slice(0, 100) for block in blocks] == expected, "and can be used again"


def test_a_block_that_changes_is_not_compressed_any_more_or_anew() -> None:
    cache = BlockCache(bytes_max=1 << 20)
    block = block_of(100)
    assert block.compress(cache)
    before = len(block.packed or b"")
    twin = block.copy()
    block.kill_all(list(range(70)))  # more than half of it: the rest is written anew
    assert block.packed is not None
    assert len(block.packed) < before
    assert (block.count, block.slots) == (30, 100)
    block.reopen()
    assert block.packed is None
    assert block not in cache
    assert len(twin.slice(0, 100)) > len(block.slice(0, 30))
    twin.check()
    block.check()
    assert cache.held
    twin.reopen()
    assert not cache.held


def test_who_reads_the_contents_once_leaves_the_cache_alone() -> None:
    cache = BlockCache(bytes_max=1 << 20)
    block = block_of(50)
    expected = block.contents()
    assert block.compress(cache)
    ids, ends, data = block.contents()
    assert (list(ids), ends, data) == (list(expected[0]), *expected[1:])
    assert cache.opens == 0


def test_what_hardly_gets_smaller_stays_as_it_is() -> None:
    ids = [make(MS, 0), make(MS, 9)]
    block = full_block(ids, b"ab", [1, 2], 2)
    assert not block.compress(BlockCache())
    assert block.packed is None
    assert not Block(make(MS, 0), 0).compress(BlockCache()), "it is open"
    with pytest.raises(AttributeError):
        block.nothing  # type: ignore[attr-defined]  # noqa: B018


def _sensor(at: int, _: Random) -> list[tuple[bytes, bytes]]:
    return [(b"sensor", b"s%03d" % at), (b"temp", b"21.%02d" % at), (b"hum", b"47.%d" % at)]


def _document(at: int, chance: Random) -> list[tuple[bytes, bytes]]:
    return [(b"data", b'{"id":%d,"sum":"%b"}' % (at, chance.randbytes(50).hex().encode()))]


@pytest.mark.parametrize(("make_fields", "is_packed"), [(_sensor, True), (_document, False)])
def test_what_light_packing_does_not_make_much_smaller_stays_as_it_is(
    make_fields: Callable[[int, Random], list[tuple[bytes, bytes]]], is_packed: bool
) -> None:
    """Each read opens it again, which is worth it for small fields only."""
    chance = Random(1)
    fragments = [fragment(MS, at, make_fields(at, chance)) for at in range(40)]
    ids = [make(MS, at) for at in range(40)]
    ends = list(accumulate(map(len, fragments)))
    block = full_block(ids, b"".join(fragments), ends, 400)
    assert block.compress(BlockCache(), lightly=True) == is_packed
    assert block.compress(BlockCache())


@pytest.mark.parametrize(
    ("fields", "size", "are_columns"), [(1, 20, True), (8, 60, True), (1, 200, False)]
)
def test_only_short_values_are_written_as_columns(
    fields: int, size: int, are_columns: bool
) -> None:
    """Of long ones columns leave out little, and each read would have to write it again."""
    fragments = [
        fragment(MS, at, [(b"f%d" % field, b"%0*d" % (size, at)) for field in range(fields)])
        for at in range(20)
    ]
    ends = array("H", accumulate(map(len, fragments)))
    packed = BlockCache().compress(PackedIds.run(MS, 0, 20), ends, b"".join(fragments))
    assert packed is not None
    assert (opened(packed)[1] is not None) is are_columns


def test_what_counts_as_smaller_is_the_whole_block_with_its_ids_and_offsets() -> None:
    block = block_of(100)
    ids, ends, data = PackedIds.pack(block.ids), array("H"), bytearray()
    assert ids is not None
    for piece in block.fragments(0, 100):
        data += piece
        ends.append(len(data))
    packed = compressed(ids, ends, bytes(data), COMPRESSOR, lightly=True)
    assert packed is not None
    whole = len(data) + 100 * (8 + 2)
    for gain, is_smaller in ((whole - 1, True), (whole, False), (whole + 1, False)):
        gain_min = gain / len(packed)
        found = compressed(ids, ends, bytes(data), COMPRESSOR, gain_min=gain_min, lightly=True)
        assert (found is not None) == is_smaller
