"""The pending entries of one consumer group: who has them, and since when.

Beside the entries only the lists of their consumers are changed here. Released (NACKed) entries are
pending without a consumer; ``released`` keeps the order of their release. ``by_age`` orders the
other pending entries by (delivery time, last update). It is built for the first ``XREADGROUP ...
CLAIM`` of a group, some entries at a time (:meth:`GroupPending.sort_some`), and kept up to date
afterwards, so groups without claims do not pay for it.
``ghosts`` keeps CLAIM from walking the same deleted entries each time, and ``released_living`` does
so for released ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, cast

from sortedcontainers import SortedList

from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.groups.ordering import Ordering
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import Consumer, PendingList, first_of, walk

MAX_DELIVERIES = (1 << 63) - 1
"""Delivery counts saturate here; XNACK FATAL sets it."""

Aged = tuple[int, int, PendingEntry]
"""``(delivery ms, stamp, entry)``"""

_ENTRY: Final = PendingEntry  # a name of an interpreted module is looked up each time

_CONSUMER = attrgetter("consumer")
_ENTRY_ID = attrgetter("entry_id")


class GroupPending:
    """Pending entries by replica ID, by age, and in the order of their release."""

    def __init__(self) -> None:
        self.lists: dict[int, PendingList] = defaultdict(PendingList)  # by replica ID
        self.released: dict[PendingEntry, None] = {}
        self.by_age: SortedList[Aged] | None = None
        self._aged_below = MIN_ID  # entries with lower IDs are in ``by_age``
        self.ghosts: Aged | None = None  # no entry before it in ``by_age`` exists in the stream
        # Released entries that may exist in the stream
        self.released_living: dict[PendingEntry, None] | None = None
        self.stamp = 0
        self.order: Ordering | None = None  # with a policy, from when it is first asked on
        # Counts of this process; not part of the state:
        self.acknowledgements = 0
        self.redeliveries = 0
        self.releases = 0

    # -- looking ------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """All pending entries, released ones included."""
        count = 0
        for pending in self.lists.values():
            count += len(pending.entries)
        return count

    def find(self, entry_id: int) -> PendingEntry | None:
        """The pending entry with this ID, or None."""
        for pending in self.lists.values():
            entry = pending.entries.get(entry_id)
            if entry is not None:
                return entry
        return None

    def with_id(self, entry_id: int) -> list[tuple[int, PendingEntry]]:
        """``(replica_id, pending entry)`` of all with this ID: concurrent writers may share one."""
        return [
            (replica_id, entry)
            for replica_id, pending in self.lists.items()
            if (entry := pending.entries.get(entry_id)) is not None
        ]

    def with_ids(self, ids: Iterable[int]) -> list[PendingEntry]:
        """The pending entries with one of these IDs."""
        return [entry for entry_id in ids for _, entry in self.with_id(entry_id)]

    def among(self, ids: Sequence[int]) -> list[int]:
        """Those of these IDs that are pending, each once, in the given order."""
        if len(ids) == 1:
            return list(ids) if self.find(ids[0]) is not None else []
        distinct = dict.fromkeys(ids)
        for pending in self.lists.values():
            if distinct.keys() <= pending.entries.keys():  # nearly always
                return list(distinct)
        lists = list(self.lists.values())
        return [
            entry_id for entry_id in distinct if any(entry_id in each.entries for each in lists)
        ]

    def reaches(self, region: int, entry_id: int) -> bool:
        """Whether an entry with this ID or a greater one may be pending."""
        pending = self.lists.get(region)
        return pending is not None and not pending.is_below(entry_id)

    def between(self, start: int, end: int) -> Iterator[PendingEntry]:
        """Pending entries by ID, released ones included."""
        return walk(self.lists, start, end)

    def first(self) -> PendingEntry | None:
        """The pending entry with the smallest ID."""
        found = [entry for each in self.lists.values() if (entry := each.first())]
        return min(found, key=lambda entry: entry.entry_id, default=None)

    def last(self) -> PendingEntry | None:
        """The pending entry with the greatest ID."""
        found = [entry for each in self.lists.values() if (entry := each.last())]
        return max(found, key=lambda entry: entry.entry_id, default=None)

    # -- changes ------------------------------------------------------------------------------

    def deliver(
        self,
        region: int,
        ids: Sequence[int],
        consumer: Consumer,
        now_ms: int,
        numbers: Sequence[int] = (),
    ) -> None:
        """Make entries pending for a consumer, delivered once, now.

        An entry that was pending already (after SETID backwards) goes to this consumer, with one
        delivery. ``numbers`` are those of the entries, none in a region alone.
        """
        pending = self.lists.get(region)
        if pending is None:
            pending = self.lists[region] = PendingList()
        given = list(ids)
        if given and not pending.is_below(given[0]):
            known = pending.entries
            self.remove(region, [entry_id for entry_id in given if entry_id in known])
        own = consumer.pending.get(region)
        if own is None:
            own = consumer.pending[region] = PendingList()
        stamp = self.stamp
        self.stamp = stamp + len(given)
        fresh = [_ENTRY(given[at], consumer, now_ms, 1, stamp + at) for at in range(len(given))]
        pending.extend(given, fresh)
        own.extend(given, fresh)
        if numbers:
            for entry, number in zip(fresh, numbers, strict=True):
                entry.number = number
        if self.by_age is not None:
            below = self._aged_below
            aged = [(now_ms, each.stamp, each) for each in fresh if each.entry_id < below]
            self.by_age.update(aged)
            self._rewind(now_ms)
        if self.order is not None:
            self.order.added(region, fresh)

    def acknowledge(self, ids: Sequence[int]) -> int:
        """Remove pending entries, owned or released; returns how many there were."""
        count = 0
        for region in self.lists:
            count += self.remove(region, ids)
        self.acknowledgements += count
        return count

    def remove(self, region: int, ids: Sequence[int]) -> int:
        """Remove those of these entries that are pending for a replica ID; returns their count."""
        pending = self.lists[region]
        if len(ids) == 1:
            entry = pending.pop(ids[0])
            if entry is None:
                return 0
            self._detach(region, entry)
            if self.order is not None:
                self.order.removed(entry)
            return 1
        gone = pending.pop_all(ids)
        if self.order is not None:
            for entry in gone:
                self.order.removed(entry)
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
        pending = self.lists[region]
        entry = pending.get(entry_id)
        stamp = self.stamp
        self.stamp = stamp + 1
        if entry is None:
            entry = PendingEntry(entry_id, None, delivery_ms, count, stamp)
            pending.add(entry)
            if self.order is not None:
                self.order.added(region, [entry])
            entry.consumer = consumer
        else:
            if consumer is None:
                self.releases += 1
            elif count > entry.delivery_count:
                self.redeliveries += 1
            pending.will_change(entry)
            if self.order is not None:
                self.order.leaves(entry)
            stays = entry.consumer is consumer and consumer is not None and self.by_age is None
            if stays:
                assert consumer is not None
                consumer.pending[region].will_change(entry)
            else:
                self._detach(region, entry)
            entry.delivery_ms = delivery_ms
            entry.delivery_count = count
            entry.stamp = stamp
            if not stays:
                entry.consumer = consumer
            if self.order is not None:
                self.order.comes(entry)
            if stays:  # in both lists at its place, as when a consumer reads its history
                return entry
        if consumer is None:
            self.released[entry] = None
            if self.released_living is not None:
                self.released_living[entry] = None
        else:
            own = consumer.pending.get(region)
            if own is None:
                own = consumer.pending[region] = PendingList()
            own.add(entry)
            if self.by_age is not None and entry_id < self._aged_below:
                self.by_age.add((delivery_ms, stamp, entry))
                self._rewind(delivery_ms)
        return entry

    def adopt(
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
            self.lists[region].add(entry)
            consumer = cast("Consumer | None", entry.consumer)
            if consumer is not None:
                own = consumer.pending.get(region)
                if own is None:
                    own = consumer.pending[region] = PendingList()
                own.add(entry)
        self.by_age = self.released_living = None  # made again when somebody claims

    def remove_owned(self, consumer: Consumer) -> None:
        """Remove all entries of a consumer."""
        # By region: where several write, another consumer may hold an entry with the same ID.
        for region, own in consumer.pending.items():
            gone = self.lists[region].pop_all(own.entries)
            if self.order is not None:
                for entry in gone:
                    self.order.removed(entry)
            for entry in gone:
                self._leave_ages(entry)
        consumer.pending.clear()

    def _detach(self, region: int, entry: PendingEntry) -> None:
        """Remove an entry from everything but the list of the group."""
        consumer = cast("Consumer | None", entry.consumer)
        if consumer is None:
            del self.released[entry]
            if self.released_living is not None:
                self.released_living.pop(entry, None)
            return
        consumer.pending[region].pop(entry.entry_id)
        self._leave_ages(entry)

    def _leave_ages(self, entry: PendingEntry) -> None:
        """An entry changes its consumer, or is not pending any more."""
        if self.by_age is not None and entry.entry_id < self._aged_below:
            self.by_age.remove((entry.delivery_ms, entry.stamp, entry))

    def _rewind(self, delivery_ms: int) -> None:
        """Call this after each addition to ``by_age``: the clock and XCLAIM may go back."""
        if self.ghosts is not None and delivery_ms < self.ghosts[0]:
            self.ghosts = None

    # -- in other orders ----------------------------------------------------------------------

    @property
    def is_sorted(self) -> bool:
        """Whether all entries are sorted by their age."""
        return self.by_age is not None and self._aged_below > MAX_ID

    def sort_some(self, most: int) -> bool:
        """Sort so many entries more by their age; returns whether all of them are sorted."""
        if self.by_age is None:
            self.by_age = SortedList()
            self._aged_below = MIN_ID
            self.ghosts = None
        if self._aged_below <= MAX_ID:
            some = first_of(self.lists, self._aged_below, MAX_ID, most)
            aged = [
                (each.delivery_ms, each.stamp, each) for each in some if each.consumer is not None
            ]
            self.by_age.update(aged)
            self._aged_below = MAX_ID + 1 if len(some) < most else some[-1].entry_id + 1
        return self.is_sorted

    def oldest_first(self) -> Iterator[Aged]:
        """Pending entries that have a consumer, the oldest first, without known ghosts.

        It sorts what is not sorted yet (:meth:`sort_some`), which may take long.
        """
        self.sort_some(self.count + 1)
        assert self.by_age is not None
        return self.by_age.irange(self.ghosts)

    def released_first(self) -> dict[PendingEntry, None]:
        """Released entries, the first released one first; the caller may drop ghosts."""
        if self.released_living is None:
            self.released_living = self.released.copy()
        return self.released_living

    def forget_ghosts(self) -> None:
        """Deleted entries may exist again."""
        self.ghosts = self.released_living = None
        if self.order is not None:
            self.order.begin(self.lists)

    def region_of(self, entry: PendingEntry) -> int:
        """The region in whose list an entry is pending."""
        entry_id = entry.entry_id
        for region, pending in self.lists.items():
            if pending.entries.get(entry_id) is entry:
                return region
        raise AssertionError("the entry is pending")

    def copied(self, consumers: dict[bytes, Consumer]) -> GroupPending:
        """An independent copy, whose entries go to consumers of the same names."""
        other = GroupPending()
        for region, pending in self.lists.items():
            copies = [each.copy() for each in pending.between(MIN_ID, MAX_ID)]
            other.lists[region].extend(list(map(_ENTRY_ID, copies)), copies)
            own: dict[bytes, list[PendingEntry]] = defaultdict(list)
            for entry in copies:
                if entry.consumer is not None:
                    own[entry.consumer.name].append(entry)
                    entry.consumer = consumers[entry.consumer.name]
            for name, entries in own.items():
                mine = consumers[name].pending.setdefault(region, PendingList())
                mine.extend(list(map(_ENTRY_ID, entries)), entries)
        other.released = {
            other.lists[self.region_of(each)].entries[each.entry_id]: None for each in self.released
        }
        other.stamp = self.stamp
        return other

    def check(self, consumers: dict[bytes, Consumer]) -> None:
        """Assert every invariant of the pending entries and of the lists of the consumers."""
        for pending in self.lists.values():
            pending.check()
        owned: dict[bytes, set[PendingEntry]] = {name: set() for name in consumers}
        released = set()
        for entry in self.between(MIN_ID, MAX_ID):
            if entry.consumer is None:
                released.add(entry)
            else:
                assert consumers[entry.consumer.name] is entry.consumer
                owned[entry.consumer.name].add(entry)
        assert released == set(self.released)
        assert released.issuperset(self.released_living or ())
        for name, consumer in consumers.items():
            for own in consumer.pending.values():
                own.check()
            assert set(consumer.between(MIN_ID, MAX_ID)) == owned[name]
        if self.by_age is not None:
            below = self.between(MIN_ID, self._aged_below - 1)
            aged = [each for each in below if each.consumer is not None]
            assert {each for _, _, each in self.by_age} == set(aged)
            assert len(self.by_age) == len(aged)


def _id_of_row(row: tuple[int, PendingEntry]) -> int:
    return row[1].entry_id


def _leave_consumers(region: int, gone: list[PendingEntry]) -> None:
    """Remove entries from the lists of their consumers, a run of one consumer at a time."""
    for owner, run in groupby(gone, _CONSUMER):
        assert owner is not None
        owner.pending[region].pop_all(map(_ENTRY_ID, run))
