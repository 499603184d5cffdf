"""A consumer group: cursors and pending entries per writing region, consumers by name.

Progress is a cursor *per writing region*, never one ID: entries of another region may arrive
later with lower IDs, and a group must not miss them. What clients see as ``last-delivered-id`` is
the greatest cursor. With one region this is exactly Redis.

Released (NACKed) entries are pending without an owner; ``released`` keeps their FIFO order.
``by_age`` orders owned pending entries by (delivery time, last update); it is built on the first
``XREADGROUP ... CLAIM`` of a group and kept up to date from then on, so groups that never claim
pay nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from sortedcontainers import SortedList

from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.pending import Consumer, PendingEntry, PendingList, walk
from anabranch.stream.region_log import RegionLog, Span

__all__ = ["LOCAL_REGION", "MAX_DELIVERIES", "Group"]

LOCAL_REGION = 0
"""Region number of a server without Active-Active."""

MAX_DELIVERIES = (1 << 63) - 1
"""Delivery counts saturate here; XNACK FATAL sets it."""


_CONSUMER = attrgetter("consumer")
_ENTRY_ID = attrgetter("entry_id")


class Group:
    """One consumer group of one stream."""

    __slots__ = ("by_age", "consumers", "cursors", "entries_read", "pending", "released", "stamp")

    def __init__(self, start: int, entries_read: int | None) -> None:
        self.cursors: dict[int, int] = {LOCAL_REGION: start}
        self.entries_read = entries_read  # None: unknown
        self.pending: dict[int, PendingList] = {LOCAL_REGION: PendingList()}
        self.consumers: dict[bytes, Consumer] = {}
        self.released: dict[PendingEntry, None] = {}
        self.by_age: SortedList[tuple[int, int, PendingEntry]] | None = None
        self.stamp = 0

    # -- progress -----------------------------------------------------------------------------

    @property
    def last_delivered_id(self) -> int:
        """The greatest cursor: what XINFO reports."""
        return max(self.cursors.values())

    def move_to(self, entry_id: int) -> None:
        """Set every cursor (XGROUP SETID, XCLAIM LASTID)."""
        for region in self.cursors:
            self.cursors[region] = entry_id

    def late(self, logs: Mapping[int, RegionLog]) -> Iterator[tuple[int, Span]]:
        """``(region, span)`` of live entries to be delivered that are not above the last ID.

        Not in the order of their IDs.
        """
        del logs  # one region's entries come in the order of their IDs
        return iter(())

    def passed_over(self, logs: Mapping[int, RegionLog]) -> Iterator[tuple[int, Span]]:
        """The same of live entries that only other regions deliver.

        Nobody has processed them, but here they were given up, or the group was moved behind them.
        """
        del logs
        return iter(())

    # -- consumers ----------------------------------------------------------------------------

    def consumer(self, name: bytes, now_ms: int) -> Consumer:
        """The consumer of this name, created if missing."""
        consumer = self.consumers.get(name)
        if consumer is None:
            consumer = self.consumers[name] = Consumer(name, now_ms)
        return consumer

    def remove_consumer(self, name: bytes) -> int:
        """Forget a consumer and discard its pending entries; returns how many."""
        consumer = self.consumers.pop(name, None)
        if consumer is None:
            return 0
        # By region: where several write, another consumer may hold an entry with the same ID.
        count = 0
        for region, own in consumer.pending.items():
            gone = self.pending[region].pop_all(own.entries)
            count += len(gone)
            if self.by_age is not None:
                for entry in gone:
                    self.by_age.remove((entry.delivery_ms, entry.stamp, entry))
        consumer.pending.clear()
        return count

    # -- the pending entries ------------------------------------------------------------------

    @property
    def pending_count(self) -> int:
        """All pending entries, released ones included."""
        return sum(map(len, self.pending.values()))

    def find(self, entry_id: int) -> PendingEntry | None:
        """The pending entry with this ID, or None."""
        for pending in self.pending.values():
            entry = pending.entries.get(entry_id)
            if entry is not None:
                return entry
        return None

    def pending_among(self, ids: Iterable[int]) -> list[int]:
        """Which of these IDs are pending, each once, in the order given."""
        lists = list(self.pending.values())
        if len(lists) == 1:
            known = lists[0].entries
            return [entry_id for entry_id in dict.fromkeys(ids) if entry_id in known]
        return [
            entry_id
            for entry_id in dict.fromkeys(ids)
            if any(entry_id in pending.entries for pending in lists)
        ]

    def between(self, start: int, end: int) -> Iterator[PendingEntry]:
        """Pending entries by ID, released ones included."""
        return walk(self.pending, start, end)

    def first_pending(self) -> PendingEntry | None:
        """The pending entry with the smallest ID."""
        found = [entry for entry in (p.first() for p in self.pending.values()) if entry]
        return min(found, key=lambda entry: entry.entry_id, default=None)

    def last_pending(self) -> PendingEntry | None:
        """The pending entry with the greatest ID."""
        found = [entry for entry in (p.last() for p in self.pending.values()) if entry]
        return max(found, key=lambda entry: entry.entry_id, default=None)

    def deliver(self, region: int, ids: Sequence[int], consumer: Consumer, now_ms: int) -> None:
        """Make entries pending for a consumer, delivered once, now.

        An entry that was pending already (after SETID backwards) changes hands and starts again
        at one delivery.
        """
        pending = self.pending[region]
        known = pending.entries
        if known and not known.keys().isdisjoint(ids):
            self._acknowledge_of(region, [entry_id for entry_id in ids if entry_id in known])
        own = consumer.pending.get(region)
        if own is None:
            own = consumer.pending[region] = PendingList()
        stamp = self.stamp
        fresh = {
            entry_id: PendingEntry(entry_id, consumer, now_ms, 1, stamp + offset)
            for offset, entry_id in enumerate(ids)
        }
        self.stamp = stamp + len(ids)
        pending.extend(fresh)
        own.extend(fresh)
        if self.by_age is not None:
            self.by_age.update((now_ms, entry.stamp, entry) for entry in fresh.values())

    def acknowledge(self, ids: Sequence[int]) -> int:
        """Remove pending entries, owned or released; returns how many there were."""
        return sum(self._acknowledge_of(region, ids) for region in self.pending)

    def _acknowledge_of(self, region: int, ids: Sequence[int]) -> int:
        """The same for entries of one region."""
        if len(ids) == 1:
            entry = self.pending[region].pop(ids[0])
            if entry is None:
                return 0
            self._detach(region, entry)
            return 1
        gone = self.pending[region].pop_all(ids)
        if self.by_age is None and not self.released:
            _leave_consumers(region, gone)
        else:
            for entry in gone:
                self._detach(region, entry)
        return len(gone)

    def assign(
        self, region: int, entry_id: int, consumer: Consumer | None, delivery_ms: int, count: int
    ) -> PendingEntry:
        """Give a pending entry an owner (None releases it), time and count; creates it if new."""
        pending = self.pending[region]
        entry = pending.get(entry_id)
        stamp = self.stamp
        self.stamp = stamp + 1
        if entry is None:
            entry = PendingEntry(entry_id, None, delivery_ms, count, stamp)
            pending.add(entry)
        else:
            pending.will_change(entry)
            stays = entry.consumer is consumer and consumer is not None and self.by_age is None
            if stays:
                entry.consumer.pending[region].will_change(entry)  # type: ignore[union-attr]
            else:
                self._detach(region, entry)
            entry.delivery_ms = delivery_ms
            entry.delivery_count = count
            entry.stamp = stamp
            if stays:  # in both lists at its place, as when a consumer reads its history
                return entry
        entry.consumer = consumer
        if consumer is None:
            self.released[entry] = None
        else:
            own = consumer.pending.get(region)
            if own is None:
                own = consumer.pending[region] = PendingList()
            own.add(entry)
            if self.by_age is not None:
                self.by_age.add((delivery_ms, stamp, entry))
        return entry

    def _detach(self, region: int, entry: PendingEntry) -> None:
        """Take an entry out of everything but the group's own list."""
        consumer = entry.consumer
        if consumer is None:
            del self.released[entry]
            return
        consumer.pending[region].pop(entry.entry_id)
        if self.by_age is not None:
            self.by_age.remove((entry.delivery_ms, entry.stamp, entry))

    def oldest_first(self) -> SortedList[tuple[int, int, PendingEntry]]:
        """Owned pending entries with (delivery ms, stamp), the longest untouched first."""
        if self.by_age is None:
            self.by_age = SortedList(
                (entry.delivery_ms, entry.stamp, entry)
                for entry in self.between(MIN_ID, MAX_ID)
                if entry.consumer is not None
            )
        return self.by_age

    def region_of(self, entry: PendingEntry) -> int:
        """The region in whose list an entry is pending."""
        entry_id = entry.entry_id
        return next(
            region
            for region, pending in self.pending.items()
            if pending.entries.get(entry_id) is entry
        )

    def copy(self) -> Group:
        """An independent copy with consumers and pending entries."""
        other = Group(0, self.entries_read)
        other.cursors = self.cursors.copy()
        for name, consumer in self.consumers.items():
            other.consumers[name] = Consumer(name, consumer.seen_ms, consumer.active_ms)
        released = set(self.released)
        for region, pending in self.pending.items():
            other.pending[region] = PendingList()
            owned = [entry for entry in pending.entries.values() if entry not in released]
            for entry in sorted(owned, key=lambda entry: entry.stamp):
                assert entry.consumer is not None
                other.assign(
                    region,
                    entry.entry_id,
                    other.consumers[entry.consumer.name],
                    entry.delivery_ms,
                    entry.delivery_count,
                )
        for entry in self.released:
            region = self.region_of(entry)
            other.assign(region, entry.entry_id, None, entry.delivery_ms, entry.delivery_count)
        return other

    def check(self) -> None:
        """Assert every invariant of a group."""
        for pending in self.pending.values():
            pending.check()
        owned: dict[bytes, set[PendingEntry]] = {name: set() for name in self.consumers}
        released = set()
        for entry in self.between(MIN_ID, MAX_ID):
            if entry.consumer is None:
                released.add(entry)
            else:
                assert self.consumers[entry.consumer.name] is entry.consumer
                owned[entry.consumer.name].add(entry)
        assert released == set(self.released)
        for name, consumer in self.consumers.items():
            for own in consumer.pending.values():
                own.check()
            assert set(consumer.between(MIN_ID, MAX_ID)) == owned[name]
        if self.by_age is not None:
            assert len(self.by_age) == self.pending_count - len(self.released)


def _leave_consumers(region: int, gone: list[PendingEntry]) -> None:
    """Take owned entries out of their owners' lists, a run of one owner at a time."""
    for owner, run in groupby(gone, _CONSUMER):
        assert owner is not None
        owner.pending[region].pop_all(map(_ENTRY_ID, run))
