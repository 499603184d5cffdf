"""A consumer group of a region alone: its progress is one ID, exactly as in Redis.

No other region creates or acknowledges concurrently: the entries up to last-delivered-id were
delivered to the group. What regions share of a group is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.stream.counters import Counted, entries_read_after, lag
from anabranch.stream.group import Group
from anabranch.stream.group_pending import GroupPending
from anabranch.stream.group_progress import Creation, Logs, Vector
from anabranch.stream.pending import Consumer
from anabranch.stream.region_log import RegionLog, Span
from anabranch.stream.shared import Dot


class LoneGroup(Group):
    """A group of a stream that only this server writes; the stream makes it."""

    __slots__ = ()

    def begin(
        self, stream: Counted, dot: Dot, creation: Creation, entries_read: int | None
    ) -> None:
        """entries-read begins with the value of ENTRIESREAD."""
        self.entries_read = entries_read

    def restart(
        self, stream: Counted, seen: Vector, last_id: int | None, entries_read: int | None
    ) -> None:
        """XGROUP SETID."""
        self.last_delivered_id = stream.last_id if last_id is None else last_id
        self.entries_read = entries_read

    def advance(self, logs: Logs, last_id: int) -> None:
        """XCLAIM LASTID: entries-read stays."""
        self.see(last_id)

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
        """Record a delivery; ``entries_read`` is the new counter of the group."""
        self.see(ids[-1])
        self.entries_read = entries_read
        if pending:
            self.deliver(replica_id, ids, consumer, now_ms)

    def claim(
        self,
        logs: Logs,
        replica_id: int,
        entry_id: int,
        owner: Consumer | None,
        delivery_ms: int,
        count: int,
    ) -> None:
        """As :meth:`assign`."""
        self.assign(replica_id, entry_id, owner, delivery_ms, count)

    # -- what is left to deliver --------------------------------------------------------------

    def spans(self, replica_id: int, log: RegionLog, limit: int = -1) -> Iterable[Span]:
        """Live entries to deliver, ascending."""
        return log.spans_from(self.last_delivered_id + 1, limit)

    def has(self, replica_id: int, log: RegionLog) -> bool:
        """Whether there is such an entry."""
        return log.last_id > self.last_delivered_id

    def _begin(self, replica_id: int, log: RegionLog) -> int:
        return log.number_upto(self.last_delivered_id)

    def is_undelivered(self, logs: Logs, entry_id: int) -> bool:
        """Whether a live entry with this ID must still be delivered."""
        return entry_id > self.last_delivered_id

    @property
    def delivered_end(self) -> int:
        """Nothing above this ID was delivered."""
        return self.last_delivered_id

    # -- entries-read and lag -----------------------------------------------------------------

    def entries_read_after(self, stream: Counted, ids: Sequence[int]) -> int | None:
        """By Redis's rules."""
        return entries_read_after(stream, self.entries_read, self.last_delivered_id, ids)

    def read_count(self, stream: Counted) -> int | None:
        """By Redis's rules; None where Redis answers null."""
        return self.entries_read

    def lag(self, stream: Counted) -> int | None:
        """By Redis's rules; None where Redis answers null."""
        return lag(stream, self.entries_read, self.last_delivered_id)

    def check(self) -> None:
        """Assert that nothing is shared, and that no entry is named by its number."""
        GroupPending.check(self)
        for table in (self.creations, self.acknowledged, self.delivered, self.hidden, self.runs):
            assert not table
        for pending in self.pending.values():
            assert not any(entry.number for entry in pending.entries.values())
