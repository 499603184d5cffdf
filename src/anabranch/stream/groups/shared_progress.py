"""The progress of a consumer group that several regions create, read and acknowledge.

There it is never one ID: entries of another region may arrive later with lower IDs, and the group
must deliver them. So each region delivers the entries that were neither delivered here nor
acknowledged anywhere; their numbers say which these are.

All regions share the *creations* of the group, and what was acknowledged under each creation.
Concurrent creations are one group, which contains the entries of all of them. Deliveries belong to
this region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from anabranch.compiling import mypyc_attr
from anabranch.stream import by_number
from anabranch.stream.counters import Counted
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.groups.progress import Creation, GroupProgress, Logs, Vector
from anabranch.stream.merge import limited
from anabranch.stream.ranges import Ranges, gaps
from anabranch.stream.region_log import RegionLog, Span
from anabranch.stream.shared import Dot


class Passed(NamedTuple):
    """How far a group had come in the log of a replica ID when its cursor last moved."""

    number: int
    """The number of the last entry that was delivered, or need not be delivered any more."""
    position: int
    """The position of the first live entry above it, or of the next entry if there is none."""


@mypyc_attr(acyclic=True)
class SharedProgress(GroupProgress):
    """What regions share of a group, and what was delivered here.

    It replaces everything of a region alone that looks at last-delivered-id or entries-read.
    """

    def __init__(self, last_delivered_id: int, entries_read: int | None = None) -> None:
        super().__init__(last_delivered_id, entries_read)
        self.creations: dict[Dot, Creation] = {}
        self.acknowledged: dict[Dot, dict[int, Ranges]] = {}  # creation -> replica ID -> numbers
        # this region's own part, by replica ID
        self.delivered: dict[int, Ranges] = {}
        self.hidden: dict[int, Ranges] = {}  # acknowledgements that XGROUP SETID cancels here
        # replica IDs whose start is from SETID, not from a creation
        self.rewound: dict[int, None] = {}
        self.places: dict[int, Passed] = {}
        # Replica IDs whose place stays: only what clears this moves the cursor in their logs
        self.settled: dict[int, None] = {}
        self.offset: int | None = None  # of XGROUP SETID: replaces that of the creations

    # -- changes ------------------------------------------------------------------------------

    def begin(
        self, stream: Counted, dot: Dot, creation: Creation, entries_read: int | None
    ) -> None:
        """Record that the group was created, or created again by another region."""
        self.creations[dot] = creation
        self.place(stream.logs, anew=True)

    def drop_creations(self, is_removed: Callable[[Dot], bool]) -> bool:
        """Drop removed creations; returns whether any is left: without one the group ends."""
        for dot in list(filter(is_removed, self.creations)):
            self.drop_creation(dot)
        return len(self.creations) > 0

    def drop_creation(self, dot: Dot) -> None:
        """Drop a removed creation, with its acknowledgements."""
        del self.creations[dot]
        self.acknowledged.pop(dot, None)
        self.settled.clear()

    def hand_out(
        self,
        log: RegionLog,
        replica_id: int,
        newest_id: int,
        numbers: list[int],
        entries_read: int | None,
    ) -> None:
        """Record a delivery; entries-read is counted when somebody asks."""
        self.see(newest_id)
        self.settled.pop(replica_id, None)
        _add_delivered(self.delivered.setdefault(replica_id, Ranges()), log, numbers)

    def adopt(self, last_id: int, delivered: Iterable[tuple[int, list[int]]]) -> None:
        """Continue with the deliveries of another stream's group, by replica ID."""
        self.last_delivered_id = last_id
        for replica_id, edges in delivered:
            self.delivered[replica_id] = Ranges.of_flat(edges)

    def restart(
        self, stream: Counted, seen: Vector, last_id: int | None, entries_read: int | None
    ) -> None:
        """XGROUP SETID: deliver what is above an ID, or (None) what was not seen here yet.

        Acknowledgements of other regions count again from now on.
        """
        self.last_delivered_id = stream.last_id if last_id is None else last_id
        logs = stream.logs
        for replica_id in set(seen) | set(self.delivered):
            top = seen.get(replica_id, 0)
            if last_id is None:
                place = top
            else:
                log = logs.get(replica_id)
                place = 0 if log is None else by_number.number_upto(log, last_id)
            self.delivered[replica_id] = Ranges([(0, place)])
            self.hidden[replica_id] = Ranges([(0, top)])
            self.rewound[replica_id] = None
        self.offset = 0
        self.begin_to_count(stream, entries_read)

    def advance(self, logs: Logs, last_id: int) -> None:
        """XCLAIM LASTID: entries up to an ID count as delivered here; entries-read stays."""
        self.see(last_id)
        self.settled.clear()
        for replica_id, log in logs.items():
            if place := by_number.number_upto(log, last_id):
                self.delivered.setdefault(replica_id, Ranges()).add(0, place)

    def acknowledge(self, creations: list[Dot], replica_id: int, numbers: Ranges) -> None:
        """Record acknowledged entries under these creations, which exist."""
        for dot in creations:
            known = self.acknowledged.setdefault(dot, {})
            known.setdefault(replica_id, Ranges()).update(numbers)
        self.unhide(replica_id, numbers)

    def unhide(self, replica_id: int, numbers: Ranges) -> None:
        """Acknowledgements of these entries count, even after SETID."""
        self.settled.pop(replica_id, None)
        if (hidden := self.hidden.get(replica_id)) is not None:
            self.hidden[replica_id] = hidden.without(numbers)

    def hide(self, replica_id: int, number: int) -> None:
        """What is known of an acknowledgement counts no more here; a later one does."""
        self.settled.pop(replica_id, None)
        self.hidden.setdefault(replica_id, Ranges()).add(number - 1, number)

    # -- what is left to deliver --------------------------------------------------------------

    def gaps(self, replica_id: int, log: RegionLog) -> Iterable[tuple[int, int]]:
        """Intervals of numbers ``(low, high]`` of a replica ID that this region may deliver."""
        top = log.newest_number
        begin = 0 if replica_id in self.rewound else self.begin_of(replica_id, log)
        if begin >= top:
            return ()
        done = self.known_acknowledged(replica_id)
        if (delivered := self.delivered.get(replica_id)) is not None:
            done.append(delivered)
        return gaps(done, begin, top)

    def begin_of(self, replica_id: int, log: RegionLog) -> int:
        """The number above which the earliest creation delivers."""
        begins = []
        for context, start, _ in self.creations.values():
            if start is None:
                begins.append(context.get(replica_id, 0))
            else:
                begins.append(by_number.number_upto(log, start) if start else 0)
        return min(begins)

    def known_acknowledged(self, replica_id: int) -> list[Ranges]:
        """The numbers of a replica ID that any region acknowledged, except hidden ones.

        There is one set for each creation. The caller must not change the sets.
        """
        hidden = self.hidden.get(replica_id)
        return [
            some.without(hidden)
            for by_replica_id in self.acknowledged.values()
            if (some := by_replica_id.get(replica_id)) is not None
        ]

    def acknowledged_of(self, replica_id: int) -> list[Ranges]:
        """The acknowledged numbers of a replica ID for each creation, hidden ones included."""
        return [each.get(replica_id, Ranges()) for each in self.acknowledged.values()]

    def is_acknowledged(self, replica_id: int, number: int) -> bool:
        """Whether an entry counts as acknowledged."""
        return any(number in some for some in self.known_acknowledged(replica_id))

    def spans(self, replica_id: int, log: RegionLog, limit: int = -1) -> Iterable[Span]:
        """Live entries of a replica ID to deliver, ascending, at most ``limit`` (-1: all)."""
        return limited(self._spans(replica_id, log), limit)

    def _spans(self, replica_id: int, log: RegionLog) -> Iterator[Span]:
        for low, high in self.gaps(replica_id, log):
            yield from by_number.spans(log, low, high)

    def has(self, replica_id: int, log: RegionLog) -> bool:
        """Whether a log has an entry to deliver."""
        return any(
            next(by_number.spans(log, low, high), None) is not None
            for low, high in self.gaps(replica_id, log)
        )

    def is_undelivered(self, logs: Logs, entry_id: int) -> bool:
        """Whether a live entry with this ID must still be delivered."""
        for replica_id, log in logs.items():
            if (found := log.find(entry_id)) is not None:
                block, index = found
                number = block.number(index)
                if any(low < number <= high for low, high in self.gaps(replica_id, log)):
                    return True
        return False

    @property
    def delivered_end(self) -> int:
        """Nothing above this ID was delivered; what is below it may be missing."""
        return MAX_ID

    def number_of(self, logs: Logs, replica_id: int, entry_id: int) -> int:
        """The number of a live entry, which exists."""
        found = logs[replica_id].find(entry_id)
        assert found is not None
        block, index = found
        return block.number(index)

    # -- entries-read and lag -----------------------------------------------------------------

    def lag(self, stream: Counted) -> int | None:
        """Entries not yet delivered to the group: counted, and so always known."""
        return sum(self.exact_lag(stream.logs).values())

    def read_count(self, stream: Counted) -> int | None:
        """The entries-read of the group: counted, and so always known."""
        read = self.counted_read(stream) + self._read_offset()
        return min(max(read, 0), stream.entries_added)

    def entries_read_after(self, stream: Counted, ids: Sequence[int]) -> int | None:
        """None: among several regions entries-read is counted, not stored."""
        return None

    def counted_read(self, stream: Counted) -> int:
        """The count of passed entries of all regions, without the differences from ENTRIESREAD."""
        return stream.entries_added - sum(
            [self._unread(replica_id, log) for replica_id, log in stream.logs.items()]
        )

    def begin_to_count(self, stream: Counted, entries_read: int | None) -> None:
        """Begin at another place; entries-read continues from a number, if one is given."""
        self.place(stream.logs, anew=True)
        if entries_read is not None:
            self.offset = entries_read - self.counted_read(stream)

    def _cursor(self, replica_id: int, log: RegionLog) -> int:
        """The greatest number of a replica ID up to which nothing must be delivered any more."""
        cursor = 0 if replica_id in self.rewound else self.begin_of(replica_id, log)
        if delivered := self.delivered.get(replica_id):
            cursor = max(cursor, delivered.highs[-1])
        for acknowledged in self.known_acknowledged(replica_id):
            if acknowledged:
                cursor = max(cursor, acknowledged.highs[-1])
        return cursor

    def place(self, logs: Logs, *, anew: bool = False) -> None:
        """Record how far the group has come in these logs; ``anew`` if it may have gone back.

        Entries right above that place that were deleted count as read. As long as no entry is
        removed, the same result can be computed later, so a delivery need not do it.
        """
        if anew:
            self.settled.clear()
        for replica_id, log in logs.items():
            cursor = self._cursor(replica_id, log)
            known = self.places.get(replica_id)
            if known is None or cursor > known.number or anew:
                self.places[replica_id] = Passed(cursor, by_number.position_above(log, cursor))

    def keep_place(self, replica_id: int, log: RegionLog, high: int) -> None:
        """Call this before entries up to a number are removed, unless the place is settled."""
        known = self.places.get(replica_id)
        if known is None or high > known.number:
            self.place({replica_id: log})
            # Entries up to the start of a creation may still be added; IDs of a log ascend.
            if log.newest_id > max(creation.start or -1 for creation in self.creations.values()):
                self.settled[replica_id] = None

    def _unread(self, replica_id: int, log: RegionLog) -> int:
        """The count of entries of a replica ID that the group has not passed, live or deleted.

        Below its place only live entries count.
        """
        known = self.places.get(replica_id)
        cursor = self._cursor(replica_id, log)
        if known is None or cursor > known.number:
            position = by_number.position_above(log, cursor)
        else:
            cursor, position = known
        position = max(position, log.base)
        below = sum(
            [
                by_number.count(log, low, min(high, cursor))
                for low, high in self.gaps(replica_id, log)
                if low < cursor
            ]
        )
        return log.next_position - position + below

    def _read_offset(self) -> int:
        """The sum of what ENTRIESREAD of XGROUP adds: the greatest difference of all creations."""
        if self.offset is not None:
            return self.offset
        return max(creation.offset for creation in self.creations.values())

    # -- invariants ---------------------------------------------------------------------------

    @property
    def is_blank(self) -> bool:
        """Whether nothing is recorded, as in a region alone."""
        return not (
            self.creations or self.acknowledged or self.delivered or self.hidden
            or self.rewound or self.places or self.settled
        )  # fmt: skip

    def check(self) -> None:
        """Assert the invariants of what regions share."""
        assert self.creations
        assert set(self.acknowledged) <= set(self.creations)
        for by_replica_id in (self.delivered, self.hidden, *self.acknowledged.values()):
            for ranges in by_replica_id.values():
                ranges.check()


NOTHING_SHARED_OF_GROUP: Final = SharedProgress(0)
"""What regions share of a group of a region alone; nobody writes to it."""


def _add_delivered(delivered: Ranges, log: RegionLog, numbers: list[int]) -> None:
    """Record delivered entries with the numbers between each of them and the live entry before it.

    No entry will ever have these: they belong to other keys, or to entries that are gone. So
    what is delivered in order is one interval, whatever the numbers of its entries.
    """
    first = numbers[0]
    low = delivered.end_below(first)
    if next(by_number.spans(log, low, first - 1), None) is not None:
        low = first - 1
    given = set(numbers)
    for block, index, stop in by_number.spans(log, first - 1, numbers[-1]):
        for number in block.numbers_of(index, stop):
            if number in given:
                delivered.add(low, number)
            low = number
    if len(delivered) > 1:  # what was trimmed needs no intervals
        trimmed = min(by_number.oldest_number(log) - 1, delivered.highs[-1])
        delivered.add(delivered.lows[0], trimmed)
