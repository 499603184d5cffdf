"""What was delivered here, until other regions know that it was acknowledged.

Acknowledgements travel as *runs*. A run is a range of entries of one replica ID that were delivered
here one after the other and of which none is pending any more. An entry that was given up without
being processed ends a run and never counts as acknowledged: XGROUP DELCONSUMER and XGROUP SETID
give entries up. In a region alone there are no runs. With the policy ``acks all`` the rest of a run
travels, too (``effects/acknowledging.py``); what a run has ``sent`` is the range at its begin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from sortedcontainers import SortedDict

from anabranch.compiling import mypyc_attr
from anabranch.stream import by_number
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.groups.pending import GroupPending
from anabranch.stream.groups.pending_list import PendingList
from anabranch.stream.groups.progress import Logs
from anabranch.stream.ranges import Ranges, gaps
from anabranch.stream.region_log import RegionLog


@mypyc_attr(acyclic=True)
class DeliveryRun:
    """Consecutive deliveries of one replica ID's entries: the numbers ``(low, last]``."""

    def __init__(self, low: int, sent: int, last: int, *, closed: bool = False) -> None:
        self.low = low
        self.sent = sent  # acknowledged in other regions' eyes up to here
        self.last = last
        self.closed = closed  # nothing is added any more


class Runs:
    """The runs of a group, and the entries that were given up; by replica ID."""

    def __init__(self) -> None:
        self.by_replica_id: dict[int, list[DeliveryRun]] = {}
        # The numbers of entries that XGROUP DELCONSUMER gave up
        self.discarded: dict[int, SortedDict[int, None]] = {}

    # -- deliveries ---------------------------------------------------------------------------

    def add(self, replica_id: int, numbers: list[int]) -> None:
        """Entries were delivered, ascending; they are not given up any more."""
        _extend(self.by_replica_id.setdefault(replica_id, []), numbers)
        if discarded := self.discarded.get(replica_id):
            for number in numbers:
                discarded.pop(number, None)

    def adopt(self, delivered: Iterable[tuple[int, list[int]]]) -> None:
        """Begin with the intervals that were delivered to another stream's group."""
        for replica_id, edges in delivered:
            ranges = Ranges.of_flat(edges)
            self.by_replica_id[replica_id] = [DeliveryRun(low, low, high) for low, high in ranges]

    def adopt_numbers(self, replica_id: int, numbers: Iterable[int], left: Ranges) -> None:
        """Begin runs of entries that another region delivered; no run has one that is ``left``."""
        runs = self.by_replica_id.setdefault(replica_id, [])
        last: DeliveryRun | None = None
        for number in numbers:
            if last is None or left.end_below(number) > last.last:
                last = DeliveryRun(number - 1, number - 1, number)
                runs.append(last)
            else:
                last.last = number

    def give_up(self, replica_id: int, numbers: Iterable[int]) -> None:
        """Leave delivered entries to other regions."""
        known = self.discarded.setdefault(replica_id, SortedDict())
        known.update(dict.fromkeys(numbers))

    def forget_below(self, replica_id: int, oldest: int) -> None:
        """Forget given up entries with lower numbers, which were trimmed."""
        given_up = self.discarded.get(replica_id)
        while given_up and given_up.keys()[0] < oldest:
            given_up.popitem(0)

    def close(self) -> None:
        """What is delivered from now on begins new runs."""
        for runs in self.by_replica_id.values():
            for run in runs:
                run.closed = True

    # -- acknowledgements ---------------------------------------------------------------------

    def grown(self, logs: Logs, pending: GroupPending) -> list[tuple[int, int, int]]:
        """The new acknowledgements for other regions, as ``(replica_id, low, high)``."""
        grown = []
        for replica_id, runs in self.by_replica_id.items():
            log = logs.get(replica_id)
            for run in runs:
                opened = self._first_open(replica_id, log, run, pending)
                high = run.last if opened is None else opened - 1
                if high > run.sent:
                    grown.append((replica_id, max(run.low, run.sent), high))
        return grown

    def _first_open(
        self, replica_id: int, log: RegionLog | None, run: DeliveryRun, pending: GroupPending
    ) -> int | None:
        """The lowest number in a run whose entry exists and is pending or was given up.

        What was acknowledged in other regions' eyes stays so, even if it is pending here again.
        """
        if log is None:
            return None
        low = max(run.low, run.sent)
        entries = pending.lists.get(replica_id)
        opened = None if entries is None else _first_pending(log, entries, low, run.last)
        if given_up := self.discarded.get(replica_id):
            for number in given_up.irange(low + 1, run.last if opened is None else opened - 1):
                if by_number.find(log, number) is not None:
                    return number
        return opened

    def held_back(
        self,
        replica_id: int,
        log: RegionLog,
        pending: GroupPending,
        done: Collection[Ranges],
        above: int,
        most: int,
    ) -> tuple[Ranges, int]:
        """Delivered entries above a number that are neither pending nor given up nor in ``done``.

        Passes at most so many pending entries; returns up to which number it has come, too.
        """
        entries = pending.lists.get(replica_id)
        start = by_number.id_upto(log, above) + 1
        opened = [] if entries is None else list(islice(entries.between(start, MAX_ID), most))
        top = opened[-1].number if len(opened) == most else log.newest_number
        given_up = self.discarded.get(replica_id, SortedDict()).irange(above + 1, top)
        open_numbers = Ranges.of_numbers(sorted({*given_up, *[each.number for each in opened]}))
        found = Ranges()
        for run in self.by_replica_id.get(replica_id, ()):
            low, high = max(run.low, run.sent, above), min(run.last, top)
            for gap in gaps((open_numbers, *done), low, high):
                found.add(*gap)
        return found, top

    def record_sent(self, ranges: Sequence[tuple[int, int, int]]) -> None:
        """Other regions get these acknowledgements, which :meth:`grown` has named."""
        for replica_id, low, high in ranges:
            for run in self.by_replica_id.get(replica_id, ()):
                if max(run.low, run.sent) == low and high <= run.last:
                    run.sent = high
        for replica_id, runs in self.by_replica_id.items():
            if any(run.closed and run.sent >= run.last for run in runs):
                self.by_replica_id[replica_id] = [
                    run for run in runs if not (run.closed and run.sent >= run.last)
                ]

    def drop_given_up(self, replica_id: int, numbers: Ranges) -> None:
        """Forget given up entries with these numbers: they are acknowledged or do not exist."""
        if given_up := self.discarded.get(replica_id):
            for low, high in numbers:
                for number in list(given_up.irange(low + 1, high)):
                    del given_up[number]

    # -- looking ------------------------------------------------------------------------------

    def contains(self, replica_id: int, number: int) -> bool:
        """Whether an entry was delivered in a run that is kept."""
        return any(run.low < number <= run.last for run in self.by_replica_id.get(replica_id, ()))

    def is_given_up(self, replica_id: int, number: int) -> bool:
        """Whether an entry was given up."""
        return number in self.discarded.get(replica_id, ())

    def in_runs(self, replica_id: int) -> Ranges:
        """The numbers of all entries in runs, given up or not."""
        return Ranges((run.low, run.last) for run in self.by_replica_id.get(replica_id, ()))

    @property
    def is_blank(self) -> bool:
        """Whether nothing is recorded, as in a region alone."""
        return not self.by_replica_id and not self.discarded


def _first_pending(log: RegionLog, pending: PendingList, low: int, high: int) -> int | None:
    """The lowest number in ``(low, high]`` of an entry that is pending and exists."""
    first = pending.first()
    if first is None or first.number > high:
        return None
    if first.number > low and by_number.find(log, first.number) is not None:  # nearly always
        return first.number
    for entry in pending.between(by_number.id_upto(log, low), MAX_ID):
        if entry.number > high:
            break
        if entry.number > low and by_number.find(log, entry.number) is not None:
            return entry.number
    return None


def _extend(runs: list[DeliveryRun], numbers: list[int]) -> None:
    """Append each number to the open run with the newest entry below it, or begin a run."""
    for number in numbers:
        before = [run for run in runs if not run.closed and run.last < number]
        if before:
            max(before, key=_last).last = number
            if len(runs) == 1:  # and so on for the rest, which ascends
                runs[0].last = numbers[-1]
                return
        else:
            runs.append(DeliveryRun(number - 1, number - 1, number))


def _last(run: DeliveryRun) -> int:
    return run.last
