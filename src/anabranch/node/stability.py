"""Watches what a region keeps because some member may not have it on its disk yet."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.config.settings import Settings
from anabranch.keyspace.version_vectors import covers
from anabranch.node.local import RegionLocal
from anabranch.replication.held import HeldTagWatch
from anabranch.replication.replicator import Replicator
from anabranch.replication.tombstone_watch import TombstoneWatch


class StabilityWatch:
    """Reports tombstones and held tags that are too many, and measures how old they are."""

    def __init__(self, local: RegionLocal, settings: Settings) -> None:
        self._local = local
        self._replica = local.replica
        self._settings = settings
        # Effects that some disk may lack, and since when:
        self._unstable: tuple[Mapping[int, int], float] = ({}, 0.0)
        self._tombstones = TombstoneWatch()
        self._held_tags = HeldTagWatch()

    def observe(self, replicator: Replicator, now_ms: float) -> None:
        """Time has passed: report what has become too much, or is no longer."""
        replica = self._replica
        awaited, _ = self._unstable
        if covers(replica.watermark, awaited):
            self._unstable = dict(replica.vector), now_ms

        def report(event: str, tombstones: int) -> None:
            late = ",".join(map(str, self._late(replicator)))
            self._local.report_event(event, marks=tombstones, held_back_by=late)

        most = self._settings.max_unstable_marks
        self._tombstones.observe(replica.unstable_tombstones, replica.vector, now_ms, most, report)
        most = self._settings.max_held_tags
        self._held_tags.report(replica.conflicts, now_ms, most, self._local.report_event)

    def _late(self, replicator: Replicator) -> list[int]:
        """The regions that hold back the oldest tombstone; none if there is no tombstone."""
        oldest = self._replica.oldest_tombstone
        return replicator.figures.holding_back(dict([oldest])) if oldest else []

    def facts(self, replicator: Replicator, now_ms: float) -> dict[str, int | float | str]:
        """Figures for INFO: counts, ages in seconds, and who holds back the oldest tombstone."""
        replica = self._replica
        awaited, since_ms = self._unstable
        is_stable = covers(replica.watermark, awaited)
        oldest_ms = self._tombstones.oldest_ms(replica.unstable_tombstones, now_ms)
        return {
            "unstable_seconds": 0.0 if is_stable else (now_ms - since_ms) / 1000,
            "unstable_marks": len(replica.unstable_tombstones),
            "forgotten_marks": replica.tombstones_forgotten,
            "oldest_mark_seconds": oldest_ms / 1000,
            "oldest_mark_held_back_by": ",".join(map(str, self._late(replicator))),
        }
