"""A consumer group where several regions read and write: created, read and acknowledged anywhere.

Shared by all regions are the *creations* of the group (concurrent ones are one group, as wide as
the widest) and what was acknowledged under each. Everything else is this region's: what was
delivered here, who holds what. So each region hands out what was neither delivered here nor
acknowledged anywhere, and never misses an entry that arrives late.

An acknowledgement travels only as a *run*: a stretch of consecutive deliveries of one origin's
entries from which nothing is open any more. Entries given up without being processed (their
consumer was deleted, the group was moved) end a run, and never count as acknowledged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.group import LOCAL_REGION, Group
from anabranch.stream.pending import Consumer, PendingEntry, PendingList
from anabranch.stream.ranges import Ranges
from anabranch.stream.region_log import RegionLog, Span
from anabranch.stream.shared import Dot

__all__ = ["NO_ORIGIN", "Creation", "Place", "Run", "SharedGroup"]

NO_ORIGIN: Final = 0
"""Under which entries are pending that had gone before their stream came here: RESTORE and COPY
bring them along, and number them for this group alone."""


class Creation(NamedTuple):
    """One XGROUP CREATE."""

    context: Mapping[int, int]
    """What its region had applied."""
    start: int | None
    """Entries above this ID are the group's; None: those beyond the context (``$``)."""
    offset: int = 0
    """By how much ENTRIESREAD differed from what was counted."""


class Place(NamedTuple):
    """How far a group had come in an origin's log when it last moved there."""

    number: int
    """Of the last entry that the group was given, or had to be given no more."""
    position: int
    """Of the first live entry behind that; where the next one goes if there was none."""


class Run:
    """Consecutive deliveries of one origin's entries: the numbers ``(low, last]``."""

    __slots__ = ("closed", "last", "low", "sent")

    def __init__(self, low: int, sent: int, last: int, *, closed: bool = False) -> None:
        self.low = low
        self.sent = sent  # acknowledged in other regions' eyes up to here
        self.last = last
        self.closed = closed  # nothing is added any more


class SharedGroup(Group):
    """A group of a stream with several writing regions."""

    __slots__ = (
        "acknowledged",
        "creations",
        "delivered",
        "discarded",
        "hidden",
        "offset",
        "places",
        "rewound",
        "runs",
    )

    def __init__(self, last_delivered_id: int) -> None:
        super().__init__(last_delivered_id, None)
        # Here the one cursor is only what XINFO shows.
        self.pending: dict[int, PendingList] = defaultdict(PendingList)
        self.creations: dict[Dot, Creation] = {}
        self.acknowledged: dict[Dot, dict[int, Ranges]] = {}  # creation -> origin -> numbers
        # this region's own part, by origin
        self.delivered: dict[int, Ranges] = {}
        self.hidden: dict[int, Ranges] = {}  # acknowledgements that XGROUP SETID goes behind
        self.rewound: dict[int, None] = {}  # origins of which SETID, not a creation, is the start
        self.discarded: dict[int, dict[int, None]] = {}  # given up by XGROUP DELCONSUMER
        self.places: dict[int, Place] = {}
        self.offset: int | None = None  # of XGROUP SETID: instead of that of the creations
        self.runs: dict[int, list[Run]] = {}

    # -- what is left to deliver --------------------------------------------------------------

    def gaps(self, origin: int, log: RegionLog) -> Iterator[tuple[int, int]]:
        """Intervals of numbers ``(low, high]`` of an origin that this region may hand out."""
        top = log.newest_number
        begin = 0 if origin in self.rewound else self._begin(origin, log)
        if begin >= top:
            return
        blocked = self.delivered.get(origin)
        settled = self._settled(origin)
        if settled:
            if blocked:
                settled.update(blocked)
            blocked = settled
        if blocked:
            yield from blocked.gaps(begin, top)
        else:
            yield begin, top

    def _begin(self, origin: int, log: RegionLog) -> int:
        """The number behind which the widest creation begins."""
        begins = []
        for context, start, _ in self.creations.values():
            if start is None:
                begins.append(context.get(origin, 0))
            else:
                begins.append(log.number_upto(start) if start else 0)
        return min(begins)

    def _settled(self, origin: int) -> Ranges:
        """Numbers of an origin that were acknowledged anywhere and are not hidden here."""
        settled = Ranges()
        for ranges in self.acknowledged.values():
            if (some := ranges.get(origin)) is not None:
                if settled:
                    settled.update(some)
                else:
                    settled = some.copy()
        return settled.without(self.hidden.get(origin))

    def spans(self, origin: int, log: RegionLog) -> Iterator[Span]:
        """Live entries of an origin to hand out, ascending."""
        for low, high in self.gaps(origin, log):
            yield from log.spans_numbered(low, high)

    def count(self, origin: int, log: RegionLog) -> int:
        """How many there are; O(intervals x log n)."""
        return sum(log.count_numbered(low, high) for low, high in self.gaps(origin, log))

    def has(self, origin: int, log: RegionLog) -> bool:
        """Whether there are any."""
        return any(
            next(log.spans_numbered(low, high), None) is not None
            for low, high in self.gaps(origin, log)
        )

    def would_deliver(self, origin: int, log: RegionLog, number: int) -> bool:
        """Whether an entry is among them."""
        return any(low < number <= high for low, high in self.gaps(origin, log))

    # -- entries-read -------------------------------------------------------------------------

    def _cursor(self, origin: int, log: RegionLog) -> int:
        """The greatest number of an origin that need not be handed out any more."""
        cursor = 0 if origin in self.rewound else self._begin(origin, log)
        if delivered := self.delivered.get(origin):
            cursor = max(cursor, delivered.highs[-1])
        for by_origin in self.acknowledged.values():
            if (some := by_origin.get(origin)) is not None and (
                settled := some.without(self.hidden.get(origin))
            ):
                cursor = max(cursor, settled.highs[-1])
        return cursor

    def place(self, logs: Mapping[int, RegionLog], *, anew: bool = False) -> None:
        """Note how far the group has come in these logs; ``anew`` if it may have gone back.

        Entries that were deleted right behind that count as read. Until entries are removed the
        same can be found out later, so a delivery need not do this.
        """
        for origin, log in logs.items():
            cursor = self._cursor(origin, log)
            known = self.places.get(origin)
            if known is None or cursor > known.number or anew:
                self.places[origin] = Place(cursor, log.position_above(cursor))

    def keep_place(self, origin: int, log: RegionLog, high: int) -> None:
        """Entries up to a number are about to go."""
        known = self.places.get(origin)
        if known is None or high > known.number:
            self.place({origin: log})

    def unread(self, origin: int, log: RegionLog) -> int:
        """How many entries of an origin the group has not passed, whether or not they still live.

        Below its place those that live count.
        """
        known = self.places.get(origin)
        cursor = self._cursor(origin, log)
        if known is None or cursor > known.number:
            position = log.position_above(cursor)
        else:
            cursor, position = known
        position = max(position, log.base)
        below = sum(
            log.count_numbered(low, min(high, cursor))
            for low, high in self.gaps(origin, log)
            if low < cursor
        )
        return log.next_position - position + below

    def read_offset(self) -> int:
        """What ENTRIESREAD of XGROUP adds: of several creations' the greatest."""
        if self.offset is not None:
            return self.offset
        return max(creation.offset for creation in self.creations.values())

    # -- where a copy of the stream goes on -------------------------------------------------------

    def late(self, logs: Mapping[int, RegionLog]) -> Iterator[tuple[int, Span]]:
        """See :meth:`Group.late`."""
        last_id = self.last_delivered_id
        for origin, log in logs.items():
            top = log.number_upto(last_id)
            for low, high in self.gaps(origin, log):
                for span in log.spans_numbered(low, min(high, top)):
                    yield origin, span

    def passed_over(self, logs: Mapping[int, RegionLog]) -> Iterator[tuple[int, Span]]:
        """See :meth:`Group.passed_over`: given up, or jumped over by SETID or LASTID."""
        for origin, log in logs.items():
            done = Ranges((run.low, run.last) for run in self.runs.get(origin, ()))
            for ranges in self.acknowledged.values():
                done.update(ranges.get(origin, Ranges()))
            done = done.without(Ranges((n - 1, n) for n in self.discarded.get(origin, ())))
            begin = self._begin(origin, log)
            for low, high in self.delivered.get(origin, Ranges()).without(done):
                for span in log.spans_numbered(max(low, begin), high):
                    yield origin, span

    def adopt(
        self,
        last_id: int,
        delivered: Iterable[tuple[int, list[int]]],
        given_up: Iterable[tuple[int, int]],
    ) -> None:
        """Go on where another stream's group was: the entries that it had been given.

        ``given_up`` are those of them, as ``(origin, number)``, that are open for other regions.
        """
        self.move_to(last_id)
        for origin, edges in delivered:
            ranges = self.delivered[origin] = Ranges.of_flat(edges)
            self.runs[origin] = [Run(low, low, high) for low, high in ranges]
        for origin, number in given_up:
            self.discarded.setdefault(origin, {})[number] = None

    # -- deliveries ---------------------------------------------------------------------------

    def hand_out(
        self,
        origin: int,
        ids: Sequence[int],
        numbers: list[int],
        consumer: Consumer,
        now_ms: int,
        *,
        pending: bool,
    ) -> None:
        """Entries of an origin were delivered here, ascending; ``pending`` is False for NOACK."""
        self.delivered.setdefault(origin, Ranges()).add_numbers(numbers)
        self.see(ids[-1])
        self._extend_runs(self.runs.setdefault(origin, []), numbers)
        if pending:
            self.deliver(origin, ids, consumer, now_ms)
            entries = self.pending[origin].entries
            for entry_id, number in zip(ids, numbers, strict=True):
                entries[entry_id].number = number
        if discarded := self.discarded.get(origin):
            for number in numbers:
                discarded.pop(number, None)

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

    def see(self, entry_id: int) -> None:
        """An entry was delivered here, or acknowledged somewhere: for last-delivered-id."""
        self.cursors[LOCAL_REGION] = max(self.cursors[LOCAL_REGION], entry_id)

    def discard_consumer(self, name: bytes) -> None:
        """A consumer is deleted: what it held was not processed, and stays open for others."""
        consumer = self.consumers.get(name)
        if consumer is not None:
            for origin, pending in consumer.pending.items():
                for entry in pending.entries.values():
                    self.discarded.setdefault(origin, {})[entry.number] = None
            self.remove_consumer(name)

    def set_start(
        self, logs: Mapping[int, RegionLog], seen: Mapping[int, int], last_id: int | None
    ) -> None:
        """XGROUP SETID: this region begins again behind an ID, or (None) behind all it has seen.

        What others acknowledge from now on counts again.
        """
        self._close_runs()
        for origin in set(seen) | set(self.delivered):
            top = seen.get(origin, 0)
            if last_id is None:
                place = top
            else:
                log = logs.get(origin)
                place = 0 if log is None else log.number_upto(last_id)
            self.delivered[origin] = Ranges([(0, place)])
            self.hidden[origin] = Ranges([(0, top)])
            self.rewound[origin] = None

    def jump_to(self, logs: Mapping[int, RegionLog], last_id: int) -> None:
        """XCLAIM LASTID: entries up to an ID count as delivered here."""
        self._close_runs()
        for origin, log in logs.items():
            if place := log.number_upto(last_id):
                self.delivered.setdefault(origin, Ranges()).add(0, place)
        self.see(last_id)

    def _close_runs(self) -> None:
        for runs in self.runs.values():
            for run in runs:
                run.closed = True

    # -- acknowledgements ---------------------------------------------------------------------

    def grown_runs(self, logs: Mapping[int, RegionLog]) -> list[tuple[int, int, int]]:
        """``(origin, low, high)`` of what is acknowledged by now and other regions do not know."""
        grown = []
        for origin, runs in self.runs.items():
            log = logs.get(origin)
            for run in runs:
                opened = self._first_open(origin, log, run)
                high = run.last if opened is None else opened - 1
                if high > run.sent:
                    grown.append((origin, max(run.low, run.sent), high))
        return grown

    def _first_open(self, origin: int, log: RegionLog | None, run: Run) -> int | None:
        """The lowest number of a run that is pending, or was given up, and still exists."""
        if log is None:
            return None
        opened = None
        pending = self.pending.get(origin)
        if pending is not None:
            for entry in pending.between(log.id_upto(run.low), MAX_ID):
                if entry.number > run.last:
                    break
                if entry.number > run.low and log.find_number(entry.number) is not None:
                    opened = entry.number
                    break
        for number in self.discarded.get(origin, ()):
            if (
                run.low < number <= run.last
                and (opened is None or number < opened)
                and log.find_number(number) is not None
            ):
                opened = number
        return opened

    def settle(
        self,
        creations: list[Dot],
        ranges: list[tuple[int, int, int]],
        greatest_id: int,
        *,
        ours: bool,
    ) -> None:
        """Entries were acknowledged, under creations of which some may be gone.

        ``ours`` tells that this region did it, and need not say so again.
        """
        alive = [dot for dot in creations if dot in self.creations]
        if not alive:
            return
        settled: dict[int, Ranges] = {}
        for origin, low, high in ranges:
            settled.setdefault(origin, Ranges()).add(low, high)
            if ours:
                for run in self.runs.get(origin, ()):
                    if max(run.low, run.sent) == low and high <= run.last:
                        run.sent = high
        for origin, numbers in settled.items():
            for dot in alive:
                known = self.acknowledged.setdefault(dot, {})
                known.setdefault(origin, Ranges()).update(numbers)
            self.note_settled(origin, numbers)
        self.see(greatest_id)
        if ours:
            self._sweep_runs()

    def note_settled(self, origin: int, numbers: Ranges) -> None:
        """Others need not be given these entries, nor hold them, even if SETID went behind them."""
        if (hidden := self.hidden.get(origin)) is not None:
            self.hidden[origin] = hidden.without(numbers)
        self._drop(origin, numbers)

    def _sweep_runs(self) -> None:
        """Forget runs that nothing can be added to and of which everything is known."""
        for origin, runs in self.runs.items():
            if any(run.closed and run.sent >= run.last for run in runs):
                self.runs[origin] = [r for r in runs if not (r.closed and r.sent >= r.last)]

    def drop_between(self, origin: int, low: int, high: int) -> None:
        """Entries with numbers in ``(low, high]`` are neither pending nor given up any more."""
        self._drop(origin, Ranges([(low, high)]))

    def _drop(self, origin: int, numbers: Ranges) -> None:
        """The same of several intervals, in one walk."""
        if not numbers:
            return
        top = numbers.highs[-1]
        pending = self.pending.get(origin)
        if pending is not None and pending.entries:
            gone = []
            for entry in pending.between(MIN_ID, MAX_ID):
                if entry.number > top:
                    break
                if entry.number in numbers:
                    gone.append(entry.entry_id)
            for entry in pending.pop_all(gone):
                self._detach(origin, entry)
        discarded = self.discarded.get(origin)
        if discarded:
            for number in [number for number in discarded if number in numbers]:
                del discarded[number]

    def drop_dots(self, dots: list[tuple[int, int]]) -> None:
        """Single entries, named by origin and number, are not pending any more."""
        for origin, number in dots:
            self.drop_between(origin, number - 1, number)

    def has_processed(self, origin: int, number: int) -> bool:
        """Whether this region has handed an entry out, and nobody has it open any more.

        What was jumped over or given up does not count.
        """
        delivered = self.delivered.get(origin)
        if delivered is None or number not in delivered:
            return False
        if number in self.discarded.get(origin, ()):
            return False
        if not any(run.low < number <= run.last for run in self.runs.get(origin, ())) and (
            number not in self._settled(origin)
        ):
            return False
        pending = self.pending.get(origin)
        return pending is None or all(entry.number != number for entry in pending.entries.values())

    def is_settled(self, origin: int, number: int) -> bool:
        """Whether an entry counts as acknowledged."""
        return number in self._settled(origin)

    def pending_of(self, entry_id: int) -> list[tuple[int, PendingEntry]]:
        """``(origin, pending entry)`` of all with this ID: concurrent writers may share one."""
        return [
            (origin, entry)
            for origin, pending in self.pending.items()
            if (entry := pending.entries.get(entry_id)) is not None
        ]

    # -- creations ----------------------------------------------------------------------------

    def forget_creation(self, dot: Dot) -> None:
        """A creation was removed, and what was acknowledged under it with it."""
        del self.creations[dot]
        self.acknowledged.pop(dot, None)

    def check_shared(self) -> None:
        """Assert what must hold of what regions share."""
        assert self.creations
        assert set(self.acknowledged) <= set(self.creations)
        for by_origin in (self.delivered, self.hidden, *self.acknowledged.values()):
            for ranges in by_origin.values():
                ranges.check()

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        self.check_shared()
        for origin, pending in self.pending.items():
            settled = self._settled(origin)
            for entry in pending.entries.values():
                assert entry.number
                assert entry.number not in settled


def _last(run: Run) -> int:
    return run.last
