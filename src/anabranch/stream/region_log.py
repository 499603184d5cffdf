"""One region's entries of one stream: blocks in a sorted container, newest at the end.

A region adds only to its own log and may remove from all of them. IDs and positions ascend
within a log, so finding is bisection: first the block (by its first ID), then the entry.

*Positions* number the entries a region ever added to the key; they are never used twice and
survive deletion, trimming and rewriting.
"""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedDict

from anabranch.stream.block import Block

__all__ = ["RegionLog", "Span"]

Span = tuple[Block, int, int]
"""Live entries ``[low, high)`` of one block."""


class RegionLog:
    """The entries that one region added, in ID order."""

    __slots__ = ("blocks", "length", "next_position", "tail")

    def __init__(self, first_position: int = 0) -> None:
        self.blocks: SortedDict[int, Block] = SortedDict()
        self.tail: Block | None = None
        self.length = 0
        self.next_position = first_position

    # -- adding -------------------------------------------------------------------------------

    def append(self, entry_id: int, fragment: bytes, weight: int, opens: bool) -> None:
        """Add the newest entry; ``opens`` starts a new block (the node limits were reached).

        Runs once per entry ever added, so it works on the block itself instead of calling it.
        """
        tail = self.tail
        position = self.next_position
        if opens or tail is None:
            if tail is not None:
                tail.is_open = False
            tail = self.tail = self.blocks[entry_id] = Block(entry_id, position)
        elif tail.positions is not None:
            tail.positions.append(position - tail.first_position)
        tail.parts.append(fragment)  # type: ignore[union-attr]  # the tail is open
        tail.ids.append(entry_id)  # type: ignore[union-attr]
        tail.weight += weight
        self.next_position = position + 1
        self.length += 1

    # -- finding ------------------------------------------------------------------------------

    def _block_index(self, entry_id: int) -> int:
        """Index of the block that would hold ``entry_id``; -1 when it lies before the first."""
        tail = self.tail
        if tail is not None and entry_id >= tail.first_id:
            return len(self.blocks) - 1
        return self.blocks.bisect_right(entry_id) - 1

    def find(self, entry_id: int) -> tuple[Block, int] | None:
        """The live entry with this ID, or None; O(log n)."""
        tail = self.tail
        if tail is None:
            return None
        if entry_id >= tail.first_id:
            block = tail
        else:
            index = self.blocks.bisect_right(entry_id) - 1
            if index < 0:
                return None
            block = self.blocks.peekitem(index)[1]
        index = block.find(entry_id)
        return None if index < 0 else (block, index)

    @property
    def first_id(self) -> int:
        """ID of the oldest live entry, 0 when there is none."""
        if self.tail is None:
            return 0
        block: Block = self.blocks.peekitem(0)[1]
        return block.ids[block.first_live()] if block.dead else block.ids[0]

    @property
    def last_id(self) -> int:
        """ID of the newest live entry, 0 when there is none."""
        block = self.tail
        if block is None:
            return 0
        return block.ids[block.last_live()] if block.dead else block.ids[-1]

    def spans(self, start: int, end: int, limit: int = -1) -> Iterator[Span]:
        """Live entries with ``start <= ID <= end``, ascending, at most ``limit`` (-1: all)."""
        tail = self.tail
        if tail is None or limit == 0:
            return
        if start >= tail.first_id:  # the common read: near the newest entries
            yield from _block_spans(tail, start, end, limit)
            return
        blocks = self.blocks
        index = max(blocks.bisect_right(start) - 1, 0)
        for key in blocks.islice(index):
            if key > end:
                return
            block = blocks[key]
            dead = block.dead
            low = block.index_from(start) if key < start else 0
            high = len(block.ids)
            last = block.ids[-1] > end
            if last:
                high = block.index_after(end)
            if not dead:
                if low < high:
                    if 0 <= limit <= high - low:
                        yield block, low, low + limit
                        return
                    limit -= high - low if limit > 0 else 0
                    yield block, low, high
            else:
                for first, stop in block.runs(low, high):
                    if 0 <= limit <= stop - first:
                        yield block, first, first + limit
                        return
                    limit -= stop - first if limit > 0 else 0
                    yield block, first, stop
            if last:
                return

    def spans_reversed(self, start: int, end: int, limit: int = -1) -> Iterator[Span]:
        """The same entries from the newest; each span is still ascending inside."""
        if self.tail is None or limit == 0:
            return
        blocks = self.blocks
        index = self._block_index(end)
        while index >= 0:
            key, block = blocks.peekitem(index)
            low = block.index_from(start) if key < start else 0
            high = block.index_after(end) if block.ids[-1] > end else len(block.ids)
            for first, stop in reversed(list(block.runs(low, high))):
                if 0 <= limit <= stop - first:
                    yield block, stop - limit, stop
                    return
                limit -= stop - first if limit > 0 else 0
                yield block, first, stop
            if key <= start:
                return
            index -= 1

    def live_blocks(self) -> Iterator[Block]:
        """All blocks from the oldest."""
        yield from self.blocks.values()

    # -- removing -----------------------------------------------------------------------------

    def remove(self, block: Block, index: int) -> None:
        """Remove one live entry that :meth:`find` or :meth:`spans` named."""
        block.kill(index)
        self.length -= 1
        if not block.live:
            self._drop(block)

    def drop_oldest_block(self) -> Block:
        """Remove the oldest block with all its entries; O(log n)."""
        block: Block = self.blocks.popitem(0)[1]
        self.length -= block.live
        if not self.blocks:
            self.tail = None
        return block

    def _drop(self, block: Block) -> None:
        del self.blocks[block.first_id]
        if block is self.tail:
            self.tail = self.blocks.peekitem(-1)[1] if self.blocks else None
            if self.tail is not None:  # the dropped block's positions must not be used again
                self.tail.reopen()
                self.tail.keep_positions()

    def reopen_at(self, last_id: int) -> None:
        """Make room for IDs above ``last_id``, which XSETID may have lowered.

        Trimming can leave dead slots above the new last-generated-id; bisection needs ascending
        IDs, so those slots must go before something is appended behind them.
        """
        tail = self.tail
        if tail is not None and tail.ids[-1] > last_id:
            tail.forget_dead()

    def copy(self) -> RegionLog:
        """An independent copy."""
        other = RegionLog(self.next_position)
        for key, block in self.blocks.items():
            other.tail = other.blocks[key] = block.copy()
        other.length = self.length
        return other

    def full_blocks(self) -> Iterator[Block]:
        """Blocks to which nothing will be added."""
        return (block for block in self.blocks.values() if not block.is_open)

    def check(self) -> None:
        """Assert every invariant of a region log."""
        previous = -1
        live = 0
        for key, block in self.blocks.items():
            block.check()
            assert block.is_open == (block is self.tail)
            assert key == block.first_id
            assert block.live > 0
            assert previous < block.ids[0]
            previous = block.ids[-1]
            live += block.live
        assert live == self.length
        assert (self.tail is None) == (not self.blocks)
        assert self.tail is None or self.tail is self.blocks.peekitem(-1)[1]


def _block_spans(block: Block, start: int, end: int, limit: int) -> Iterator[Span]:
    """The live stretches of one block between two IDs, at most ``limit`` entries."""
    ids = block.ids
    low = block.index_from(start)
    high = len(ids) if ids[-1] <= end else block.index_after(end)
    for first, stop in block.runs(low, high):
        if 0 <= limit <= stop - first:
            yield block, first, first + limit
            return
        limit -= stop - first if limit > 0 else 0
        yield block, first, stop
