"""The entries of a region log as they were at one moment, while the log may change.

Only the newest block is copied. The others are marked as *shared*: a log that must change a shared
block replaces it by a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anabranch.stream.block import Block, block_index
from anabranch.stream.region_log import RegionLog, Span

_BLOCKS: Final = 200
"""Blocks that are released in one step."""


class FrozenLog:
    """The contents of a region log when this object was made. Release it soon."""

    __slots__ = ("_shared", "blocks")

    def __init__(self, log: RegionLog) -> None:
        self.blocks = log.blocks[:]
        if log.tail is not None:
            self.blocks[-1] = log.tail.copy()
        self._shared: list[Block] = log.blocks[:-1]
        for block in self._shared:
            block.shared += 1

    def spans(self) -> Iterator[Span]:
        """The entries that were live at that moment, ascending."""
        for block in self.blocks:
            for low, high in block.runs(0, block.count):
                yield block, low, high

    def live_number(self, entry_id: int) -> int | None:
        """The number of the live entry with this ID, None if there is none."""
        at = block_index(self.blocks, entry_id)
        if at < 0:
            return None
        block = self.blocks[at]
        index = block.index_from(entry_id)
        if index == block.count or block.ids[index] != entry_id or index in block.dead:
            return None
        return block.number(index)

    def release(self) -> None:
        """Release what was not read."""
        for _ in self.releasing():
            pass

    def releasing(self) -> Iterator[bool]:
        """Release what was not read in short steps; each yields True."""
        while self.blocks:
            for block in self._shared[-_BLOCKS:]:
                block.shared -= 1
            del self._shared[-_BLOCKS:]
            del self.blocks[-_BLOCKS:]
            yield True
