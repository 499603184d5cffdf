"""Looks into a region log by the numbers of its entries, and removes entries by number.

What numbers are says :mod:`anabranch.stream.region_log`. They ascend as IDs do, so finding is
bisection: first the block, then the entry. A *slot* is an entry in a block, live or not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice

from anabranch.stream.block import Block, block_index
from anabranch.stream.region_log import RegionLog, Span


def _after(log: RegionLog, number: int) -> tuple[int, int]:
    """``(block index, index)`` of the first slot with a greater number; O(log n)."""
    blocks = log.blocks
    low, high = 0, len(blocks)
    while low < high:  # bisect_right would call a function through Python for each block
        middle = (low + high) // 2
        if blocks[middle].number(0) <= number:
            low = middle + 1
        else:
            high = middle
    if not low:
        return 0, 0
    at = low - 1
    block = blocks[at]
    index = block.index_above(number)
    return (at, index) if index < block.count else (at + 1, 0)


def find(log: RegionLog, number: int) -> tuple[Block, int] | None:
    """The live entry with this number, or None."""
    if number < oldest_number(log):  # nearly all that are gone were trimmed
        return None
    at, index = _after(log, number - 1)
    if at == len(log.blocks):
        return None
    block = log.blocks[at]
    if block.number(index) != number or index in block.dead:
        return None
    return block, index


def live_among(log: RegionLog, numbers: Sequence[int]) -> list[int]:
    """Those of these numbers, which ascend, that live entries have; O(their blocks)."""
    live: list[int] = []
    low = 0
    while low < len(numbers):
        at, first = _after(log, numbers[low] - 1)
        if at == len(log.blocks):
            break
        block = log.blocks[at]
        high = bisect_right(numbers, _last_number(block), low)
        alive: set[int] = set()
        for run in block.runs(first, min(block.index_above(numbers[high - 1]), block.count)):
            alive.update(block.numbers_of(*run))
        live += filter(alive.__contains__, numbers[low:high])
        low = high
    return live


def numbers_of(log: RegionLog, ids: Sequence[int]) -> list[int]:
    """The numbers of live entries with these IDs, which ascend; O(their blocks)."""
    numbers: list[int] = []
    low = 0
    while low < len(ids):
        found = log.find(ids[low])
        assert found is not None
        block, first = found
        stop = block.index_after(ids[-1])
        some = block.numbers_of(first, stop)
        high = low + stop - first
        if high <= len(ids) and ids[high - 1] == block.ids[stop - 1]:
            numbers += some  # all entries that follow
            low = high
            continue
        number_of = dict(zip(block.ids[first:stop], some, strict=True))
        while low < len(ids) and (number := number_of.get(ids[low])) is not None:
            numbers.append(number)
            low += 1
    return numbers


def number_upto(log: RegionLog, entry_id: int) -> int:
    """The number of the newest slot with an ID up to this one, 0 if there is none."""
    at = block_index(log.blocks, entry_id)
    if at < 0:
        return 0
    block = log.blocks[at]
    index = block.index_after(entry_id) - 1
    if index >= 0:
        return block.number(index)
    return _last_number(log.blocks[at - 1]) if at else 0


def newest_slot_upto(log: RegionLog, number: int) -> tuple[int, int]:
    """Number of the newest slot up to a number, and the position after it; 0, 0 if none."""
    at, index = _after(log, number)
    if not index:
        at -= 1
        if at < 0:
            return 0, 0
        index = log.blocks[at].count
    block = log.blocks[at]
    return block.number(index - 1), block.position(index - 1) + 1


def position_above(log: RegionLog, number: int) -> int:
    """The position of the oldest live entry with a greater number; the end without one."""
    for block, low, _ in spans(log, number, log.newest_number):
        return block.position(low)
    return log.next_position


def number_below(log: RegionLog, position: int) -> int:
    """The number of the newest slot with a lower position, 0 if there is none."""
    at = bisect_left(log.blocks, position, key=_first_slot_position) - 1
    if at < 0:
        return 0
    block = log.blocks[at]
    index = bisect_left(range(block.count), position, key=block.position) - 1
    return block.number(index)


def oldest_number(log: RegionLog) -> int:
    """The number of the oldest slot; above all numbers so far if there is none."""
    return log.blocks[0].number(0) if log.blocks else log.newest_number + 1


def id_upto(log: RegionLog, number: int) -> int:
    """The ID of the newest slot with a number up to this one, 0 if there is none."""
    at, index = _after(log, number)
    if index:
        return log.blocks[at].ids[index - 1]
    return log.blocks[at - 1].ids[-1] if at else 0


def spans(log: RegionLog, low: int, high: int) -> Iterator[Span]:
    """Live entries with numbers in ``(low, high]``, ascending."""
    at, first = _after(log, low)
    for block in islice(log.blocks, at, None):
        stop = block.index_above(high)
        if stop <= first:
            return
        if not block.dead:  # nearly all: no more calls than needed
            yield block, first, stop
        else:
            for run_low, run_high in block.runs(first, stop):
                yield block, run_low, run_high
        first = 0


def count(log: RegionLog, low: int, high: int) -> int:
    """Live entries with numbers in ``(low, high]``; O(log n), amortised."""
    return _live_upto(log, high) - _live_upto(log, low) if low < high else 0


def _live_upto(log: RegionLog, number: int) -> int:
    return log.live_before(*_after(log, number))


def remove(log: RegionLog, low: int, high: int) -> list[Block]:
    """Remove the live entries with numbers in ``(low, high]``; returns blocks now empty."""
    if high == low + 1:  # most removals are of one entry
        found = find(log, high)
        if found is not None:
            log.remove_within(found[0], [found[1]])
        return []
    at, first = _after(log, low)
    if first:
        newest = _last_number(log.blocks[at])
        _remove_within(log, at, first, high)
        at, first = _after(log, min(newest, high))
        if first:
            return []
    stop = bisect_right(log.blocks, high, lo=at, key=_last_number)
    gone = log.drop_blocks(at, stop)
    if at < len(log.blocks):
        _remove_within(log, at, 0, high)
    return gone


def _remove_within(log: RegionLog, at: int, first: int, high: int) -> None:
    """Remove the entries of a block from an index on with numbers up to ``high``."""
    block = log.blocks[at]
    stop = block.index_above(high)
    doomed = [index for run in block.runs(first, stop) for index in range(*run)]
    if doomed:
        log.remove_within(block, doomed)


def clear_upto(log: RegionLog, number: int, position: int) -> list[Block]:
    """Remove and forget everything up to a number; counting begins at ``position``.

    Returns the blocks that became empty.
    """
    gone = remove(log, 0, number)
    log.floor = max(log.floor, number)
    if log.newest_number <= number:
        log.record_newest(0, 0)
    if log.deleted_number <= number:
        log.deleted_number = log.deleted_id = 0
    if position > log.next_position:  # we had forgotten how far this log had come
        log.skip_positions(position - log.next_position)
        log.known_from = position
    log.base = max(log.base, position)
    return gone


def _last_number(block: Block) -> int:
    return block.number(block.count - 1)


def _first_slot_position(block: Block) -> int:
    return block.position(0)
