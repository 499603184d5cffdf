"""Blocks in a file: what is read is what was written, and room is given back."""

from __future__ import annotations

import random
from array import array
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from anabranch.server.block_file import UNIT, Extents
from anabranch.stream.block import Block
from anabranch.stream.compression import BlockCache
from anabranch.stream.offloading import Offloaded
from tests.support.shelf import Shelf


def block_of(count: int, seed: int = 1) -> Block:
    chance = random.Random(seed)
    parts = [b"*2\r\n$5\r\n%b\r\n" % chance.randbytes(20) for _ in range(count)]
    ends = array("Q")
    for part in parts:
        ends.append((ends[-1] if ends else 0) + len(part))
    ids = [(1_700_000_000_000 + 3 * index) << 64 for index in range(count)]
    block = Block(ids[0], 0)
    block.fill(ids, b"".join(parts), list(ends), 1)
    return block


def cache_with(shelf: Shelf) -> BlockCache:
    cache = BlockCache(bytes_max=0)
    cache.file = shelf
    return cache


def contents(block: Block) -> tuple[list[int], list[bytes]]:
    return list(block.ids), block.fragments(0, block.count)


def test_an_offloaded_block_reads_as_before_and_takes_no_memory_for_its_contents() -> None:
    shelf = Shelf()
    cache = cache_with(shelf)
    block, expected = block_of(100), contents(block_of(100))
    before = block.content_bytes
    saved = block.offload(cache)
    assert isinstance(block.packed, Offloaded)
    assert saved == before - block.content_bytes > before * 0.9, "random bytes, too"
    assert (block.count, block.live) == (100, 100)
    assert shelf.held > 0
    assert block.offload(cache) == 0
    assert contents(block) == expected
    other = block_of(5, seed=2)
    other.offload(cache)
    assert contents(other) == contents(block_of(5, seed=2))  # shuts the first one
    assert contents(block) == expected
    block.check()


def test_its_room_is_free_when_the_last_copy_has_gone() -> None:
    shelf = Shelf()
    cache = cache_with(shelf)
    block = block_of(50)
    block.offload(cache)
    copy = block.copy()
    del block
    assert shelf.held
    assert contents(copy) == contents(block_of(50))
    cache.discard(copy)
    del copy
    assert not shelf.held


def test_a_block_that_is_rewritten_goes_back_into_the_file() -> None:
    shelf = Shelf()
    cache = cache_with(shelf)
    block, (ids, parts) = block_of(200), contents(block_of(200))
    block.offload(cache)
    before = shelf.held
    for entry_id in ids[:120]:
        block.kill_all([block.find(entry_id)])
    assert isinstance(block.packed, Offloaded)
    assert 0 < shelf.held < before
    live = [index for index in range(block.count) if index not in block.dead]
    assert [block.ids[index] for index in live] == ids[120:]
    assert [block.fragment(index) for index in live] == parts[120:]


def test_without_room_a_block_stays_in_memory() -> None:
    shelf = Shelf(room=10)
    cache = cache_with(shelf)
    block = block_of(100)
    assert block.offload(cache) is None
    assert isinstance(block.packed, bytes)
    assert contents(block) == contents(block_of(100))


@given(st.lists(st.integers(1, 5000), max_size=60), st.randoms(use_true_random=False))
def test_parts_that_are_taken_never_overlap(sizes: list[int], chance: random.Random) -> None:
    extents = Extents()
    taken: dict[int, int] = {}
    for size in sizes:
        offset = extents.allocate(size)
        assert all(
            offset + size <= other or other + length <= offset for other, length in taken.items()
        )
        assert offset + size <= extents.end
        taken[offset] = size
        if chance.random() < 0.5:
            gone = chance.choice(list(taken))
            extents.free(gone, taken.pop(gone))
        last = max((offset + size for offset, size in taken.items()), default=0)
        assert extents.end == -(-last // UNIT) * UNIT, "the free end is cut off"
    for offset, size in taken.items():
        extents.free(offset, size)
    assert extents.end == extents.taken == 0


def test_room_that_was_given_back_is_taken_again() -> None:
    extents = Extents()
    offsets = [extents.allocate(3 * UNIT) for _ in range(10)]
    end = extents.end
    for offset in offsets[:5]:
        extents.free(offset, 3 * UNIT)
    for _ in range(5):
        extents.allocate(UNIT)
        extents.allocate(2 * UNIT)
    assert extents.end == end, "larger parts are cut"


def test_free_neighbours_are_joined() -> None:
    extents = Extents()
    offsets = [extents.allocate(size * UNIT) for size in (1, 1, 2, 3, 1)]
    for index, size in ((1, 1), (3, 3), (2, 2)):
        extents.free(offsets[index], size * UNIT)
    end = extents.end
    assert extents.allocate(6 * UNIT) == offsets[1]
    assert extents.end == end


def test_sizes_that_grow_slowly_need_little_more_than_what_is_in_use() -> None:
    extents = Extents()
    used: deque[tuple[int, int]] = deque()
    for number in range(20_000):
        size = 500 + number
        used.append((extents.allocate(size), size))
        if len(used) > 200:
            extents.free(*used.popleft())
    assert extents.end < 1.2 * extents.taken
