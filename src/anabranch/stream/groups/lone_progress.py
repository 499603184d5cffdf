"""The progress of a consumer group in a region alone: one ID, exactly as in Redis.

No other region creates or acknowledges concurrently: the entries up to last-delivered-id were
delivered to the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.compiling import mypyc_attr
from anabranch.stream import by_number
from anabranch.stream.counters import Counted, entries_read_after, lag
from anabranch.stream.groups.progress import Creation, GroupProgress, Logs, Vector
from anabranch.stream.region_log import RegionLog, Span
from anabranch.stream.shared import Dot


@mypyc_attr(acyclic=True)
class LoneProgress(GroupProgress):
    """last-delivered-id and entries-read."""

    def begin(
        self, stream: Counted, dot: Dot, creation: Creation, entries_read: int | None
    ) -> None:
        """entries-read begins with the value of ENTRIESREAD."""
        self.entries_read = entries_read

    def hand_out(
        self,
        log: RegionLog,
        replica_id: int,
        newest_id: int,
        numbers: list[int],
        entries_read: int | None,
    ) -> None:
        """Raise last-delivered-id; entries-read is computed by the command."""
        self.see(newest_id)
        self.entries_read = entries_read

    def restart(
        self, stream: Counted, seen: Vector, last_id: int | None, entries_read: int | None
    ) -> None:
        """XGROUP SETID; ``last_id`` None is ``$``."""
        self.last_delivered_id = stream.last_id if last_id is None else last_id
        self.entries_read = entries_read

    def advance(self, logs: Logs, last_id: int) -> None:
        """XCLAIM LASTID: entries-read stays."""
        self.see(last_id)

    # -- what is left to deliver --------------------------------------------------------------

    def gaps(self, replica_id: int, log: RegionLog) -> Iterable[tuple[int, int]]:
        """At most one interval of numbers ``(low, high]``."""
        low, high = by_number.number_upto(log, self.last_delivered_id), log.newest_number
        return [(low, high)] if low < high else []

    def spans(self, replica_id: int, log: RegionLog, limit: int = -1) -> Iterable[Span]:
        """Live entries to deliver, ascending, at most ``limit`` (-1: all)."""
        return log.spans_from(self.last_delivered_id + 1, limit)

    def has(self, replica_id: int, log: RegionLog) -> bool:
        """Whether the log has an entry to deliver."""
        return log.last_id > self.last_delivered_id

    def is_undelivered(self, logs: Logs, entry_id: int) -> bool:
        """Whether a live entry with this ID must still be delivered."""
        return entry_id > self.last_delivered_id

    @property
    def delivered_end(self) -> int:
        """Nothing above this ID was delivered."""
        return self.last_delivered_id

    def number_of(self, logs: Logs, replica_id: int, entry_id: int) -> int:
        """0: pending entries are known by their IDs."""
        return 0

    # -- entries-read and lag -----------------------------------------------------------------

    def entries_read_after(self, stream: Counted, ids: Sequence[int]) -> int | None:
        """The entries-read after a delivery, by the rules of Redis; None if unknown."""
        return entries_read_after(stream, self.entries_read, self.last_delivered_id, ids)

    def read_count(self, stream: Counted) -> int | None:
        """By Redis's rules; None where Redis answers null."""
        return self.entries_read

    def lag(self, stream: Counted) -> int | None:
        """By Redis's rules; None where Redis answers null."""
        return lag(stream, self.entries_read, self.last_delivered_id)
