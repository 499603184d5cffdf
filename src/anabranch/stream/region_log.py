"""One region's entries of one stream, by number and position, and records of removed entries.

A region adds only to its own log and may remove from all of them.

*Positions* number the entries a region ever added to the key; they are never used twice and
survive deletion, trimming and rewriting.

*Numbers* are those of the effects that added the entries. A replica ID's effects are numbered
without gaps, over all keys, so replica ID and number identify an entry everywhere (its *dot*),
and "this replica ID up to number n" says what a replica has seen. Within a log numbers ascend as
IDs do. A region alone does not number effects for others; there the number of an entry is its
position plus one.

The other figures of a log concern the time since the key was last deleted: the newest entry, live
or not, the newest entry that was deleted on purpose, and the position from which entries count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from anabranch.compiling import mypyc_attr
from anabranch.stream.block import Block
from anabranch.stream.block_sequence import BlockSequence, Span
from anabranch.stream.entry_id import MAX_ID

__all__ = ["RegionLog", "Share", "Span"]

Share = tuple[int, Block, list[int], list[int]]
"""Live entries of one block: replica ID, block, indexes, IDs."""


@mypyc_attr(acyclic=True)
class RegionLog(BlockSequence):
    """The entries that one replica ID added to one key."""

    __slots__ = ("base", "deleted_id", "deleted_number", "floor", "full", "known_from", "trimmed")

    def __init__(self, first_position: int = 0) -> None:
        super().__init__(first_position)
        self.base = first_position  # entries-added counts from this position on
        # Every position from here on was that of an entry, also of former streams of the key, so it
        # may be below the first one
        self.known_from = first_position
        self.trimmed = first_position  # trimming has removed the entries below this position
        self.floor = 0  # a deletion of the key has covered everything up to this number
        self.deleted_number = 0  # of the newest entry that XDEL or a similar command removed
        self.deleted_id = 0
        self.full = 0  # at the last look, blocks below this position were full

    # -- compressing --------------------------------------------------------------------------

    def idle_blocks(self) -> list[Block]:
        """Blocks that are full since the last call at least, and were not returned before."""
        if self.tail is None:
            return []
        newest = self.tail.first_position
        if self.compressed == newest:
            return []
        blocks = self.blocks
        high_position = min(self.full, newest)
        low = bisect_left(blocks, self.compressed, key=_first_position)
        high = bisect_left(blocks, high_position, key=_first_position)
        self.compressed, self.full = high_position, newest
        return blocks[low:high]

    def loose_blocks(self) -> list[Block]:
        """The older half of the idle blocks that may become smaller, oldest first."""
        blocks = self.blocks
        low = bisect_left(blocks, self.dense, key=_first_position)
        high = bisect_left(blocks, self.compressed, key=_first_position)
        loose = [each for each in blocks[low:high] if not each.is_dense]
        self.dense = loose[0].first_position if loose else self.compressed
        return loose[: (len(loose) + 1) // 2]

    def in_memory(self) -> int:
        """The index of the first block that is not in a file."""
        return bisect_left(self.blocks, self.offloaded, key=_first_position)

    def older_half(self) -> int:
        """The position where the older half of the full blocks in memory ends; 0: there are none.

        The newest block is not one of them.
        """
        first = self.in_memory()
        full = len(self.blocks) - 1 - first
        return self.blocks[first + (full + 1) // 2].first_position if full > 0 else 0

    # -- adding -------------------------------------------------------------------------------

    def open_at(self, position: int, number: int) -> None:
        """Let the next entry, of this number, have this position.

        It is above the next one only if nothing is counted: a deletion of the key has covered all
        that was added before.
        """
        ahead = position - self.next_position
        if ahead:
            assert ahead > 0
            assert self.base == self.next_position
            self.skip_positions(ahead)
            self.base = self.known_from = position
            self.floor = number - 1  # else a full sync of older data would bring counters back
            if self.tail is not None:
                self.tail.keep_positions()

    # -- finding by ID ------------------------------------------------------------------------

    def spans_from(self, start: int, limit: int = -1) -> Iterable[Span]:
        """Live entries with ``start <= ID``, ascending, at most ``limit`` (-1: all).

        Most reads of new entries find what they want in one block.
        """
        at = bisect_right(self._first_ids, start) - 1
        if at >= 0 and limit > 0:
            block = self._blocks[at]
            if not block.dead:
                low = block.index_from(start)
                if low + limit <= block.count:
                    return [(block, low, low + limit)]
        return self.spans(start, MAX_ID, limit)

    # -- finding by number --------------------------------------------------------------------

    def _after(self, number: int) -> tuple[int, int]:
        """``(block index, index)`` of the first slot with a greater number; O(log n)."""
        blocks = self.blocks
        at = bisect_right(blocks, number, key=_first_number) - 1
        if at < 0:
            return 0, 0
        block = blocks[at]
        index = block.index_above(number)
        return (at, index) if index < block.count else (at + 1, 0)

    def find_number(self, number: int) -> tuple[Block, int] | None:
        """The live entry with this number, or None."""
        if number < self.oldest_number:  # nearly all that are gone were trimmed
            return None
        at, index = self._after(number - 1)
        if at == len(self.blocks):
            return None
        block = self.blocks[at]
        if block.number(index) != number or index in block.dead:
            return None
        return block, index

    def live_numbers(self, numbers: Sequence[int]) -> list[int]:
        """Those of these numbers, which ascend, that live entries have; O(their blocks)."""
        live: list[int] = []
        low = 0
        while low < len(numbers):
            at, first = self._after(numbers[low] - 1)
            if at == len(self.blocks):
                break
            block = self.blocks[at]
            high = bisect_right(numbers, _last_number(block), low)
            alive: set[int] = set()
            for run in block.runs(first, min(block.index_above(numbers[high - 1]), block.count)):
                alive.update(block.numbers_of(*run))
            live += filter(alive.__contains__, numbers[low:high])
            low = high
        return live

    def numbers_of(self, ids: Sequence[int]) -> list[int]:
        """The numbers of live entries with these IDs, which ascend; O(their blocks)."""
        numbers: list[int] = []
        low = 0
        while low < len(ids):
            found = self.find(ids[low])
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

    def number_upto(self, entry_id: int) -> int:
        """The number of the newest slot with an ID up to this one, 0 if there is none."""
        at = self._block_index(entry_id)
        if at < 0:
            return 0
        block = self.blocks[at]
        index = block.index_after(entry_id) - 1
        if index >= 0:
            return block.number(index)
        return _last_number(self.blocks[at - 1]) if at else 0

    def position_behind(self, number: int) -> int:
        """The position behind the newest slot with a number up to this one, 0 if there is none."""
        at, index = self._after(number)
        if index:
            return self.blocks[at].position(index - 1) + 1
        if at:
            block = self.blocks[at - 1]
            return block.position(block.count - 1) + 1
        return 0

    def newest_slot_upto(self, number: int) -> tuple[int, int]:
        """Number of the newest slot up to a number, and the position behind it; 0, 0 if none."""
        at, index = self._after(number)
        if not index:
            at -= 1
            if at < 0:
                return 0, 0
            index = self.blocks[at].count
        block = self.blocks[at]
        return block.number(index - 1), block.position(index - 1) + 1

    def position_above(self, number: int) -> int:
        """The position of the oldest live entry with a greater number; the end without one."""
        for block, low, _ in self.spans_numbered(number, self.newest_number):
            return block.position(low)
        return self.next_position

    def number_below(self, position: int) -> int:
        """The number of the newest slot with a lower position, 0 if there is none."""
        at = bisect_left(self.blocks, position, key=_first_slot_position) - 1
        if at < 0:
            return 0
        block = self.blocks[at]
        index = bisect_left(range(block.count), position, key=block.position) - 1
        return block.number(index)

    @property
    def oldest_number(self) -> int:
        """The number of the oldest slot; above all numbers so far if there is none."""
        return self.blocks[0].number(0) if self.blocks else self.newest_number + 1

    def id_upto(self, number: int) -> int:
        """The ID of the newest slot with a number up to this one, 0 if there is none."""
        at, index = self._after(number)
        if index:
            return self.blocks[at].ids[index - 1]
        return self.blocks[at - 1].ids[-1] if at else 0

    def spans_numbered(self, low: int, high: int) -> Iterator[Span]:
        """Live entries with numbers in ``(low, high]``, ascending."""
        at, first = self._after(low)
        for block in islice(self.blocks, at, None):
            stop = block.index_above(high)
            if stop <= first:
                return
            if not block.dead:  # nearly all: no more calls than needed
                yield block, first, stop
            else:
                for run_low, run_high in block.runs(first, stop):
                    yield block, run_low, run_high
            first = 0

    def count_numbered(self, low: int, high: int) -> int:
        """Live entries with numbers in ``(low, high]``; O(log n), amortised."""
        return self._live_upto(high) - self._live_upto(low) if low < high else 0

    def _live_upto(self, number: int) -> int:
        return self._live_before(*self._after(number))

    # -- by position --------------------------------------------------------------------------

    def spans_positioned(self, low: int, high: int) -> Iterator[Span]:
        """Live entries with positions in ``[low, high)``, ascending."""
        blocks = self.blocks
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

    def id_below(self, position: int) -> int:
        """The ID of the newest live entry below a position; 0 if there is none."""
        blocks = self.blocks
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

    def live_below(self, position: int) -> int:
        """Live entries with lower positions; O(log n), amortised."""
        at = bisect_left(self.blocks, position, key=_first_position) - 1
        return 0 if at < 0 else self._live_before(at, _index_of(self.blocks[at], position))

    def position_behind_live(self, position: int, count: int) -> int:
        """The position behind ``count`` live entries from a position on; at most the log's end.

        The position itself if ``count`` is 0. O(log n + the blocks of these entries).
        """
        if not count:
            return self.next_position
        blocks = self.blocks
        at = max(bisect_right(blocks, position, key=_first_position) - 1, 0)
        for block in islice(blocks, at, None):
            for low, high in block.runs(_index_of(block, position), block.count):
                if count <= high - low:
                    last = block.position(low + count - 1)
                    return last + 1 if block is not self.tail else self._end_behind(last)
                count -= high - low
        return self.next_position

    def _end_behind(self, position: int) -> int:
        """The position behind a live entry: the log's end, if it is the last one."""
        tail = self.tail
        assert tail is not None
        is_last = position == tail.position(tail.last_live())
        return self.next_position if is_last else position + 1

    # -- removing -----------------------------------------------------------------------------

    def remove_numbered(self, low: int, high: int) -> list[Block]:
        """Remove the live entries with numbers in ``(low, high]``; returns blocks now empty."""
        if high == low + 1:  # most removals are of one entry
            found = self.find_number(high)
            if found is not None:
                self.remove(*found)
            return []
        at, first = self._after(low)
        if first:
            newest = _last_number(self.blocks[at])
            self._remove_within(at, first, high)
            at, first = self._after(min(newest, high))
            if first:
                return []
        stop = bisect_right(self.blocks, high, lo=at, key=_last_number)
        gone = self.drop_blocks(at, stop)
        if at < len(self.blocks):
            self._remove_within(at, 0, high)
        return gone

    def _remove_within(self, at: int, first: int, high: int) -> None:
        """Remove the entries of a block from an index on with numbers up to ``high``."""
        block = self.blocks[at]
        stop = block.index_above(high)
        doomed = [index for run in block.runs(first, stop) for index in range(*run)]
        if doomed:
            self.remove_within(block, doomed)

    def clear_upto(self, number: int, position: int) -> list[Block]:
        """Remove and forget everything up to a number; counting begins at ``position``.

        Returns the blocks that became empty.
        """
        gone = self.remove_numbered(0, number)
        self.floor = max(self.floor, number)
        if self.newest_number <= number:
            self._newest = 0, 0
        if self.deleted_number <= number:
            self.deleted_number = self.deleted_id = 0
        if position > self.next_position:  # we had forgotten how far this log had come
            self.skip_positions(position - self.next_position)
            self.known_from = position
        self.base = max(self.base, position)
        return gone

    def go_on(self, position: int, known_from: int, floor: int) -> None:
        """Let a new log go on where a former one of the key ended."""
        self.skip_positions(position - self.next_position)
        self.base, self.known_from, self.floor = position, known_from, floor

    def adopt(self, other: RegionLog) -> None:
        """Add all entries of another state of this log; they are newer than any entry here."""
        newest = max((self.newest_number, self.newest_id), (other.newest_number, other.newest_id))
        for block in other.blocks:
            block.drop_dead()
            block.first_id = block.ids[0]
            if self.tail is not None:
                self.tail.close()
            self._blocks.append(block)
            self._first_ids.append(block.first_id)
            self.tail = block
        if self.tail is not None and not self.tail.is_open:
            self._reopen_tail()
        floor = self.floor = max(self.floor, other.floor)
        self._newest = newest if newest[0] > floor else (0, 0)
        deleted = max(
            (self.deleted_number, self.deleted_id), (other.deleted_number, other.deleted_id)
        )
        self.deleted_number, self.deleted_id = deleted if deleted[0] > floor else (0, 0)
        self.base = max(self.base, other.base)
        self.known_from = max(self.known_from, other.known_from)
        self.trimmed = max(self.trimmed, other.trimmed)
        if other.next_position > self.next_position and self.tail is not None:
            self.tail.keep_positions()
        self.next_position = max(self.next_position, other.next_position)
        self._gone = self.next_position - sum(block.live for block in self.blocks)
        self._live_sums.clear()

    def record_deleted(self, number: int, entry_id: int) -> None:
        """Record that an entry was deleted on purpose: this raises max-deleted-entry-id."""
        if number > max(self.deleted_number, self.floor):
            self.deleted_number = number
            self.deleted_id = entry_id

    @property
    def is_blank(self) -> bool:
        """Whether nothing is stored except the next position."""
        return not self.newest_number and not self.deleted_number and self.tail is None

    def copy(self) -> RegionLog:
        """An independent copy."""
        other = RegionLog(self.next_position)
        other._blocks = [block.copy() for block in self.blocks]
        other._first_ids = self.first_ids.copy()
        other.tail = other._blocks[-1] if other._blocks else None
        other._gone = self._gone
        other._newest = self._newest
        other.base = self.base
        other.known_from = self.known_from
        other.full, other.compressed = self.full, self.compressed
        other.dense = self.dense
        other.trimmed = self.trimmed
        other.floor = self.floor
        other.deleted_number, other.deleted_id = self.deleted_number, self.deleted_id
        return other

    def check_spine(self) -> None:
        """Assert what must hold of a region log with numbers, but for what is inside of blocks."""
        super().check_spine()
        previous = 0
        for block in self.blocks:
            assert previous < block.number(0)
            previous = _last_number(block)
        assert self.base <= self.next_position


def _first_number(block: Block) -> int:
    return block.number(0)


def _last_number(block: Block) -> int:
    return block.number(block.count - 1)


def _first_slot_position(block: Block) -> int:
    return block.position(0)


def _first_position(block: Block) -> int:
    return block.first_position


def _index_of(block: Block, position: int) -> int:
    """The index of the first entry, dead or live, at or behind a position."""
    offset = position - block.first_position
    if block.positions is not None:
        return bisect_left(block.positions, offset)
    return min(max(offset, 0), block.count)
