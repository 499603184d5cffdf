"""A consumer group of one stream: its consumers, and parts that the package lists.

Methods here concern several parts at once. What concerns one of them is asked of the part itself,
as in ``group.pending.find(entry_id)`` or ``group.progress.lag(stream)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from anabranch.stream import by_number
from anabranch.stream.counters import Counted
from anabranch.stream.groups.home import NOWHERE, GroupHome, HomeEpoch
from anabranch.stream.groups.pending import GroupPending
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import Consumer
from anabranch.stream.groups.policy import Policed
from anabranch.stream.groups.progress import GroupProgress, Logs, Vector
from anabranch.stream.groups.runs import Runs
from anabranch.stream.groups.shared_progress import NOTHING_SHARED_OF_GROUP, SharedProgress
from anabranch.stream.ranges import Ranges
from anabranch.stream.region_log import RegionLog, Span
from anabranch.stream.shared import Dot

LOCAL_REPLICA_ID = 0
"""The replica ID of a region alone."""

NO_REPLICA_ID: Final = 0
"""The replica ID of pending entries that were deleted before their stream was copied here. RESTORE
and COPY bring such entries along, and number them for this group alone."""


class Group:
    """One consumer group; :func:`group_alone` and :func:`group_of_regions` make it.

    ``shared`` is the progress itself where several regions write, otherwise empty.
    """

    def __init__(self, progress: GroupProgress, shared: SharedProgress) -> None:
        self.progress = progress
        self.shared = shared
        self.consumers: dict[bytes, Consumer] = {}
        self.pending = GroupPending()
        self.runs = Runs()
        self.policed: Policed | None = None  # of this process alone; None without policies
        self.home: GroupHome | None = None  # None: no region has moved, taken or handed it over

    # -- home ---------------------------------------------------------------------------------

    @property
    def present_home(self) -> HomeEpoch | None:
        """Where the group is delivered, as far as it is known; None: in every region."""
        policed = self.policed
        if policed is None or not policed.policy.home:
            return None
        first = policed.policy.home
        return HomeEpoch(0, first) if self.home is None else self.home.current(first)

    def is_away(self, region: int) -> bool:
        """Whether a region must not deliver: its home is another one, or has not begun here."""
        present = self.present_home
        if present is None or not region:
            return False
        if present.region != region:
            return True
        home = self.home
        if home is None:
            return False
        return home.leaving is not None or (present.number > 0 and home.begun < present)

    def due_hand_over(self, region: int) -> HomeEpoch | None:
        """The epoch for which a region must hand over; None: for none."""
        present = self.present_home
        if present is None or not region:
            return None
        home = self.home
        if home is not None and home.leaving is not None:
            present = max(present, home.leaving)
        if present.region == region:
            return None
        if present.forced and (NOWHERE if home is None else home.closed) < present:
            return present
        if home is not None and home.leaving is not None:
            return present
        if home is not None and home.has_handed_over:
            return None
        return present if self.runs.by_replica_id or self.pending.count else None

    # -- consumers ----------------------------------------------------------------------------

    def gives_up(self, entry: PendingEntry) -> bool:
        """Whether a policy lets an entry not be handed out once more."""
        return self.policed is not None and self.policed.policy.gives_up(entry.delivery_count)

    def is_due(self, entry: PendingEntry, now_ms: int) -> bool:
        """Whether a released entry has not to wait for its backoff."""
        return self.policed is None or self.policed.policy.due_ms(entry) <= now_ms

    @property
    def is_leased(self) -> bool:
        """Whether consumers hold their entries by leases."""
        return self.policed is not None and bool(self.policed.policy.lease.mode)

    def consumer(self, name: bytes, now_ms: int) -> Consumer:
        """The consumer of this name; it is created if necessary."""
        consumer = self.consumers.get(name)
        if consumer is None:
            consumer = self.consumers[name] = Consumer(name, now_ms)
        return consumer

    def remove_consumer(self, name: bytes) -> None:
        """Remove a consumer and its pending entries."""
        consumer = self.consumers.pop(name, None)
        if consumer is not None:
            self.pending.remove_owned(consumer)

    def discard_consumer(self, name: bytes, logs: Logs) -> None:
        """Delete a consumer. Its pending entries stay for other regions to deliver.

        Not so those that were acknowledged before, and are pending again after SETID or XCLAIM
        FORCE: no other region would deliver them. Nor those that do not exist any more.
        """
        consumer = self.consumers.get(name)
        if consumer is None:
            return
        for replica_id, pending in consumer.pending.items():
            log = logs.get(replica_id)
            numbers = sorted([each.number for each in pending.entries.values() if each.number])
            if log is not None and numbers:
                done = self.shared.acknowledged_of(replica_id)
                live = by_number.live_among(log, numbers)
                self.runs.give_up(
                    replica_id, [each for each in live if not any(each in some for some in done)]
                )
                self.runs.forget_below(replica_id, by_number.oldest_number(log))
        self.remove_consumer(name)

    # -- deliveries ---------------------------------------------------------------------------

    def hand_out(
        self,
        log: RegionLog,
        replica_id: int,
        ids: Sequence[int],
        numbers: list[int],
        consumer: Consumer,
        now_ms: int,
        entries_read: int | None,
        *,
        pending: bool,
    ) -> None:
        """Record that entries of a replica ID, ascending, were delivered here.

        ``pending`` is False for NOACK. In a region alone the entries have no numbers, and
        ``entries_read`` is the new counter of the group.
        """
        self.progress.hand_out(log, replica_id, ids[-1], numbers, entries_read)
        if numbers:
            self.runs.add(replica_id, numbers)
        if pending:
            self.pending.deliver(replica_id, ids, consumer, now_ms, numbers)

    def claim(
        self,
        logs: Logs,
        replica_id: int,
        entry_id: int,
        owner: Consumer | None,
        delivery_ms: int,
        count: int,
    ) -> None:
        """Assign a pending entry to a consumer (None releases it), with time and count.

        An entry that was not pending exists (XCLAIM FORCE).
        """
        if self.home is None or self.home.watch is None:
            entry = self.pending.assign(replica_id, entry_id, owner, delivery_ms, count)
        else:
            known = self.pending.lists[replica_id].get(entry_id)
            was_handed_out = known is not None and known.was_handed_out
            entry = self.pending.assign(replica_id, entry_id, owner, delivery_ms, count)
            if known is not None and was_handed_out != entry.was_handed_out:
                self.home.watch.note(replica_id, entry.number, is_handed_out=entry.was_handed_out)
        policed = self.policed
        if policed is not None and owner is None and policed.order is None:
            policed.released(entry)
        if not entry.number:
            entry.number = self.progress.number_of(logs, replica_id, entry_id)

    def restart(
        self, stream: Counted, seen: Vector, last_id: int | None, entries_read: int | None
    ) -> None:
        """XGROUP SETID: deliver what is above an ID, or (None) what was not seen here yet."""
        self.runs.close()
        self.progress.restart(stream, seen, last_id, entries_read)
        self._forget_stuck()

    def advance(self, logs: Logs, last_id: int) -> None:
        """XCLAIM LASTID: entries up to an ID count as delivered here; entries-read stays."""
        self.runs.close()
        self.progress.advance(logs, last_id)
        self._forget_stuck()

    def _forget_stuck(self) -> None:
        """The next new entry is another one, which may not have to wait for others of its key."""
        if self.pending.order is not None:
            self.pending.order.stuck = False

    def halted_below(self, entry_id: int) -> list[PendingEntry]:
        """The entries with lower IDs that stop their keys."""
        halted = () if self.policed is None else self.policed.halted
        return [each for each in halted if each.entry_id < entry_id]

    # -- acknowledgements of regions --------------------------------------------------------------

    def acknowledge_runs(
        self,
        creations: list[Dot],
        ranges: list[tuple[int, int, int]],
        greatest_id: int,
        logs: Logs | None,
    ) -> None:
        """Record acknowledged entries, under creations of which some may be removed.

        ``logs``: those of the stream if this region acknowledged them, and does not send them
        again. What is pending again stays pending: a range has also what its region only knew to be
        acknowledged. So does what this region's range passes over because it is deleted.
        """
        shared = self.shared
        alive = [dot for dot in creations if dot in shared.creations]
        if not alive:
            return
        acknowledged: dict[int, Ranges] = {}
        for replica_id, low, high in ranges:
            acknowledged.setdefault(replica_id, Ranges()).add(low, high)
        for replica_id, numbers in acknowledged.items():
            pending = self.pending.lists.get(replica_id)
            found = [] if pending is None else pending.numbered(numbers)
            stays = self._stays_pending(replica_id, found, logs) if found else Ranges()
            shared.acknowledge(alive, replica_id, numbers)
            gone = [each for each in found if each.number not in stays]
            self._drop(replica_id, gone, numbers.without(stays))
        shared.see(greatest_id)
        if logs is not None:
            self.runs.record_sent(ranges)

    def _stays_pending(
        self, replica_id: int, found: list[PendingEntry], logs: Logs | None
    ) -> Ranges:
        """The numbers of those that were acknowledged before they became pending here.

        With ``logs`` also of those that are in none of them any more.
        """
        known = self.shared.known_acknowledged(replica_id)
        numbers = [each.number for each in found]
        stays = {each for each in numbers if any(each in done for done in known)}
        if logs is not None:
            log = logs.get(replica_id)
            live = [] if log is None else by_number.live_among(log, numbers)
            stays.update(set(numbers).difference(live))
        return Ranges.of_numbers(sorted(stays))

    def drop_acknowledged(self, replica_id: int, numbers: Ranges) -> None:
        """Drop acknowledged entries from pending lists; do not deliver them, even after SETID."""
        self.shared.unhide(replica_id, numbers)
        self.drop_numbers(replica_id, numbers)

    def drop_numbers(self, replica_id: int, numbers: Ranges) -> None:
        """Drop the entries with these numbers from pending and given up entries."""
        pending = self.pending.lists.get(replica_id)
        found = [] if pending is None else pending.numbered(numbers)
        self._drop(replica_id, found, numbers)

    def _drop(self, replica_id: int, entries: list[PendingEntry], numbers: Ranges) -> None:
        """Drop pending entries, and given up ones with these numbers."""
        if entries:
            self.pending.remove(replica_id, [entry.entry_id for entry in entries])
        self.runs.drop_given_up(replica_id, numbers)

    def drop_between(self, replica_id: int, low: int, high: int) -> None:
        """Drop the entries with numbers in ``(low, high]`` from pending and given up entries."""
        self.drop_numbers(replica_id, Ranges([(low, high)]))

    def drop_dots(self, dots: list[tuple[int, int]]) -> None:
        """Drop single pending entries, named by replica ID and number."""
        gone: dict[int, Ranges] = {}
        for replica_id, number in dots:
            gone.setdefault(replica_id, Ranges()).add(number - 1, number)
        for replica_id, numbers in gone.items():
            self.drop_numbers(replica_id, numbers)

    def has_processed(self, replica_id: int, number: int) -> bool:
        """Whether this region has delivered an entry and no consumer has it pending any more.

        False for entries that were skipped or given up.
        """
        delivered = self.shared.delivered.get(replica_id)
        if delivered is None or number not in delivered:
            return False
        if self.runs.is_given_up(replica_id, number):
            return False
        if not self.runs.contains(replica_id, number) and (
            not self.shared.is_acknowledged(replica_id, number)
        ):
            return False
        pending = self.pending.lists.get(replica_id)
        return pending is None or not pending.numbered(Ranges([(number - 1, number)]))

    # -- where a copy of the stream goes on -------------------------------------------------------

    def passed_over(self, logs: Logs) -> Iterator[tuple[int, Span]]:
        """``(replica ID, span)`` of live entries that only other regions still deliver.

        No consumer has processed them, but this region will not deliver them: their consumer was
        deleted, or SETID or LASTID skipped them.
        """
        for replica_id, delivered in self.shared.delivered.items():
            log = logs.get(replica_id)
            if log is None:
                continue
            done = self.runs.in_runs(replica_id)
            for ranges in self.shared.acknowledged_of(replica_id):
                done.update(ranges)
            done = done.without(Ranges.of_numbers(self.runs.discarded.get(replica_id, ())))
            begin = self.shared.begin_of(replica_id, log)
            for low, high in delivered.without(done):
                for span in by_number.spans(log, max(low, begin), high):
                    yield replica_id, span

    def adopt(
        self,
        last_id: int,
        delivered: list[tuple[int, list[int]]],
        given_up: Iterable[tuple[int, int]],
    ) -> None:
        """Continue with the progress of another stream's group: the entries delivered to it.

        ``given_up`` are those of them that other regions must deliver, as ``(replica_id, number)``.
        """
        self.shared.adopt(last_id, delivered)
        self.runs.adopt(delivered)
        for replica_id, number in given_up:
            self.runs.give_up(replica_id, [number])

    def check(self) -> None:
        """Assert every invariant."""
        self.pending.check(self.consumers)
        if self.pending.order is not None:
            assert self.policed is not None
            assert self.policed.order is self.pending.order
            self.pending.order.check(self.pending.lists, self.policed.ripe)
        shared = self.shared
        if self.progress is shared:
            shared.check()
        else:
            assert shared.is_blank
            assert self.runs.is_blank
        for pending in self.pending.lists.values():
            for entry in pending.entries.values():
                assert bool(entry.number) == (self.progress is shared)


def group_alone(last_delivered_id: int, entries_read: int | None = None) -> Group:
    """A group of a stream that only this server writes."""
    return Group(GroupProgress(last_delivered_id, entries_read), NOTHING_SHARED_OF_GROUP)


def group_of_regions(last_delivered_id: int, entries_read: int | None = None) -> Group:
    """A group of a stream that several regions write."""
    progress = SharedProgress(last_delivered_id, entries_read)
    return Group(progress, progress)
