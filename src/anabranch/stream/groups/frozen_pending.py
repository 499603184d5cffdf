"""A pending list as it was at one moment, read in pieces while the list changes.

Making this object takes constant time, because nothing is copied. The list passes each entry to
:meth:`FrozenPending.keep` before it removes or changes the entry, and reports new entries there.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from sortedcontainers import SortedDict

from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import PendingList

_PIECE: Final = 1000
"""The size of a piece: at most so many entries that stayed, and so many that changed."""


class FrozenPending:
    """The contents of a pending list when this object was made. Read or release it soon."""

    __slots__ = ("_end", "_kept", "_list", "_next")

    def __init__(self, pending: PendingList, start: int = MIN_ID, end: int = MAX_ID) -> None:
        """Only entries with ``start <= ID <= end`` are kept."""
        last = pending.last()
        self._list = pending
        self._next = start  # everything below this ID was read
        self._end = -1 if last is None else min(last.entry_id, end)
        self._kept: SortedDict[int, PendingEntry | None] = SortedDict()  # None: was not there
        pending.frozen += (self,)

    def keep(self, entry_id: int, entry: PendingEntry | None) -> None:
        """Keep an entry that the list is about to change; None if no entry has this ID."""
        if self._next <= entry_id <= self._end and entry_id not in self._kept:
            self._kept[entry_id] = None if entry is None else entry.copy()

    def pieces(self) -> Iterator[list[PendingEntry]]:
        """All entries, ascending, in pieces that are not empty.

        Read a piece before the list changes. The list is released at the end, or when the iterator
        is closed.
        """
        try:
            while self._next <= self._end:
                piece = self._next_interval()
                if piece:
                    yield piece
        finally:
            self.release()

    def _next_interval(self) -> list[PendingEntry]:
        """The entries of the next interval of IDs; may be empty."""
        found, upto = self._list.some_between(self._next, self._end, _PIECE)
        kept = list(islice(self._kept.irange(self._next, upto), _PIECE))
        if kept:
            if len(kept) == _PIECE:
                upto = kept[-1]
            entries = {entry.entry_id: entry for entry in found if entry.entry_id <= upto}
            for entry_id in kept:
                entry = self._kept.pop(entry_id)
                if entry is None:
                    entries.pop(entry_id, None)
                else:
                    entries[entry_id] = entry
            found = [entries[entry_id] for entry_id in sorted(entries)]
        self._next = upto + 1
        return found

    def release(self) -> None:
        """Release what was not read."""
        self._list.frozen = tuple(each for each in self._list.frozen if each is not self)
        self._next = self._end + 1
        self._kept.clear()


class FrozenEntries:
    """Several such lists, read as one."""

    __slots__ = ("_frozen",)

    def __init__(self, lists: Iterable[PendingList], start: int, end: int) -> None:
        self._frozen = [FrozenPending(pending, start, end) for pending in lists]

    def pieces(self) -> Iterator[list[PendingEntry]]:
        """All entries, ascending; read a piece before the lists change."""
        if len(self._frozen) == 1:
            yield from self._frozen[0].pieces()
            return
        merged = heapq.merge(*map(_copies, self._frozen), key=_entry_id)
        while piece := list(islice(merged, _PIECE)):
            yield piece

    def release(self) -> None:
        """Release what was not read."""
        for each in self._frozen:
            each.release()


def _copies(frozen: FrozenPending) -> Iterator[PendingEntry]:
    for piece in frozen.pieces():
        yield from [entry.copy() for entry in piece]


def _entry_id(entry: PendingEntry) -> int:
    return entry.entry_id
