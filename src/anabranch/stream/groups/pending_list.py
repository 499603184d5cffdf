"""The pending entries list (PEL) of one group for one writing region.

Common path: entries are delivered in ascending order and acknowledged near the front; both are a
dictionary operation plus a list append. Order is kept lazily: ``_order`` lists the IDs ascending
and may hold IDs that have left; they are skipped, and swept when they outnumber the rest, some at
each removal. The first ``_gone`` of them have left for certain. IDs that come out of order (XCLAIM,
SETID backwards) are in ``_late`` until somebody reads in order: then a few cost a memory move each,
and many cost one pass over all.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from operator import lt
from typing import Protocol

from anabranch.stream.entry_id import MAX_ID, MIN_ID, equal_id_rank
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.ranges import Ranges

_SWEEP_MIN = 64
_SWEEP_STEP = 250  # each removal visits at least so many IDs: some ten microseconds
_PIECE = 256  # IDs looked up together
_FEW_GONE = 8  # a search steps over so many IDs that have left, and drops more of them
_GONE_SHARE = 8192  # and one for so many in the list, which all move
_SEARCH = 8  # a search takes the time of so many entries in a walk over all
_FEW_LATE = 16  # so many memory moves take less time than one pass over a long list
_LATE_MAX = 1000  # and one for each ``_LATE_SHARE`` others: then a pass is cheap for each of them
_LATE_SHARE = 64


class View(Protocol):
    """Reads a list as it was at some moment, while the list changes."""

    def keep(self, entry_id: int, entry: PendingEntry | None) -> None:
        """Called before the entry with an ID changes; None if there is no such entry."""


class PendingList:
    """Pending entries by ID, in order."""

    def __init__(self) -> None:
        self.entries: dict[int, PendingEntry] = {}
        self.frozen: tuple[View, ...] = ()  # read the list as it was at some moment
        self._order: list[int] = []
        self._late: list[int] = []
        self._gone = 0
        self._unswept = 0  # where a sweep in progress continues downwards; 0: no sweep

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, entry_id: int) -> bool:
        return entry_id in self.entries

    def get(self, entry_id: int) -> PendingEntry | None:
        """The pending entry with this ID, or None; O(1)."""
        return self.entries.get(entry_id)

    def is_below(self, entry_id: int) -> bool:
        """Whether every pending ID is lower; False if that takes more than a look to know."""
        order = self._order
        return not order or order[-1] < entry_id

    def add(self, entry: PendingEntry) -> None:
        """Insert an entry whose ID is not pending; O(1)."""
        entry_id = entry.entry_id
        for frozen in self.frozen:
            frozen.keep(entry_id, None)
        self.entries[entry_id] = entry
        order = self._order
        if not order or entry_id > order[-1]:
            order.append(entry_id)
        else:
            late = self._late
            late.append(entry_id)
            if len(late) > _LATE_MAX + len(order) // _LATE_SHARE:
                self._ordered()

    def _ordered(self) -> list[int]:
        """The IDs of all entries in order, and some that have left."""
        order = self._order
        if self._late:
            late = list(filter(self.entries.__contains__, self._late))
            self._late = []
            if late:
                self._gone = min(self._gone, bisect_left(order, min(late)))
            known = len(order)
            for entry_id in late:
                # An earlier entry with this ID may have left it there.
                index = bisect_left(order, entry_id, 0, known)
                if index == known or order[index] != entry_id:
                    if len(late) > _FEW_LATE:
                        order.append(entry_id)
                    else:
                        order.insert(index, entry_id)
                        known += 1
            if len(order) > known:
                order[known:] = dict.fromkeys(order[known:])
                order.sort()  # takes linear time if the late ones ascend
        return order

    def will_change(self, entry: PendingEntry) -> None:
        """Call this before an entry of this list is changed in place."""
        for frozen in self.frozen:
            frozen.keep(entry.entry_id, entry)

    def extend(self, ids: list[int], fresh: list[PendingEntry]) -> None:
        """Insert entries with these IDs, which ascend; none of them is pending."""
        if not ids:
            return
        if not self.is_below(ids[0]):
            for entry in fresh:
                self.add(entry)
            return
        for frozen in self.frozen:  # its newest entries may have left
            for entry_id in ids:
                frozen.keep(entry_id, None)
        entries = self.entries
        for at in range(len(ids)):  # machine code needs no tuple for it, and no third dictionary
            entries[ids[at]] = fresh[at]
        self._order.extend(ids)

    def pop(self, entry_id: int) -> PendingEntry | None:
        """Remove and return the entry with this ID, or None; O(1) amortised."""
        entry = self.entries.pop(entry_id, None)
        if entry is not None:
            for frozen in self.frozen:
                frozen.keep(entry_id, entry)
            if self._unswept or len(self._order) > 2 * len(self.entries) + _SWEEP_MIN:
                self._sweep(_SWEEP_STEP)
        return entry

    def pop_all(self, ids: Iterable[int]) -> list[PendingEntry]:
        """Remove the entries with these IDs; returns those that were found."""
        gone = list(filter(None, map(self.entries.pop, ids, repeat(None))))
        for frozen in self.frozen:
            for entry in gone:
                frozen.keep(entry.entry_id, entry)
        if self._unswept or len(self._order) > 2 * len(self.entries) + _SWEEP_MIN:
            self._sweep(_SWEEP_STEP + len(gone))
        return gone

    def _sweep(self, most: int) -> None:
        """Drop IDs of removed entries, at most so many at a time, from the newest to the oldest."""
        # Late IDs first: the last ID of the order is then still as high as any of them.
        order = self._ordered()
        if not self.entries:
            order.clear()
        high = min(self._unswept or len(order), len(order))
        low = max(high - most, 0)
        order[low:high] = filter(self.entries.__contains__, order[low:high])
        self._unswept = low
        self._gone = min(self._gone, low)

    def shrink(self, count: int) -> None:
        """Release some entries; the list cannot be used any more."""
        for _ in range(min(count, len(self.entries))):
            self.entries.popitem()
        del self._order[len(self.entries) :], self._late[len(self.entries) :]

    def between(self, start: int, end: int) -> Iterator[PendingEntry]:
        """Entries with ``start <= ID <= end``, ascending. The list must not change meanwhile."""
        find = self.entries.get
        order = self._ordered()
        low = bisect_left(order, start, self._gone)
        while low < len(order) and order[low] <= end:
            high = min(low + _PIECE, len(order))
            if order[high - 1] > end:
                high = bisect_right(order, end, low, high)
            yield from filter(None, map(find, order[low:high]))
            low = high

    def first_between(self, start: int, end: int, count: int) -> list[PendingEntry]:
        """The first of these entries, at most so many."""
        entries = self.entries
        order = self._ordered()
        low = self._gone
        if low < len(order) and order[low] < start:
            low = bisect_left(order, start, low)
        high = len(order)
        if order and order[-1] > end:
            high = bisect_right(order, end)
        found: list[PendingEntry] = []
        while low < high and len(found) < count:
            entry = entries.get(order[low])
            if entry is not None:
                found.append(entry)
            low += 1
        return found

    def some_between(self, start: int, end: int, count: int) -> tuple[list[PendingEntry], int]:
        """The first entries of the interval, at most ``count``, and the last ID covered."""
        order = self._ordered()
        low = bisect_left(order, start)
        ids = order[low : low + count]
        upto = end if len(ids) < count else min(ids[-1], end)
        if ids and ids[-1] > end:
            del ids[bisect_right(ids, end) :]
        return list(filter(None, map(self.entries.get, ids))), upto

    def numbered(self, numbers: Ranges) -> list[PendingEntry]:
        """The entries with these numbers, where several regions write: they ascend as IDs do."""
        first = self.first()
        if first is None or not numbers.highs or first.number > numbers.highs[-1]:
            return []  # nearly always: what is acknowledged in order
        if len(numbers) * _SEARCH > len(self.entries):
            return [each for each in self.entries.values() if each.number in numbers]
        found: list[PendingEntry] = []
        for low, high in numbers:
            start = self._id_above(low)
            if start is None:
                break
            for entry in self.between(start, MAX_ID):
                if entry.number > high:
                    break
                found.append(entry)
        return found

    def _id_above(self, number: int) -> int | None:
        """The ID of the first entry with a greater number, or None."""
        order, entries = self._ordered(), self.entries
        few = _FEW_GONE + len(order) // _GONE_SHARE
        low, high = self._gone, len(order)
        while low < high:
            middle = index = (low + high) // 2
            while index < high and order[index] not in entries:
                index += 1
            if index - middle > few:  # otherwise each search steps over them
                del order[middle:index]
                high -= index - middle
                index = middle
            if index < high and entries[order[index]].number <= number:
                low = index + 1
            else:
                high = middle
        index = low
        while index < len(order) and order[index] not in entries:
            index += 1
        if index - low > few:
            del order[low:index]
            index = low
        return order[index] if index < len(order) else None

    def first(self) -> PendingEntry | None:
        """The entry with the smallest ID; O(1) amortised."""
        order, entries = self._ordered(), self.entries
        if not entries:
            return None
        gone = self._gone
        while (entry := entries.get(order[gone])) is None:
            gone += 1
        self._gone = gone
        return entry

    def last(self) -> PendingEntry | None:
        """The entry with the greatest ID."""
        order = self._ordered()
        entries = self.entries
        if not entries:
            return None
        while order[-1] not in entries:
            order.pop()
        return entries[order[-1]]

    def check(self) -> None:
        """Assert every invariant of a pending list."""
        order = self._ordered()
        assert all(map(lt, order, order[1:]))
        assert self._gone <= len(order)
        assert not any(entry_id in self.entries for entry_id in order[: self._gone])
        assert set(self.entries) <= set(order)
        assert all(entry.entry_id == key for key, entry in self.entries.items())


class Consumer:
    """One reader of a group, with wall-clock times in ms; ``active_ms`` -1: never got an entry."""

    def __init__(self, name: bytes, seen_ms: int, active_ms: int = -1) -> None:
        self.name = name
        self.seen_ms = seen_ms
        self.active_ms = active_ms
        self.pending: dict[int, PendingList] = {}

    @property
    def pending_count(self) -> int:
        """The count of entries that this consumer must acknowledge."""
        count = 0
        for pending in self.pending.values():
            count += len(pending.entries)
        return count

    def between(self, start: int, end: int) -> Iterator[PendingEntry]:
        """The pending entries of this consumer by ID."""
        return walk(self.pending, start, end)

    def first(self, count: int) -> list[PendingEntry]:
        """So many of them, the lowest IDs; who removes them each time is not slowed down by it."""
        for pending in self.pending.values():
            pending.first()  # forgets the IDs of those that were removed before it
        return list(islice(self.between(MIN_ID, MAX_ID), count))


def ranked(lists: dict[int, PendingList]) -> list[PendingList]:
    """Some lists in the order of entries with equal IDs."""
    if len(lists) == 1:
        return list(lists.values())
    return [lists[replica_id] for replica_id in sorted(lists, key=equal_id_rank)]


def first_of(lists: dict[int, PendingList], start: int, end: int, count: int) -> list[PendingEntry]:
    """The first entries of an interval, by ID; more than ``count`` rather than part those of an ID.

    Who asks for more goes on after the last ID.
    """
    if len(lists) == 1:
        (pending,) = lists.values()
        return pending.first_between(start, end, count)
    found: list[PendingEntry] = []
    for entry in walk(lists, start, end):
        if len(found) >= count and (not found or entry.entry_id != found[-1].entry_id):
            break
        found.append(entry)
    return found


def walk(lists: dict[int, PendingList], start: int, end: int) -> Iterator[PendingEntry]:
    """The entries of some lists within an interval of IDs, by ID, and in order of ``ranked``."""
    walks = [pending.between(start, end) for pending in ranked(lists)]
    if len(walks) == 1:
        return walks[0]
    return heapq.merge(*walks, key=lambda entry: entry.entry_id)
