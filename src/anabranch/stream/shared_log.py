"""A region log where several regions write: every entry has the number of the effect that added it.

An origin's effects are numbered without gaps, over all keys, so an entry is named by origin and
number everywhere (its *dot*), and "this origin up to number n" says what a replica has seen. Within
a log numbers ascend as IDs do.

What a log tells beside its entries is about everything since the key was last deleted: its newest
entry, live or not, the newest that was deleted on purpose, and where counting began.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from anabranch.stream.block import Block
from anabranch.stream.region_log import RegionLog, Span

__all__ = ["SharedLog"]


class SharedLog(RegionLog):
    """The entries that one origin added to one key."""

    __slots__ = (
        "deleted_id",
        "deleted_number",
        "floor",
        "newest_id",
        "newest_number",
    )

    def __init__(self, first_position: int = 0) -> None:
        super().__init__(first_position)
        self.base = first_position  # entries-added counts from this position on
        self.floor = 0  # a deletion of the key has covered everything up to this number
        self.newest_number = 0  # of the newest entry since the last deletion, 0: none
        self.newest_id = 0
        self.deleted_number = 0  # of the newest entry that XDEL or its kin removed
        self.deleted_id = 0

    # -- adding -------------------------------------------------------------------------------

    def open_at(self, position: int) -> None:
        """The next entry has this position: further on only if nothing is counted at present."""
        ahead = position - self.next_position
        if ahead:
            assert ahead > 0
            assert self.base == self.next_position
            self.skip_positions(ahead)
            self.base = position
            if self.tail is not None:
                self.tail.keep_positions()

    def add(self, number: int, entry_id: int, fragment: bytes, weight: int, opens: bool) -> None:
        """Add the newest entry."""
        tail = self.tail
        if opens or tail is None or tail.positions is not None:
            self.append(entry_id, fragment, weight, opens)
            tail = self.tail
            assert tail is not None
            if tail.numbers is None:
                tail.numbers = array("Q")
        else:  # RegionLog.append written out for the usual case
            tail.parts.append(fragment)  # type: ignore[union-attr]  # the tail is open
            tail.ids.append(entry_id)  # type: ignore[union-attr]
            tail.weight += weight
            self.next_position += 1
        tail.numbers.append(number)  # type: ignore[union-attr]
        self.newest_number = number
        self.newest_id = entry_id

    def add_run(
        self, number: int, ids: Sequence[int], fragments: list[bytes], weight: int, opens: bool
    ) -> None:
        """Add neighbouring entries, numbered from ``number`` on, to one node."""
        self.add(number, ids[0], fragments[0], weight, opens)
        if len(ids) > 1:
            self.extend(ids[1:], fragments[1:], 0)
            tail = self.tail
            assert tail is not None
            assert isinstance(tail.numbers, array)
            tail.numbers.extend(range(number + 1, number + len(ids)))
            self.newest_number = number + len(ids) - 1
            self.newest_id = ids[-1]

    def add_node(
        self, number: int, ids: Sequence[int], data: bytes, ends: list[int], weight: int
    ) -> None:
        """Add a whole node behind the newest; the next addition has to open another."""
        self.append_full(ids, data, ends, weight)
        assert self.tail is not None
        self.tail.numbers = range(number, number + len(ids))
        self.newest_number = number + len(ids) - 1
        self.newest_id = ids[-1]

    # -- finding by number --------------------------------------------------------------------

    def _after(self, number: int) -> tuple[int, int]:
        """``(block index, index)`` of the first slot with a greater number; O(log n)."""
        blocks = self.blocks
        at = bisect_right(blocks, number, key=_first_number) - 1
        if at < 0:
            return 0, 0
        numbers = _numbers(blocks[at])
        index = bisect_right(numbers, number)
        return (at, index) if index < len(numbers) else (at + 1, 0)

    def find_number(self, number: int) -> tuple[Block, int] | None:
        """The live entry with this number, or None."""
        at, index = self._after(number - 1)
        if at == len(self.blocks):
            return None
        block = self.blocks[at]
        if _numbers(block)[index] != number or index in block.dead:
            return None
        return block, index

    def number_upto(self, entry_id: int) -> int:
        """The number of the newest slot with an ID up to this one, 0 if there is none."""
        at = self._block_index(entry_id)
        if at < 0:
            return 0
        block = self.blocks[at]
        index = block.index_after(entry_id) - 1
        if index >= 0:
            return _numbers(block)[index]
        return _numbers(self.blocks[at - 1])[-1] if at else 0

    def position_behind(self, number: int) -> int:
        """The position behind the newest slot with a number up to this one, 0 if there is none."""
        at, index = self._after(number)
        if index:
            return self.blocks[at].position(index - 1) + 1
        if at:
            block = self.blocks[at - 1]
            return block.position(len(block.ids) - 1) + 1
        return 0

    def position_above(self, number: int) -> int:
        """The position of the oldest live entry with a greater number; behind all without one."""
        for block, low, _ in self.spans_numbered(number, self.newest_number):
            return block.position(low)
        return self.next_position

    def number_below(self, position: int) -> int:
        """The number of the newest slot with a lower position, 0 if there is none."""
        at = bisect_left(self.blocks, position, key=_first_position) - 1
        if at < 0:
            return 0
        block = self.blocks[at]
        index = bisect_left(range(len(block.ids)), position, key=block.position) - 1
        return _numbers(block)[index]

    def id_upto(self, number: int) -> int:
        """The ID of the newest slot with a number up to this one, 0 if there is none."""
        at, index = self._after(number)
        if index:
            return self.blocks[at].ids[index - 1]
        return self.blocks[at - 1].ids[-1] if at else 0

    def spans_numbered(self, low: int, high: int) -> Iterator[Span]:
        """Live entries with numbers in ``(low, high]``, ascending."""
        at, first = self._after(low)
        blocks = self.blocks
        while at < len(blocks):
            block = blocks[at]
            numbers = _numbers(block)
            if numbers[first] > high:
                return
            stop = len(numbers) if numbers[-1] <= high else bisect_right(numbers, high)
            for run_low, run_high in block.runs(first, stop):
                yield block, run_low, run_high
            at += 1
            first = 0

    def count_numbered(self, low: int, high: int) -> int:
        """Live entries with numbers in ``(low, high]``; O(log n), amortised."""
        return self._live_upto(high) - self._live_upto(low) if low < high else 0

    def _live_upto(self, number: int) -> int:
        return self._live_before(*self._after(number))

    # -- removing -----------------------------------------------------------------------------

    def remove_numbered(self, low: int, high: int) -> list[Block]:
        """Remove the live entries with numbers in ``(low, high]``; the blocks that went whole."""
        if high == low + 1:  # most removals are of one entry
            found = self.find_number(high)
            if found is not None:
                self.remove(*found)
            return []
        at, first = self._after(low)
        if first:
            newest = _numbers(self.blocks[at])[-1]
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
        """Remove what a block has from an index on with numbers up to ``high``."""
        block = self.blocks[at]
        stop = bisect_right(_numbers(block), high)
        self.remove_all([i for run in block.runs(first, stop) for i in block.ids[slice(*run)]])

    def clear_upto(self, number: int, position: int) -> list[Block]:
        """Everything up to a number is gone and forgotten; counting begins at ``position``.

        Returns the blocks that went whole.
        """
        gone = self.remove_numbered(0, number)
        self.floor = max(self.floor, number)
        if self.newest_number <= number:
            self.newest_number = self.newest_id = 0
        if self.deleted_number <= number:
            self.deleted_number = self.deleted_id = 0
        if position > self.next_position:  # we had forgotten how far this log had come
            self.skip_positions(position - self.next_position)
        self.base = max(self.base, position)
        return gone

    def adopt(self, other: SharedLog) -> None:
        """Take over all entries of another state of this log; they are newer than any here."""
        for block in other.blocks:
            block.forget_dead()
            block.first_id = block.ids[0]
            if self.tail is not None:
                self.tail.is_open = False
            self.blocks.append(block)
            self.first_ids.append(block.first_id)
            self.tail = block
        if self.tail is not None and not self.tail.is_open:
            if self.tail.shared:
                self.tail = self._own(-1)
            self.tail.reopen()
        floor = self.floor = max(self.floor, other.floor)
        newest = max((self.newest_number, self.newest_id), (other.newest_number, other.newest_id))
        self.newest_number, self.newest_id = newest if newest[0] > floor else (0, 0)
        deleted = max(
            (self.deleted_number, self.deleted_id), (other.deleted_number, other.deleted_id)
        )
        self.deleted_number, self.deleted_id = deleted if deleted[0] > floor else (0, 0)
        self.base = max(self.base, other.base)
        self.trimmed = max(self.trimmed, other.trimmed)
        if other.next_position > self.next_position and self.tail is not None:
            self.tail.keep_positions()
        self.next_position = max(self.next_position, other.next_position)
        self._gone = self.next_position - sum(block.live for block in self.blocks)
        self._live_sums.clear()

    def note_deleted(self, number: int, entry_id: int) -> None:
        """An entry was removed on purpose (it raises max-deleted-entry-id)."""
        if number > max(self.deleted_number, self.floor):
            self.deleted_number = number
            self.deleted_id = entry_id

    @property
    def is_blank(self) -> bool:
        """Nothing is remembered but where positions go on."""
        return not self.newest_number and not self.deleted_number and not self.blocks

    def copy(self) -> SharedLog:
        """An independent copy."""
        plain = super().copy()
        other = SharedLog()
        for name in RegionLog.__slots__:
            setattr(other, name, getattr(plain, name))
        other.floor = self.floor
        other.newest_number, other.newest_id = self.newest_number, self.newest_id
        other.deleted_number, other.deleted_id = self.deleted_number, self.deleted_id
        return other

    def check_spine(self) -> None:
        """Assert what must hold of a region log with numbers, but for what is inside of blocks."""
        super().check_spine()
        previous = 0
        for block in self.blocks:
            numbers = _numbers(block)
            assert previous < numbers[0]
            previous = numbers[-1]
        assert previous <= self.newest_number
        assert self.last_id <= self.newest_id
        assert self.base <= self.next_position


def _numbers(block: Block) -> Sequence[int]:
    numbers = block.numbers
    assert numbers is not None
    return numbers


def _first_number(block: Block) -> int:
    return _numbers(block)[0]


def _last_number(block: Block) -> int:
    return _numbers(block)[-1]


def _first_position(block: Block) -> int:
    return block.position(0)
