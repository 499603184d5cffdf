"""Looks into a region log by the positions of its entries.

What positions are says :mod:`anabranch.stream.region_log`. How far blocks were compressed and
offloaded is kept as positions as well.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice

from anabranch.stream.block import Block
from anabranch.stream.region_log import RegionLog, Span


def spans(log: RegionLog, low: int, high: int) -> Iterator[Span]:
    """Live entries with positions in ``[low, high)``, ascending."""
    blocks = log.blocks
    at = max(bisect_right(blocks, low, key=_first_position) - 1, 0)
    while at < len(blocks) and (block := blocks[at]).first_position < high:
        at += 1
        if not block.dead and block.positions is None:  # nearly all: no more calls than needed
            begin = block.first_position
            first = low - begin if low > begin else 0
            count = block.count
            stop = high - begin if high < begin + count else count
            if first < stop:
                yield block, first, stop
            continue
        for first, stop in block.runs(_index_of(block, low), _index_of(block, high)):
            yield block, first, stop


def id_below(log: RegionLog, position: int) -> int:
    """The ID of the newest live entry below a position; 0 if there is none."""
    blocks = log.blocks
    at = bisect_left(blocks, position, key=_first_position) - 1
    if at < 0:
        return 0
    block = blocks[at]
    runs = list(block.runs(0, _index_of(block, position)))
    if runs:
        return block.ids[runs[-1][1] - 1]
    # No live entry of this block is below; the block before has one, like every block.
    if not at:
        return 0
    block = blocks[at - 1]
    return block.ids[block.last_live()]


def live_below(log: RegionLog, position: int) -> int:
    """Live entries with lower positions; O(log n), amortised."""
    at = bisect_left(log.blocks, position, key=_first_position) - 1
    return 0 if at < 0 else log.live_before(at, _index_of(log.blocks[at], position))


def position_after_live(log: RegionLog, position: int, count: int) -> int:
    """The position after ``count`` live entries from a position on; at most the log's end.

    The position itself if ``count`` is 0. O(log n + the blocks of these entries).
    """
    if not count:
        return log.next_position
    blocks = log.blocks
    at = max(bisect_right(blocks, position, key=_first_position) - 1, 0)
    for block in islice(blocks, at, None):
        for low, high in block.runs(_index_of(block, position), block.count):
            if count <= high - low:
                last = low + count - 1
                is_newest = block is log.tail and last == block.last_live()
                return log.next_position if is_newest else block.position(last) + 1
            count -= high - low
    return log.next_position


def idle_blocks(log: RegionLog) -> list[Block]:
    """Blocks that are full since the last call at least, and were not returned before."""
    if log.tail is None:
        return []
    newest = log.tail.first_position
    if log.compressed == newest:
        return []
    blocks = log.blocks
    high_position = min(log.full, newest)
    low = bisect_left(blocks, log.compressed, key=_first_position)
    high = bisect_left(blocks, high_position, key=_first_position)
    log.compressed, log.full = high_position, newest
    return blocks[low:high]


def loose_blocks(log: RegionLog) -> list[Block]:
    """The older half of the idle blocks that may become smaller, oldest first."""
    blocks = log.blocks
    low = bisect_left(blocks, log.dense, key=_first_position)
    high = bisect_left(blocks, log.compressed, key=_first_position)
    loose = [each for each in blocks[low:high] if not each.is_dense]
    log.dense = loose[0].first_position if loose else log.compressed
    return loose[: (len(loose) + 1) // 2]


def in_memory(log: RegionLog) -> int:
    """The index of the first block that is not in a file."""
    return bisect_left(log.blocks, log.offloaded, key=_first_position)


def older_half(log: RegionLog) -> int:
    """The position where the older half of the full blocks in memory ends; 0: there are none.

    The newest block is not one of them.
    """
    first = in_memory(log)
    full = len(log.blocks) - 1 - first
    return log.blocks[first + (full + 1) // 2].first_position if full > 0 else 0


def _first_position(block: Block) -> int:
    return block.first_position


def _index_of(block: Block, position: int) -> int:
    """The index of the first entry, dead or live, at or after a position."""
    offset = position - block.first_position
    if block.positions is not None:
        return bisect_left(block.positions, offset)
    return min(max(offset, 0), block.count)
