"""The pending entries of one consumer group: their consumers, and since when.

Released (NACKed) entries are pending without a consumer; ``released`` keeps the order of their
release. ``by_age`` orders the other pending entries by (delivery time, last update). It is built by
the first ``XREADGROUP ... CLAIM`` of a group and kept up to date afterwards, so groups without
claims do not pay for it. ``ghosts`` keeps CLAIM from walking the same deleted entries each time,
and ``released_living`` does so for released ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count, groupby, repeat
from operator import attrgetter
from typing import cast

from sortedcontainers import SortedList

from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.pending import Consumer, PendingList, walk
from anabranch.stream.pending_entry import PendingEntry

MAX_DELIVERIES = (1 << 63) - 1
"""Delivery counts saturate here; XNACK FATAL sets it."""

Aged = tuple[int, int, PendingEntry]
"""``(delivery ms, stamp, entry)``"""

_CONSUMER = attrgetter("consumer")
_ENTRY_ID = attrgetter("entry_id")


class GroupPending:
    """Pending entries by replica ID, and consumers by name."""

    __slots__ = (
        "acknowledgements",
        "by_age",
        "consumers",
        "ghosts",
        "pending",
        "redeliveries",
        "released",
        "released_living",
        "releases",
        "stamp",
    )

    def __init__(self) -> None:
        self.pending: dict[int, PendingList] = defaultdict(PendingList)
        self.consumers: dict[bytes, Consumer] = {}
        self.released: dict[PendingEntry, None] = {}
        self.by_age: SortedList[Aged] | None = None
        self.ghosts: Aged | None = None  # no entry before it in ``by_age`` exists in the stream
        # Released entries that may exist in the stream
        self.released_living: dict[PendingEntry, None] | None = None
        self.stamp = 0
        # Counts of this process; not part of the state:
        self.acknowledgements = 0
        self.redeliveries = 0
        self.releases = 0

    # -- consumers ----------------------------------------------------------------------------

    def consumer(self, name: bytes, now_ms: int) -> Consumer:
        """The consumer of this name; it is created if necessary."""
        consumer = self.consumers.get(name)
        if consumer is None:
            consumer = self.consumers[name] = Consumer(name, now_ms)
        return consumer

    def remove_consumer(self, name: bytes) -> int:
        """Remove a consumer and its pending entries; returns the count of these entries."""
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
        count = 0
        for pending in self.pending.values():
            count += len(pending.entries)
        return count

    def find(self, entry_id: int) -> PendingEntry | None:
        """The pending entry with this ID, or None."""
        for pending in self.pending.values():
            entry = pending.entries.get(entry_id)
            if entry is not None:
                return entry
        return None

    def pending_of(self, entry_id: int) -> list[tuple[int, PendingEntry]]:
        """``(replica_id, pending entry)`` of all with this ID: concurrent writers may share one."""
        return [
            (replica_id, entry)
            for replica_id, pending in self.pending.items()
            if (entry := pending.entries.get(entry_id)) is not None
        ]

    def pending_among(self, ids: Sequence[int]) -> list[int]:
        """Those of these IDs that are pending, each once, in the given order."""
        if len(ids) == 1:
            return list(ids) if self.find(ids[0]) is not None else []
        distinct = dict.fromkeys(ids)
        for pending in self.pending.values():
            if distinct.keys() <= pending.entries.keys():  # nearly always
                return list(distinct)
        lists = list(self.pending.values())
        return [
            entry_id for entry_id in distinct if any(entry_id in each.entries for each in lists)
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

        An entry that was pending already (after SETID backwards) goes to this consumer, with one
        delivery.
        """
        pending = self.pending.get(region)
        if pending is None:
            pending = self.pending[region] = PendingList()
        if ids and not pending.is_below(ids[0]):
            known = pending.entries
            self._acknowledge_of(region, [entry_id for entry_id in ids if entry_id in known])
        own = consumer.pending.get(region)
        if own is None:
            own = consumer.pending[region] = PendingList()
        stamp = self.stamp
        self.stamp = stamp + len(ids)
        if len(ids) == 1:
            fresh = [PendingEntry(ids[0], consumer, now_ms, 1, stamp)]
            pending.add(fresh[0])
            own.add(fresh[0])
        else:
            fresh = list(
                map(PendingEntry, ids, repeat(consumer), repeat(now_ms), repeat(1), count(stamp))
            )
            by_id = dict(zip(ids, fresh, strict=True))
            pending.extend(by_id)
            own.extend(by_id)
        if self.by_age is not None:
            self.by_age.update([(now_ms, entry.stamp, entry) for entry in fresh])
            self._rewind(now_ms)

    def acknowledge(self, ids: Sequence[int]) -> int:
        """Remove pending entries, owned or released; returns how many there were."""
        count = 0
        for region in self.pending:
            count += self._acknowledge_of(region, ids)
        self.acknowledgements += count
        return count

    def _acknowledge_of(self, region: int, ids: Sequence[int]) -> int:
        """Do the same for entries of one region."""
        pending = self.pending[region]
        if len(ids) == 1:
            entry = pending.pop(ids[0])
            if entry is None:
                return 0
            self._detach(region, entry)
            return 1
        gone = pending.pop_all(ids)
        if self.by_age is None and not self.released:
            owners = list(map(_CONSUMER, gone))
            if owners and owners.count(owners[0]) == len(owners):  # nearly always
                owners[0].pending[region].pop_all(ids)
            else:
                _leave_consumers(region, gone)
        else:
            for entry in gone:
                self._detach(region, entry)
        return len(gone)

    def assign(
        self, region: int, entry_id: int, consumer: Consumer | None, delivery_ms: int, count: int
    ) -> PendingEntry:
        """Assign a pending entry to a consumer (None releases it), with time and count.

        The entry is created if necessary.
        """
        pending = self.pending[region]
        entry = pending.get(entry_id)
        stamp = self.stamp
        self.stamp = stamp + 1
        if entry is None:
            entry = PendingEntry(entry_id, None, delivery_ms, count, stamp)
            pending.add(entry)
        else:
            if consumer is None:
                self.releases += 1
            elif count > entry.delivery_count:
                self.redeliveries += 1
            pending.will_change(entry)
            stays = entry.consumer is consumer and consumer is not None and self.by_age is None
            if stays:
                assert consumer is not None
                consumer.pending[region].will_change(entry)
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
            if self.released_living is not None:
                self.released_living[entry] = None
        else:
            own = consumer.pending.get(region)
            if own is None:
                own = consumer.pending[region] = PendingList()
            own.add(entry)
            if self.by_age is not None:
                self.by_age.add((delivery_ms, stamp, entry))
                self._rewind(delivery_ms)
        return entry

    def adopt_pending(
        self, rows: Sequence[tuple[int, int, int, int, int, int]], owners: list[Consumer | None]
    ) -> None:
        """Continue with the pending entries of another stream's group; none is pending here.

        A row is ``(entry ID, region, number, index in owners, delivery ms, delivery count)``.
        """
        stamp = self.stamp
        self.stamp = stamp + len(rows)
        fresh: list[tuple[int, PendingEntry]] = []
        for entry_id, region, number, owner, delivery_ms, deliveries in rows:
            consumer = owners[owner]
            entry = PendingEntry(entry_id, consumer, delivery_ms, deliveries, stamp, number)
            stamp += 1
            if consumer is None:
                self.released[entry] = None
            fresh.append((region, entry))
        fresh.sort(key=_id_of_row)
        for region, entry in fresh:
            self.pending[region].add(entry)
            consumer = cast("Consumer | None", entry.consumer)
            if consumer is not None:
                own = consumer.pending.get(region)
                if own is None:
                    own = consumer.pending[region] = PendingList()
                own.add(entry)
        self.by_age = self.released_living = None  # made again when somebody claims

    def _detach(self, region: int, entry: PendingEntry) -> None:
        """Remove an entry from everything but the list of the group."""
        consumer = cast("Consumer | None", entry.consumer)
        if consumer is None:
            del self.released[entry]
            if self.released_living is not None:
                self.released_living.pop(entry, None)
            return
        consumer.pending[region].pop(entry.entry_id)
        if self.by_age is not None:
            self.by_age.remove((entry.delivery_ms, entry.stamp, entry))

    def _rewind(self, delivery_ms: int) -> None:
        """Call this behind each addition to ``by_age``: the clock and XCLAIM may go back."""
        if self.ghosts is not None and delivery_ms < self.ghosts[0]:
            self.ghosts = None

    def oldest_first(self) -> Iterator[Aged]:
        """Pending entries that have a consumer, the oldest first, without known ghosts."""
        if self.by_age is None:
            self.by_age = SortedList(
                (entry.delivery_ms, entry.stamp, entry)
                for entry in self.between(MIN_ID, MAX_ID)
                if entry.consumer is not None
            )
            self.ghosts = None
        return self.by_age.irange(self.ghosts)

    def released_first(self) -> dict[PendingEntry, None]:
        """Released entries, the first released one first; the caller may drop ghosts."""
        if self.released_living is None:
            self.released_living = self.released.copy()
        return self.released_living

    def forget_ghosts(self) -> None:
        """Deleted entries may exist again."""
        self.ghosts = self.released_living = None

    def region_of(self, entry: PendingEntry) -> int:
        """The region in whose list an entry is pending."""
        entry_id = entry.entry_id
        for region, pending in self.pending.items():
            if pending.entries.get(entry_id) is entry:
                return region
        raise AssertionError("the entry is pending")

    def check(self) -> None:
        """Assert every invariant of the pending entries."""
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
        assert released.issuperset(self.released_living or ())
        for name, consumer in self.consumers.items():
            for own in consumer.pending.values():
                own.check()
            assert set(consumer.between(MIN_ID, MAX_ID)) == owned[name]
        if self.by_age is not None:
            assert len(self.by_age) == self.pending_count - len(self.released)


def _id_of_row(row: tuple[int, PendingEntry]) -> int:
    return row[1].entry_id


def _leave_consumers(region: int, gone: list[PendingEntry]) -> None:
    """Remove entries from the lists of their consumers, a run of one consumer at a time."""
    for owner, run in groupby(gone, _CONSUMER):
        assert owner is not None
        owner.pending[region].pop_all(map(_ENTRY_ID, run))
