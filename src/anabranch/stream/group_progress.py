"""The progress of a consumer group: what must still be delivered, and what the group has passed.

Where several regions write, progress is never one ID: entries of another region may arrive later
with lower IDs, and the group must deliver them. So each region delivers the entries that were
neither delivered here nor acknowledged anywhere; their numbers say which these are. In a region
alone one ID is enough: :mod:`anabranch.stream.lone_group`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from anabranch.stream.counters import Counted
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.group_pending import GroupPending
from anabranch.stream.merge import limited
from anabranch.stream.ranges import Ranges, gaps
from anabranch.stream.region_log import RegionLog, Span
from anabranch.stream.shared import Dot

Logs = Mapping[int, RegionLog]
"""The logs of a stream, by replica ID."""

Vector = Mapping[int, int]
"""By replica ID, the number up to which its effects were applied."""


class Creation(NamedTuple):
    """One XGROUP CREATE."""

    context: Vector
    """The version vector of the region that created the group, at that moment."""
    start: int | None
    """The group delivers the entries above this ID; None: those outside of the context (``$``)."""
    offset: int = 0
    """The difference between ENTRIESREAD and the count."""


class Place(NamedTuple):
    """How far a group had come in the log of a replica ID when its cursor last moved."""

    number: int
    """The number of the last entry that was delivered, or need not be delivered any more."""
    position: int
    """The position of the first live entry behind it, or of the next entry if there is none."""


class GroupProgress(GroupPending):
    """What regions share of a group, and what was delivered here."""

    __slots__ = (
        "acknowledged",
        "creations",
        "delivered",
        "entries_read",
        "hidden",
        "last_delivered_id",
        "offset",
        "places",
        "rewound",
        "settled",
    )

    def __init__(self, last_delivered_id: int, entries_read: int | None = None) -> None:
        super().__init__()
        self.last_delivered_id = last_delivered_id
        self.entries_read = entries_read  # of a region alone, where it is kept; None: unknown
        self.creations: dict[Dot, Creation] = {}
        self.acknowledged: dict[Dot, dict[int, Ranges]] = {}  # creation -> replica ID -> numbers
        # this region's own part, by replica ID
        self.delivered: dict[int, Ranges] = {}
        self.hidden: dict[int, Ranges] = {}  # acknowledgements that XGROUP SETID cancels here
        self.rewound: dict[
            int, None
        ] = {}  # replica IDs whose start is from SETID, not from a creation
        self.places: dict[int, Place] = {}
        # Replica IDs whose place stays: only what clears this moves the cursor in their logs
        self.settled: dict[int, None] = {}
        self.offset: int | None = None  # of XGROUP SETID: replaces that of the creations

    def see(self, entry_id: int) -> None:
        """Raise last-delivered-id: an entry was delivered here, or acknowledged by some region."""
        self.last_delivered_id = max(self.last_delivered_id, entry_id)

    def begin(
        self, stream: Counted, dot: Dot, creation: Creation, entries_read: int | None
    ) -> None:
        """Record that the group was created, or created again by another region.

        ``entries_read`` is the ENTRIESREAD of the command; the creation contains its difference to
        the count.
        """
        self.creations[dot] = creation
        self.place(stream.logs, anew=True)

    def drop_creation(self, dot: Dot) -> None:
        """Drop a removed creation, with its acknowledgements."""
        del self.creations[dot]
        self.acknowledged.pop(dot, None)
        self.settled.clear()

    # -- what is left to deliver --------------------------------------------------------------

    def gaps(self, replica_id: int, log: RegionLog) -> Iterator[tuple[int, int]]:
        """Intervals of numbers ``(low, high]`` of a replica ID that this region may deliver."""
        top = log.newest_number
        begin = 0 if replica_id in self.rewound else self._begin(replica_id, log)
        if begin >= top:
            return
        done = self._acknowledged(replica_id)
        if (delivered := self.delivered.get(replica_id)) is not None:
            done.append(delivered)
        yield from gaps(done, begin, top)

    def _begin(self, replica_id: int, log: RegionLog) -> int:
        """The number from which on the earliest creation delivers."""
        begins = []
        for context, start, _ in self.creations.values():
            if start is None:
                begins.append(context.get(replica_id, 0))
            else:
                begins.append(log.number_upto(start) if start else 0)
        return min(begins)

    def _acknowledged(self, replica_id: int) -> list[Ranges]:
        """The numbers of a replica ID that any region acknowledged, except hidden ones.

        There is one set for each creation. The caller must not change the sets.
        """
        hidden = self.hidden.get(replica_id)
        return [
            some.without(hidden)
            for by_replica_id in self.acknowledged.values()
            if (some := by_replica_id.get(replica_id)) is not None
        ]

    def is_acknowledged(self, replica_id: int, number: int) -> bool:
        """Whether an entry counts as acknowledged."""
        return any(number in some for some in self._acknowledged(replica_id))

    def spans(self, replica_id: int, log: RegionLog, limit: int = -1) -> Iterable[Span]:
        """Live entries of a replica ID to deliver, ascending, at most ``limit`` (-1: all)."""
        return limited(self._spans(replica_id, log), limit)

    def _spans(self, replica_id: int, log: RegionLog) -> Iterator[Span]:
        for low, high in self.gaps(replica_id, log):
            yield from log.spans_numbered(low, high)

    def count(self, replica_id: int, log: RegionLog) -> int:
        """The count of these entries; O(intervals x log n)."""
        return sum(log.count_numbered(low, high) for low, high in self.gaps(replica_id, log))

    def has(self, replica_id: int, log: RegionLog) -> bool:
        """Whether there is such an entry."""
        return any(
            next(log.spans_numbered(low, high), None) is not None
            for low, high in self.gaps(replica_id, log)
        )

    def is_undelivered(self, logs: Logs, entry_id: int) -> bool:
        """Whether such an entry has this ID."""
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

    def exact_lag(self, logs: Logs) -> dict[int, int]:
        """By replica ID, the count of live entries that were not delivered to the group."""
        return {replica_id: self.count(replica_id, log) for replica_id, log in logs.items()}

    def lag(self, stream: Counted) -> int | None:
        """Entries not yet delivered to the group, None where Redis answers null.

        Where several regions write it is counted, and so always known.
        """
        return sum(self.exact_lag(stream.logs).values())

    # -- entries-read -------------------------------------------------------------------------

    def read_count(self, stream: Counted) -> int | None:
        """The entries-read of the group; None: unknown."""
        read = self.counted_read(stream) + self.read_offset()
        return min(max(read, 0), stream.entries_added)

    def entries_read_after(self, stream: Counted, ids: Sequence[int]) -> int | None:
        """``entries_read`` after a delivery of these entries; None: it is not stored."""
        return None

    def counted_read(self, stream: Counted) -> int:
        """The count of passed entries of all regions, without the differences from ENTRIESREAD."""
        return stream.entries_added - sum(
            self.unread(replica_id, log) for replica_id, log in stream.logs.items()
        )

    def begin_to_count(self, stream: Counted, entries_read: int | None) -> None:
        """Begin at another place; entries-read continues from a number, if one is given."""
        self.place(stream.logs, anew=True)
        if entries_read is not None:
            self.offset = entries_read - self.counted_read(stream)

    def _cursor(self, replica_id: int, log: RegionLog) -> int:
        """The greatest number of a replica ID up to which nothing must be delivered any more."""
        cursor = 0 if replica_id in self.rewound else self._begin(replica_id, log)
        if delivered := self.delivered.get(replica_id):
            cursor = max(cursor, delivered.highs[-1])
        for acknowledged in self._acknowledged(replica_id):
            if acknowledged:
                cursor = max(cursor, acknowledged.highs[-1])
        return cursor

    def place(self, logs: Logs, *, anew: bool = False) -> None:
        """Record how far the group has come in these logs; ``anew`` if it may have gone back.

        Entries that were deleted right behind that place count as read. As long as no entry is
        removed, the same result can be computed later, so a delivery need not do it.
        """
        if anew:
            self.settled.clear()
        for replica_id, log in logs.items():
            cursor = self._cursor(replica_id, log)
            known = self.places.get(replica_id)
            if known is None or cursor > known.number or anew:
                self.places[replica_id] = Place(cursor, log.position_above(cursor))

    def keep_place(self, replica_id: int, log: RegionLog, high: int) -> None:
        """Call this before entries up to a number are removed, unless the place is settled."""
        known = self.places.get(replica_id)
        if known is None or high > known.number:
            self.place({replica_id: log})
            # Entries up to the start of a creation may still be added; IDs of a log ascend.
            if log.newest_id > max(creation.start or -1 for creation in self.creations.values()):
                self.settled[replica_id] = None

    def unread(self, replica_id: int, log: RegionLog) -> int:
        """The count of entries of a replica ID that the group has not passed, live or deleted.

        Below its place only live entries count.
        """
        known = self.places.get(replica_id)
        cursor = self._cursor(replica_id, log)
        if known is None or cursor > known.number:
            position = log.position_above(cursor)
        else:
            cursor, position = known
        position = max(position, log.base)
        below = sum(
            log.count_numbered(low, min(high, cursor))
            for low, high in self.gaps(replica_id, log)
            if low < cursor
        )
        return log.next_position - position + below

    def read_offset(self) -> int:
        """The sum of what ENTRIESREAD of XGROUP adds: the greatest difference of all creations."""
        if self.offset is not None:
            return self.offset
        return max(creation.offset for creation in self.creations.values())

    def late(self, logs: Logs) -> Iterator[tuple[int, Span]]:
        """``(region, span)`` of live entries to deliver that are not above last-delivered-id.

        They are not sorted by ID.
        """
        last_id = self.last_delivered_id
        for replica_id, log in logs.items():
            top = log.number_upto(last_id)
            for low, high in self.gaps(replica_id, log):
                for span in log.spans_numbered(low, min(high, top)):
                    yield replica_id, span
