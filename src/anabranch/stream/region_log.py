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

Blocks are sorted by first ID, newest at the end. IDs and positions ascend, so finding is bisection:
first the block (by its first ID), then the entry. Looking by number and by position are modules of
their own: :mod:`anabranch.stream.by_number`, :mod:`anabranch.stream.by_position`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from anabranch.compiling import mypyc_attr
from anabranch.stream.block import Block, block_index, ms_of
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.packed_ids import PackedIds

Share = tuple[int, Block, list[int], list[int]]
"""Live entries of one block: replica ID, block, indexes, IDs."""

Span = tuple[Block, int, int]
"""Live entries ``[low, high)`` of one block."""

_GONE: Final = Block(0, 0)
"""Stands for a removed block at the front of a list: it has no entry, so reads pass it."""

_GONE_MIN: Final = 64
_GONE_SHARE: Final = 8
"""A list is moved down when more than so many blocks are gone, and this part of all."""


@mypyc_attr(acyclic=True)
class RegionLog:
    """The entries that one replica ID added to one key, in ID order."""

    __slots__ = (
        *("_blocks", "_front", "_gone", "_live_sums", "_newest", "base"),
        *("compressed", "deleted_id", "deleted_number", "dense", "floor", "full", "known_from"),
        *("next_position", "offloaded", "tail", "trimmed"),
    )

    def __init__(self, first_position: int = 0) -> None:
        self._blocks: list[Block] = []  # searched by bisection
        # How many blocks at the front of the list are gone. Trimming removes the oldest block all
        # the time, and moving a long list down each time would cost more than the XADDs between.
        self._front = 0
        self.tail: Block | None = None
        self.next_position = first_position
        self._gone = first_position  # positions without a live entry
        self._live_sums: list[int] = []  # live entries before each block; the first may be above 0
        self.compressed = 0  # blocks below this position have been packed, if that pays
        self.dense = 0  # those below this one cannot become smaller
        self.offloaded = 0  # blocks below this position are in a file
        self._newest = (0, 0)  # number and ID of the newest entry that is in no block any more
        self.base = first_position  # entries-added counts from this position on
        # Every position from here on was that of an entry, also of former streams of the key, so it
        # may be below the first one
        self.known_from = first_position
        self.trimmed = first_position  # trimming has removed the entries below this position
        self.floor = 0  # a deletion of the key has covered everything up to this number
        self.deleted_number = 0  # of the newest entry that XDEL or a similar command removed
        self.deleted_id = 0
        self.full = 0  # at the last look, blocks below this position were full

    # -- adding -------------------------------------------------------------------------------

    def append(
        self, entry_id: int, fragment: bytes, weight: int, opens: bool, shift: int = 1
    ) -> None:
        """Add the newest entry; ``opens`` starts a new block (the node limits were reached).

        ``shift`` is the difference between its number and its position; in a region alone it is
        always 1 (see above).
        """
        tail = self.tail
        position = self.next_position
        if opens or tail is None:
            if tail is not None:
                tail.close()
            tail = self.tail = Block(entry_id, position, shift)
            self._blocks.append(tail)
        else:
            if shift != tail.shift:
                tail.keep_numbers().append(position + shift)
            if tail.positions is not None:
                tail.positions.append(position - tail.first_position)
        assert tail.parts is not None
        tail.parts.append(fragment)
        tail.open_ids.append(entry_id)
        tail.weight += weight
        self.next_position = position + 1

    def is_full(self, weight: int, entries_max: int, bytes_max: int) -> bool:
        """Whether an entry of this weight opens a new block; a limit of 0 is none."""
        tail = self.tail
        return (
            tail is None
            or tail.parts is None
            or len(tail.parts) + tail.gaps >= entries_max > 0
            or tail.weight + weight >= bytes_max > 0
        )

    def extend(
        self, ids: Sequence[int], fragments: list[bytes], weight: int, shift: int = 1
    ) -> None:
        """Add neighbouring entries to the newest block; ``weight`` is that of all of them.

        ``shift`` is as in :meth:`append`, the same for all.
        """
        tail = self.tail
        assert tail is not None
        position = self.next_position
        if shift != tail.shift:
            number = position + shift
            tail.keep_numbers().extend(range(number, number + len(ids)))
        if tail.positions is not None:
            first = position - tail.first_position
            tail.positions.extend(range(first, first + len(ids)))
        assert tail.parts is not None
        tail.parts.extend(fragments)
        tail.open_ids.extend(ids)
        tail.weight += weight
        self.next_position = position + len(ids)

    def append_blocks(self, blocks: list[Block], shift: int = 1) -> None:
        """Add blocks of live entries after the newest; ``shift`` as in :meth:`extend`."""
        if self.tail is not None:
            self.tail.close()
        position = self.next_position
        for block in blocks:
            block.first_position = position
            block.shift = shift
            position += block.count
        self.tail = blocks[-1]
        self._blocks.extend(blocks)
        self.next_position = position

    def restore(self, block: Block) -> None:
        """Restore the newest block of a log whose positions were counted already."""
        self._blocks.append(block)
        self._gone -= block.live
        self.tail = block

    @property
    def length(self) -> int:
        """The count of live entries."""
        return self.next_position - self._gone

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

    def skip_positions(self, count: int) -> None:
        """Count entries that were added and deleted before this region received them."""
        self.next_position += count
        self._gone += count

    # -- finding ------------------------------------------------------------------------------

    @property
    def blocks(self) -> list[Block]:
        """All blocks, the oldest first. Do not change the list."""
        if self._front:
            self._move_down()
        return self._blocks

    def _move_down(self) -> None:
        front, self._front = self._front, 0
        del self._blocks[:front], self._live_sums[:front]

    def oldest(self, index: int) -> Block | None:
        """The block with this index, None after the newest one; does not move the list."""
        at = self._front + index
        return self._blocks[at] if at < len(self._blocks) else None

    def _block_index(self, entry_id: int) -> int:
        """Index of the block that would hold ``entry_id``; -1 when it lies before the first."""
        return block_index(self.blocks, entry_id)

    def find(self, entry_id: int) -> tuple[Block, int] | None:
        """The live entry with this ID, or None; O(log n)."""
        at = block_index(self._blocks, entry_id)
        if at < 0:
            return None
        block = self._blocks[at]
        index = block.find(entry_id)
        return None if index < 0 else (block, index)

    @property
    def first_id(self) -> int:
        """ID of the oldest live entry, 0 when there is none."""
        if self.tail is None:
            return 0
        block = self._blocks[self._front]
        return block.ids[block.first_live()] if block.dead or block.gaps else block.first_id

    @property
    def last_id(self) -> int:
        """ID of the newest live entry, 0 when there is none."""
        block = self.tail
        if block is None:
            return 0
        return block.ids[block.last_live()] if block.dead else block.ids[-1]

    def spans_from(self, start: int, limit: int = -1) -> Iterable[Span]:
        """Live entries with ``start <= ID``, ascending, at most ``limit`` (-1: all).

        Most reads of new entries find what they want in one block.
        """
        at = block_index(self._blocks, start)
        if at >= 0 and limit > 0:
            block = self._blocks[at]
            if not block.dead:
                low = block.index_from(start)
                if low + limit <= block.count:
                    return [(block, low, low + limit)]
        return self.spans(start, MAX_ID, limit)

    def spans(self, start: int, end: int, limit: int = -1) -> Iterator[Span]:
        """Live entries with ``start <= ID <= end``, ascending, at most ``limit`` (-1: all)."""
        blocks = self.blocks
        count = len(blocks)
        if not count or not limit:
            return
        index = block_index(blocks, start)
        if index < 0:
            index = low = 0
        else:
            low = blocks[index].index_from(start)
        while index < count and blocks[index].first_id <= end:
            block = blocks[index]
            index += 1
            if index < count and blocks[index].first_id <= end:
                high = block.count  # the next block begins within the range
            else:
                high = block.index_after(end)
            if not block.dead:
                if low < high:
                    if 0 < limit <= high - low:
                        yield block, low, low + limit
                        return
                    if limit > 0:
                        limit -= high - low
                    yield block, low, high
            else:
                for first, stop in block.runs(low, high):
                    if 0 < limit <= stop - first:
                        yield block, first, first + limit
                        return
                    if limit > 0:
                        limit -= stop - first
                    yield block, first, stop
            low = 0

    def read(self, start: int, end: int, limit: int, parts: list[bytes]) -> int:
        """Append the bytes of the entries of :meth:`spans` to ``parts``; returns their count.

        Most reads end here, so look-ups are inlined.
        """
        blocks = self._blocks
        count = len(blocks)
        index = block_index(blocks, start)
        if index < self._front:
            index, low = self._front, 0
        else:
            ids = blocks[index].ids
            low = ids.index_from(start) if type(ids) is PackedIds else bisect_left(ids, start)
        all_left = left = limit if limit >= 0 else self.next_position
        goes_on = index < count and blocks[index].first_id <= end
        while goes_on and left:
            block = blocks[index]
            index += 1
            goes_on = index < count and blocks[index].first_id <= end
            if goes_on or end == MAX_ID:  # as when the next block begins within the range
                high = block.count
            else:
                high = block.index_after(end)
            if block.dead:
                for first, stop in block.runs(low, high):
                    stop = min(stop, first + left)
                    if first < stop:
                        parts.append(block.slice(first, stop))
                        left -= stop - first
            else:
                if high - low > left:
                    high = low + left
                if low < high:
                    parts.append(block.slice(low, high))
                    left -= high - low
            low = 0
        return all_left - left

    def spans_reversed(self, start: int, end: int, limit: int = -1) -> Iterator[Span]:
        """The entries of :meth:`spans` from the newest one; within a span they still ascend."""
        if not limit:
            return
        index = self._block_index(end)
        newest = True  # only the first block visited can hold IDs above the range
        while index >= 0:
            block = self.blocks[index]
            low = block.index_from(start) if block.first_id < start else 0
            high = block.index_after(end) if newest else block.count
            for first, stop in reversed(list(block.runs(low, high))):
                if 0 < limit <= stop - first:
                    yield block, stop - limit, stop
                    return
                if limit > 0:
                    limit -= stop - first
                yield block, first, stop
            if block.first_id <= start:
                return
            newest = False
            index -= 1

    # -- counting -----------------------------------------------------------------------------

    def count(self, start: int, end: int) -> int:
        """Live entries with ``start <= ID <= end``; O(log n), amortised."""
        return self._live_below(end + 1) - self._live_below(start) if start <= end else 0

    def _live_below(self, entry_id: int) -> int:
        at = self._block_index(entry_id - 1)
        return 0 if at < 0 else self.live_before(at, self.blocks[at].index_from(entry_id))

    def live_before(self, at: int, index: int) -> int:
        """The count of live entries before a slot of a block.

        After a removal the sums of the later blocks are computed again when they are needed. The
        newest block needs no sum: its entries are counted from the end.
        """
        blocks = self.blocks
        if at == len(blocks):
            return self.length
        block = blocks[at]
        within = index - (sum(1 for each in block.dead if each < index) if block.dead else 0)
        if at == len(blocks) - 1:
            return self.length - block.live + within
        sums = self._live_sums
        while len(sums) <= at:
            done = len(sums)
            sums.append(sums[-1] + blocks[done - 1].live if done else 0)
        return sums[at] - sums[0] + within

    # -- removing -----------------------------------------------------------------------------

    def live_among(self, ids: Iterable[int]) -> list[int]:
        """Those of these IDs that live entries have, in the given order."""
        return [entry_id for _, _, found in self.located(ids) for entry_id in found]

    def remove_all(self, ids: Iterable[int]) -> list[int]:
        """Remove the live entries that have these distinct IDs; returns the IDs that were found.

        Neighbours are removed together, which saves most of the work of :meth:`remove`.
        """
        gone: list[int] = []
        for block, indexes, found in self.located(ids):
            self.remove_within(block, indexes)
            gone += found
        return gone

    def remove_within(self, block: Block, indexes: list[int]) -> None:
        """Remove live entries of one block, each named once; does not open the block."""
        if self._live_sums:
            del self._live_sums[self._block_index(block.first_id) + 1 :]
        if block.shared:
            block = self._own(self._block_index(block.first_id))
        if block is self.tail:
            self._keep_newest()  # a rewrite may remove its slot
        block.kill_all(indexes)
        self._gone += len(indexes)
        if not block.live:
            self._drop(block)

    def holds(self, block: Block) -> bool:
        """Whether a block is one of this log."""
        at = self._block_index(block.first_id)
        return at >= 0 and self.blocks[at] is block

    def located(self, ids: Iterable[int]) -> Iterator[tuple[Block, list[int], list[int]]]:
        """``(block, indexes, IDs)`` of the live entries with these IDs.

        Neighbouring IDs of one block come together. What was yielded may be removed at once.
        """
        blocks = self._blocks
        block: Block | None = None
        low = high = 0
        indexes: list[int] = []
        found: list[int] = []
        for entry_id in ids:
            if block is None or not low <= entry_id < high:
                if block is not None and indexes:
                    yield block, indexes, found
                    indexes, found = [], []
                at = block_index(blocks, entry_id)
                if at < 0:
                    block = None
                    continue
                block = blocks[at]
                low = block.first_id
                high = blocks[at + 1].first_id if at + 1 < len(blocks) else MAX_ID + 1
            index = block.find(entry_id)
            if index >= 0:
                indexes.append(index)
                found.append(entry_id)
        if block is not None and indexes:
            yield block, indexes, found

    def drop_blocks(self, low: int, high: int) -> list[Block]:
        """Remove neighbouring blocks with all their entries; returns them."""
        blocks, front = self._blocks, self._front
        gone = blocks[front + low : front + high]
        self._gone += sum([block.live for block in gone])
        if not low and len(gone) < len(blocks) - front:
            blocks[front : front + len(gone)] = [_GONE] * len(gone)
            self._front = front + len(gone)
            if self._front > max(_GONE_MIN, len(blocks) // _GONE_SHARE):
                self._move_down()
        else:
            self._move_down()
            del blocks[low:high], self._live_sums[low + 1 :]
        if gone and gone[-1] is self.tail:
            self._keep_newest()
            del self._live_sums[low:]  # the block before them accepts additions again
            self.tail = blocks[-1] if blocks else None
            if self.tail is not None:  # the positions of removed entries must not be used again
                self._reopen_tail().keep_positions()
        return gone

    def _reopen_tail(self) -> Block:
        """Let a closed block accept additions."""
        assert self.tail is not None
        if self.tail.shared:
            self.tail = self._own(-1)
        self.tail.reopen()
        self.compressed = min(self.compressed, self.tail.first_position)
        self.dense = min(self.dense, self.compressed)
        self.offloaded = min(self.offloaded, self.tail.first_position)
        return self.tail

    def _drop(self, block: Block) -> None:
        index = self._block_index(block.first_id)
        self.drop_blocks(index, index + 1)

    def _own(self, index: int) -> Block:
        """Replace a block by a copy, because a snapshot must still read the block as it is."""
        block = self.blocks[index] = self.blocks[index].copy()
        return block

    def reopen_at(self, last_id: int) -> None:
        """Make room for IDs above ``last_id``, which XSETID may have lowered.

        Trimming can leave dead slots above the new last-generated-id; bisection needs ascending
        IDs, so those slots must go before something is appended after them.
        """
        tail = self.tail
        if tail is not None and tail.ids[-1] > last_id:
            self._keep_newest()
            tail.drop_dead()

    @property
    def newest_number(self) -> int:
        """The number of the newest entry since the last deletion of the key; 0: none."""
        tail = self.tail
        known = self._newest[0]
        return known if tail is None else max(known, tail.number(len(tail.ids) - 1))

    @property
    def newest_id(self) -> int:
        """The ID of the newest entry since the last deletion of the key; 0: none."""
        tail = self.tail
        known = self._newest[1]
        return known if tail is None else max(known, tail.ids[-1])

    def record_newest(self, number: int, entry_id: int) -> None:
        """Record number and ID of the newest entry; a block may have a newer one."""
        self._newest = number, entry_id

    def record_deleted(self, number: int, entry_id: int) -> None:
        """Record that an entry was deleted on purpose: this raises max-deleted-entry-id."""
        if number > max(self.deleted_number, self.floor):
            self.deleted_number = number
            self.deleted_id = entry_id

    def _keep_newest(self) -> None:
        """Record the newest entry before the newest block loses slots."""
        self._newest = self.newest_number, self.newest_id

    @property
    def is_blank(self) -> bool:
        """Whether nothing is stored except the next position."""
        return not self.newest_number and not self.deleted_number and self.tail is None

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
            block.first_ms = ms_of(block.first_id)
            if self.tail is not None:
                self.tail.close()
            self._blocks.append(block)
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

    def check(self) -> None:
        """Assert every invariant of a region log."""
        for block in self.blocks:
            block.check()
        self.check_spine()

    def check_spine(self) -> None:
        """Assert the invariants, except for the contents of blocks."""
        previous = -1
        live = 0
        for block in self.blocks:
            assert block.is_open == (block is self.tail)
            assert block.live > 0
            assert previous < block.first_id <= block.ids[0]
            previous = block.ids[-1]
            live += block.live
        assert live == self.length
        sums = [0, *accumulate([block.live for block in self.blocks])]
        known = self._live_sums
        assert [each - known[0] for each in known] == sums[: len(known)]
        assert (self.tail is None) == (not self.blocks)
        assert self.tail is None or self.tail is self.blocks[-1]
        assert self.base <= self.next_position
        previous = 0
        for block in self.blocks:
            assert previous < block.number(0)
            previous = block.number(block.count - 1)


# -- the weight that an entry adds to its block, which ``stream-node-max-bytes`` limits -------


_ID_BYTES: Final = 40  # of a fragment: the ID and the framing


def entry_weight(fields_bytes: int, words: int) -> int:
    """The weight that an entry adds to its block.

    ``fields_bytes`` is the length of ``*2n $field $value ...`` in its fragment, ``words`` is their
    2n. The weight is roughly the size in a Redis node: two bytes of framing for the six of a word
    on the wire. If there are several fields, a node stores the names, half of the bytes, once for
    all its entries.
    """
    return fields_bytes - 4 if words == 2 else (fields_bytes + 4 - 4 * words) >> 1


def fragments_bytes(weight: int, count: int) -> int:
    """An estimate of the bytes in the fragments of so many entries with this weight.

    The real size may be twice as large if entries have several fields with long names.
    """
    return weight + count * _ID_BYTES
