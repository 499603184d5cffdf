"""A consumer group, which regions create, read and acknowledge anywhere.

All regions share the *creations* of the group, and what was acknowledged under each creation.
Concurrent creations are one group, which contains the entries of all of them. Everything else
belongs to this region: the deliveries and the pending entries.

Acknowledgements travel as *runs*. A run is a range of entries of one replica ID that were delivered
here one after the other and of which none is pending any more. An entry that was given up without
being processed ends a run and never counts as acknowledged: XGROUP DELCONSUMER and XGROUP SETID
give entries up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from sortedcontainers import SortedDict

from anabranch.compiling import mypyc_attr
from anabranch.stream.counters import Counted
from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.group_pending import MAX_DELIVERIES
from anabranch.stream.group_progress import Creation, GroupProgress, Logs, Place, Vector
from anabranch.stream.pending import Consumer, PendingList
from anabranch.stream.pending_entry import PendingEntry
from anabranch.stream.ranges import Ranges
from anabranch.stream.region_log import RegionLog, Span
from anabranch.stream.shared import Dot

__all__ = [
    "LOCAL_REGION",
    "MAX_DELIVERIES",
    "NO_REPLICA_ID",
    "Creation",
    "Group",
    "Place",
    "Run",
]

LOCAL_REGION = 0
"""Region number of a server without Active-Active."""

NO_REPLICA_ID: Final = 0
"""The replica ID of pending entries that were deleted before their stream was copied here. RESTORE
and COPY bring such entries along, and number them for this group alone."""


@mypyc_attr(acyclic=True)
class Run:
    """Consecutive deliveries of one replica ID's entries: the numbers ``(low, last]``."""

    __slots__ = ("closed", "last", "low", "sent")

    def __init__(self, low: int, sent: int, last: int, *, closed: bool = False) -> None:
        self.low = low
        self.sent = sent  # acknowledged in other regions' eyes up to here
        self.last = last
        self.closed = closed  # nothing is added any more


class Group(GroupProgress):
    """One consumer group of one stream."""

    __slots__ = ("discarded", "runs")

    def __init__(self, last_delivered_id: int, entries_read: int | None = None) -> None:
        super().__init__(last_delivered_id, entries_read)
        # this region's own part, by replica ID
        # The numbers of entries that XGROUP DELCONSUMER gave up
        self.discarded: dict[int, SortedDict[int, None]] = {}
        self.runs: dict[int, list[Run]] = {}

    # -- where a copy of the stream goes on -------------------------------------------------------

    def passed_over(self, logs: Logs) -> Iterator[tuple[int, Span]]:
        """``(region, span)`` of live entries that only other regions still deliver.

        No consumer has processed them, but this region will not deliver them: their consumer was
        deleted, or SETID or LASTID skipped them.
        """
        for replica_id, log in logs.items():
            done = Ranges((run.low, run.last) for run in self.runs.get(replica_id, ()))
            for ranges in self.acknowledged.values():
                done.update(ranges.get(replica_id, Ranges()))
            done = done.without(Ranges((n - 1, n) for n in self.discarded.get(replica_id, ())))
            begin = self._begin(replica_id, log)
            for low, high in self.delivered.get(replica_id, Ranges()).without(done):
                for span in log.spans_numbered(max(low, begin), high):
                    yield replica_id, span

    def adopt(
        self,
        last_id: int,
        delivered: Iterable[tuple[int, list[int]]],
        given_up: Iterable[tuple[int, int]],
    ) -> None:
        """Continue with the progress of another stream's group: the entries delivered to it.

        ``given_up`` are those of them that other regions must deliver, as ``(replica_id, number)``.
        """
        self.last_delivered_id = last_id
        for replica_id, edges in delivered:
            ranges = self.delivered[replica_id] = Ranges.of_flat(edges)
            self.runs[replica_id] = [Run(low, low, high) for low, high in ranges]
        for replica_id, number in given_up:
            self.give_up(replica_id, [number])

    def drop_creations(self, is_removed: Callable[[Dot], bool]) -> bool:
        """Drop removed creations; returns whether any is left: without one the group ends."""
        for dot in list(filter(is_removed, self.creations)):
            self.drop_creation(dot)
        return len(self.creations) > 0

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
        self.see(ids[-1])
        self.settled.pop(replica_id, None)
        if pending:
            self.deliver(replica_id, ids, consumer, now_ms)
        self._add_delivered(self.delivered.setdefault(replica_id, Ranges()), log, numbers)
        self._extend_runs(self.runs.setdefault(replica_id, []), numbers)
        if pending:
            entries = self.pending[replica_id].entries
            for entry_id, number in zip(ids, numbers, strict=True):
                entries[entry_id].number = number
        if discarded := self.discarded.get(replica_id):
            for number in numbers:
                discarded.pop(number, None)

    @staticmethod
    def _add_delivered(delivered: Ranges, log: RegionLog, numbers: list[int]) -> None:
        """Record delivered entries with the numbers behind the live entry before each of them.

        No entry will ever have these: they belong to other keys, or to entries that are gone. So
        what is delivered in order is one interval, whatever the numbers of its entries.
        """
        first = numbers[0]
        low = delivered.end_below(first)
        if next(log.spans_numbered(low, first - 1), None) is not None:
            low = first - 1
        given = set(numbers)
        for block, index, stop in log.spans_numbered(first - 1, numbers[-1]):
            for number in block.numbers_of(index, stop):
                if number in given:
                    delivered.add(low, number)
                low = number
        if len(delivered) > 1:  # what was trimmed needs no intervals
            trimmed = min(log.oldest_number - 1, delivered.highs[-1])
            delivered.add(delivered.lows[0], trimmed)

    @staticmethod
    def _extend_runs(runs: list[Run], numbers: list[int]) -> None:
        for number in numbers:
            before = [run for run in runs if not run.closed and run.last < number]
            if before:
                max(before, key=_last).last = number
                if len(runs) == 1:  # and so on for the rest, which ascends
                    runs[0].last = numbers[-1]
                    return
            else:
                runs.append(Run(number - 1, number - 1, number))

    def discard_consumer(self, name: bytes, logs: Logs) -> None:
        """Delete a consumer. Its pending entries stay for other regions to deliver.

        Not so those that were acknowledged before, and are pending again after SETID or XCLAIM
        FORCE: no other region would deliver them. Nor those that do not exist any more.
        """
        consumer = self.consumers.get(name)
        if consumer is not None:
            for replica_id, pending in consumer.pending.items():
                log = logs.get(replica_id)
                if log is not None:
                    done = [each.get(replica_id, Ranges()) for each in self.acknowledged.values()]
                    live = log.live_numbers(sorted(e.number for e in pending.entries.values()))
                    self.give_up(
                        replica_id,
                        [each for each in live if not any(each in some for some in done)],
                    )
                    given_up, oldest = self.discarded[replica_id], log.oldest_number
                    while given_up and given_up.keys()[0] < oldest:  # given up before, and trimmed
                        given_up.popitem(0)
            self.remove_consumer(name)

    def give_up(self, replica_id: int, numbers: Iterable[int]) -> None:
        """Leave delivered entries to other regions."""
        known = self.discarded.setdefault(replica_id, SortedDict())
        known.update(dict.fromkeys(numbers))

    def claim(
        self,
        logs: Logs,
        replica_id: int,
        entry_id: int,
        owner: Consumer | None,
        delivery_ms: int,
        count: int,
    ) -> None:
        """As :meth:`assign`; an entry that was not pending exists (XCLAIM FORCE)."""
        entry = self.assign(replica_id, entry_id, owner, delivery_ms, count)
        if not entry.number:
            found = logs[replica_id].find(entry_id)
            assert found is not None
            block, index = found
            entry.number = block.number(index)

    def restart(
        self, stream: Counted, seen: Vector, last_id: int | None, entries_read: int | None
    ) -> None:
        """XGROUP SETID: deliver from behind an ID, or (None) from behind all that was seen here.

        Acknowledgements of other regions count again from now on.
        """
        self.last_delivered_id = stream.last_id if last_id is None else last_id
        logs = stream.logs
        self._close_runs()
        for replica_id in set(seen) | set(self.delivered):
            top = seen.get(replica_id, 0)
            if last_id is None:
                place = top
            else:
                log = logs.get(replica_id)
                place = 0 if log is None else log.number_upto(last_id)
            self.delivered[replica_id] = Ranges([(0, place)])
            self.hidden[replica_id] = Ranges([(0, top)])
            self.rewound[replica_id] = None
        self.offset = 0
        self.begin_to_count(stream, entries_read)

    def advance(self, logs: Logs, last_id: int) -> None:
        """XCLAIM LASTID: entries up to an ID count as delivered here; entries-read stays."""
        self.see(last_id)
        self.settled.clear()
        self._close_runs()
        for replica_id, log in logs.items():
            if place := log.number_upto(last_id):
                self.delivered.setdefault(replica_id, Ranges()).add(0, place)

    def _close_runs(self) -> None:
        for runs in self.runs.values():
            for run in runs:
                run.closed = True

    # -- acknowledgements ---------------------------------------------------------------------

    def grown_runs(self, logs: Logs) -> list[tuple[int, int, int]]:
        """The new acknowledgements for other regions, as ``(replica_id, low, high)``."""
        grown = []
        for replica_id, runs in self.runs.items():
            log = logs.get(replica_id)
            for run in runs:
                opened = self._first_open(replica_id, log, run)
                high = run.last if opened is None else opened - 1
                if high > run.sent:
                    grown.append((replica_id, max(run.low, run.sent), high))
        return grown

    def _first_open(self, replica_id: int, log: RegionLog | None, run: Run) -> int | None:
        """The lowest number in a run whose entry exists and is pending or was given up.

        What was acknowledged in other regions' eyes stays so, even if it is pending here again.
        """
        if log is None:
            return None
        opened = None
        low = max(run.low, run.sent)
        pending = self.pending.get(replica_id)
        if pending is not None:
            for entry in pending.between(log.id_upto(low), MAX_ID):
                if entry.number > run.last:
                    break
                if entry.number > low and log.find_number(entry.number) is not None:
                    opened = entry.number
                    break
        if given_up := self.discarded.get(replica_id):
            for number in given_up.irange(low + 1, run.last if opened is None else opened - 1):
                if log.find_number(number) is not None:
                    return number
        return opened

    def acknowledge_runs(
        self,
        creations: list[Dot],
        ranges: list[tuple[int, int, int]],
        greatest_id: int,
        *,
        ours: bool,
    ) -> None:
        """Record acknowledged entries, under creations of which some may be removed.

        ``ours``: this region acknowledged them, and does not send them again.
        """
        alive = [dot for dot in creations if dot in self.creations]
        if not alive:
            return
        acknowledged: dict[int, Ranges] = {}
        for replica_id, low, high in ranges:
            acknowledged.setdefault(replica_id, Ranges()).add(low, high)
            if ours:
                for run in self.runs.get(replica_id, ()):
                    if max(run.low, run.sent) == low and high <= run.last:
                        run.sent = high
        for replica_id, numbers in acknowledged.items():
            for dot in alive:
                known = self.acknowledged.setdefault(dot, {})
                known.setdefault(replica_id, Ranges()).update(numbers)
            self.drop_acknowledged(replica_id, numbers)
        self.see(greatest_id)
        if ours:
            self._sweep_runs()

    def drop_acknowledged(self, replica_id: int, numbers: Ranges) -> None:
        """Drop acknowledged entries from pending lists; do not deliver them, even after SETID."""
        self.settled.pop(replica_id, None)
        if (hidden := self.hidden.get(replica_id)) is not None:
            self.hidden[replica_id] = hidden.without(numbers)
        self.drop_numbers(replica_id, numbers)

    def _sweep_runs(self) -> None:
        """Drop closed runs that are acknowledged as a whole."""
        for replica_id, runs in self.runs.items():
            if any(run.closed and run.sent >= run.last for run in runs):
                self.runs[replica_id] = [r for r in runs if not (r.closed and r.sent >= r.last)]

    def drop_between(self, replica_id: int, low: int, high: int) -> None:
        """Drop the entries with numbers in ``(low, high]`` from pending and given up entries."""
        self.drop_numbers(replica_id, Ranges([(low, high)]))

    def drop_numbers(self, replica_id: int, numbers: Ranges) -> None:
        """Do the same for several intervals."""
        pending = self.pending.get(replica_id)
        if pending is not None and pending.entries:
            gone = pending.numbered(numbers)
            for entry in pending.pop_all([entry.entry_id for entry in gone]):
                self._detach(replica_id, entry)
        if given_up := self.discarded.get(replica_id):
            for low, high in numbers:
                for number in list(given_up.irange(low + 1, high)):
                    del given_up[number]

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
        delivered = self.delivered.get(replica_id)
        if delivered is None or number not in delivered:
            return False
        if number in self.discarded.get(replica_id, ()):
            return False
        if not any(run.low < number <= run.last for run in self.runs.get(replica_id, ())) and (
            not self.is_acknowledged(replica_id, number)
        ):
            return False
        pending = self.pending.get(replica_id)
        return pending is None or not pending.numbered(Ranges([(number - 1, number)]))

    def copy(self) -> Group:
        """An independent copy with consumers and pending entries, for a region alone.

        Where several regions write, effects copy a group (effects/adopting.py).
        """
        other = type(self)(self.last_delivered_id, self.entries_read)
        for name, consumer in self.consumers.items():
            other.consumers[name] = Consumer(name, consumer.seen_ms, consumer.active_ms)
        for region, pending in self.pending.items():
            copies = {each.entry_id: each.copy() for each in pending.between(MIN_ID, MAX_ID)}
            other.pending[region].extend(copies)
            own: dict[bytes, dict[int, PendingEntry]] = defaultdict(dict)
            for entry_id, entry in copies.items():
                if entry.consumer is not None:
                    own[entry.consumer.name][entry_id] = entry
                    entry.consumer = other.consumers[entry.consumer.name]
            for name, entries in own.items():
                other.consumers[name].pending.setdefault(region, PendingList()).extend(entries)
        other.released = {
            other.pending[self.region_of(e)].entries[e.entry_id]: None for e in self.released
        }
        other.stamp = self.stamp
        return other

    def check_shared(self) -> None:
        """Assert the invariants of what regions share."""
        assert self.creations
        assert set(self.acknowledged) <= set(self.creations)
        for by_replica_id in (self.delivered, self.hidden, *self.acknowledged.values()):
            for ranges in by_replica_id.values():
                ranges.check()

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        self.check_shared()
        for replica_id, pending in self.pending.items():
            for entry in pending.entries.values():
                assert entry.number
                assert not self.is_acknowledged(replica_id, entry.number)


def _last(run: Run) -> int:
    return run.last
