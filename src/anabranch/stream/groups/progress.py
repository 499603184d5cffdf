"""The progress of a consumer group: what must still be delivered, and what the group has passed.

In a region alone one ID says it, as in Redis. Among several regions it takes numbers: the subclass
in :mod:`anabranch.stream.groups.shared_progress` replaces all that differs there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from anabranch.compiling import mypyc_attr
from anabranch.stream import by_number
from anabranch.stream.counters import Counted, entries_read_after, lag
from anabranch.stream.region_log import RegionLog, Span
from anabranch.stream.shared import Dot

Logs = Mapping[int, RegionLog]
"""The logs of a stream, by replica ID."""

Vector = Mapping[int, int]
"""By replica ID, the number up to which its effects were applied."""


class Creation(NamedTuple):
    """What XGROUP CREATE has said of a group, and what its region had seen then."""

    context: Vector
    """The version vector of the region that created the group, at that moment."""
    start: int | None
    """The group delivers the entries above this ID; None: those outside of the context (``$``)."""
    offset: int = 0
    """The difference between ENTRIESREAD and the count."""


@mypyc_attr(acyclic=True)
class GroupProgress:
    """The progress in a region alone: last-delivered-id and entries-read, exactly as in Redis.

    No other region creates or acknowledges concurrently: the entries up to last-delivered-id were
    delivered to the group. It reads logs and changes nothing but itself.
    """

    def __init__(self, last_delivered_id: int, entries_read: int | None = None) -> None:
        self.last_delivered_id = last_delivered_id
        self.entries_read = entries_read
        """As Redis counts it in a region alone, None if unknown; None among several regions."""

    def see(self, entry_id: int) -> None:
        """Raise last-delivered-id: an entry was delivered here, or acknowledged by some region."""
        self.last_delivered_id = max(self.last_delivered_id, entry_id)

    # -- changes ------------------------------------------------------------------------------

    def begin(
        self, stream: Counted, dot: Dot, creation: Creation, entries_read: int | None
    ) -> None:
        """Record that the group was created, or created again by another region.

        ``entries_read`` is the ENTRIESREAD of the command; the creation contains its difference to
        the count.
        """
        self.entries_read = entries_read

    def hand_out(
        self,
        log: RegionLog,
        replica_id: int,
        newest_id: int,
        numbers: list[int],
        entries_read: int | None,
    ) -> None:
        """Record that entries of a replica ID, ascending up to an ID, were delivered here.

        In a region alone they have no numbers, and ``entries_read`` is what it is from now on.
        """
        self.see(newest_id)
        self.entries_read = entries_read

    def restart(
        self, stream: Counted, seen: Vector, last_id: int | None, entries_read: int | None
    ) -> None:
        """XGROUP SETID: deliver what is above an ID, or (None) what was not seen here yet."""
        self.last_delivered_id = stream.last_id if last_id is None else last_id
        self.entries_read = entries_read

    def advance(self, logs: Logs, last_id: int) -> None:
        """XCLAIM LASTID: entries up to an ID count as delivered here; entries-read stays."""
        self.see(last_id)

    # -- what is left to deliver --------------------------------------------------------------

    def gaps(self, replica_id: int, log: RegionLog) -> Iterable[tuple[int, int]]:
        """Intervals of numbers ``(low, high]`` of a replica ID that this region may deliver."""
        low, high = by_number.number_upto(log, self.last_delivered_id), log.newest_number
        return [(low, high)] if low < high else []

    def spans(self, replica_id: int, log: RegionLog, limit: int = -1) -> Iterable[Span]:
        """Live entries of a replica ID to deliver, ascending, at most ``limit`` (-1: all)."""
        return log.spans_from(self.last_delivered_id + 1, limit)

    def has(self, replica_id: int, log: RegionLog) -> bool:
        """Whether a log has an entry to deliver."""
        return log.last_id > self.last_delivered_id

    def is_undelivered(self, logs: Logs, entry_id: int) -> bool:
        """Whether a live entry with this ID must still be delivered."""
        return entry_id > self.last_delivered_id

    @property
    def delivered_end(self) -> int:
        """Nothing above this ID was delivered; what is below it may be missing."""
        return self.last_delivered_id

    def number_of(self, logs: Logs, replica_id: int, entry_id: int) -> int:
        """The number by which the progress knows a live entry; 0: by its ID alone."""
        return 0

    def count(self, replica_id: int, log: RegionLog) -> int:
        """The count of live entries of a replica ID to deliver; O(intervals x log n)."""
        return sum([by_number.count(log, low, high) for low, high in self.gaps(replica_id, log)])

    def exact_lag(self, logs: Logs) -> dict[int, int]:
        """By replica ID, the count of live entries that were not delivered to the group."""
        return {replica_id: self.count(replica_id, log) for replica_id, log in logs.items()}

    def late(self, logs: Logs) -> Iterator[tuple[int, Span]]:
        """``(replica ID, span)`` of live entries to deliver that are not above last-delivered-id.

        They are not sorted by ID.
        """
        last_id = self.last_delivered_id
        for replica_id, log in logs.items():
            top = by_number.number_upto(log, last_id)
            for low, high in self.gaps(replica_id, log):
                for span in by_number.spans(log, low, min(high, top)):
                    yield replica_id, span

    # -- entries-read and lag -----------------------------------------------------------------

    def entries_read_after(self, stream: Counted, ids: Sequence[int]) -> int | None:
        """``entries_read`` after a delivery of these entries, by the rules of Redis."""
        return entries_read_after(stream, self.entries_read, self.last_delivered_id, ids)

    def read_count(self, stream: Counted) -> int | None:
        """The entries-read of the group as clients see it; None where Redis answers null."""
        return self.entries_read

    def lag(self, stream: Counted) -> int | None:
        """Entries not yet delivered to the group, None where Redis answers null."""
        return lag(stream, self.entries_read, self.last_delivered_id)
