"""Background work for scheduled entries: what is due is added, by one region.

That is the region that has scheduled the entry. When it is removed from the cluster, or was not
heard of for ``schedule-takeover``, the region with the lowest number of those that are there takes
its place. Two regions that cannot see each other may both add an entry: one of both goes when they
hear of each other (:meth:`anabranch.keyspace.timetables.Timetables.added`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.keyspace.database import Database
    from anabranch.region.state import RegionState
    from anabranch.region.waking import Waking

_ENTRIES: Final = 30
"""Entries that are added in one step: a third of a millisecond."""

_THERE_MS: Final = 10_000
"""A region that was heard of within this time is there: rows come every second."""


class DueEntries:
    """Adds what is due."""

    def __init__(self, region: RegionState, waking: Waking) -> None:
        self._region = region
        self._waking = waking

    def begin_if_due(self, now_ms: int) -> None:
        """Do what is due, a slice now and the rest later."""
        if next(self._due(now_ms), None) is not None and self._go_on():
            self._region.scheduler.schedule(self._go_on)

    def _due(self, now_ms: int) -> Iterator[tuple[Database, bytes, int]]:
        """Keys with entries that are due, and the region that has scheduled these."""
        for database in self._region.keyspace.databases:
            for owner, deadlines in list(database.timetables.due.items()):
                if deadlines.first_due(now_ms) is not None and self._acts_for(owner, now_ms):
                    while (key := deadlines.first_due(now_ms)) is not None:
                        yield database, key, owner

    def _acts_for(self, owner: int, now_ms: int) -> bool:
        """Whether this region adds what that one has scheduled."""
        region = self._region
        replica, regions = region.keyspace.replica, region.host.regions
        if owner == replica.region:
            return True
        if regions is None or replica.region not in replica.members:
            return False
        silent_ms = {  # unless it was heard of, since the start of this process
            peer.region: now_ms - region.stats.started_ms
            if peer.row_age_ms is None
            else peer.row_age_ms
            for peer in regions.peers()
        }
        limit_ms = region.settings.schedule_takeover * 1000
        if owner in replica.members and not 0 < limit_ms <= silent_ms.get(owner, 0):
            return False
        there = [
            each
            for each in replica.members
            if each not in (owner, replica.region) and silent_ms.get(each, 0) < _THERE_MS
        ]
        return replica.region < min(there, default=replica.region + 1)

    def _go_on(self) -> bool:
        """A :data:`anabranch.scheduling.Work`."""
        region = self._region
        if region.scheduler.is_exclusive:
            return True
        dispatcher, context = region.dispatcher, region.context
        if dispatcher.write_refusal is not None or dispatcher.pause_until_ms:
            return False  # nothing may change: what is due is looked at again
        if context.ids.refusal or dispatcher.memory_exceeded():
            return False
        now_ms = region.clock.now_us() // 1000
        from anabranch.engine.scheduled import add_due  # noqa: PLC0415 - most servers need none

        context.enter(region.nobody, now_ms)
        is_left = False
        for database, key, owner in self._due(now_ms):
            add_due(context, database, key, owner, _ENTRIES)
            if region.scheduler.is_over():
                is_left = True
                break
        if region.keyspace.ready:
            self._waking.serve()
        return is_left
