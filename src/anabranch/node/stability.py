"""Watches what a region keeps because some member may not have it on its disk yet.

Tombstones and held tags use memory in every region until the last member has them on its disk. So
an operator must know when a member that stays away makes the others keep very many: before the
oldest held tags are dropped, because conflicts with dropped tags are not found any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from anabranch.config.settings import Settings
from anabranch.keyspace.conflicts import Conflicts
from anabranch.keyspace.unstable_tombstones import UnstableTombstones
from anabranch.keyspace.version_vectors import covers, covers_dot
from anabranch.node.local import RegionLocal
from anabranch.replication.replicator import Replicator
from anabranch.stream.entry_id import text

AGAIN_MS: Final = 60_000.0
"""The interval between two reports that there is too much of something."""

Note = Callable[..., None]
"""Takes an event and its facts."""


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


class _Excess:
    """Whether there is too much of something, to be reported once a minute while that lasts."""

    def __init__(self, begins: str, ends: str) -> None:
        """The names of the events."""
        self._begins, self._ends = begins, ends
        self._reported_ms: float | None = None  # None while there is not too much

    def event(self, now_ms: float, *, too_many: bool, few: bool) -> str | None:
        """The event to report now; the report is withdrawn as soon as there are ``few``."""
        if too_many:
            if self._reported_ms is None or now_ms - self._reported_ms >= AGAIN_MS:
                self._reported_ms = now_ms
                return self._begins
        elif self._reported_ms is not None and few:
            self._reported_ms = None
            return self._ends
        return None


class TombstoneWatch:
    """Observes the unstable tombstones of a region. Times are in ms."""

    def __init__(self) -> None:
        self._awaited: dict[int, int] = {}  # applied when the oldest tombstone was first observed
        self._since_ms = 0.0
        self._excess = _Excess("many_marks", "fewer_marks")

    def observe(
        self,
        tombstones: UnstableTombstones,
        vector: Mapping[int, int],
        now_ms: float,
        most: int,
        report: Callable[[str, int], None],
    ) -> None:
        """Observe the tombstones of a region that has applied ``vector``.

        Calls ``report`` when there are more than ``most`` (0: no limit), once a minute while that
        lasts, and once when there are at most nine tenths of ``most`` again.
        """
        oldest = tombstones.oldest
        if oldest is None or not covers_dot(self._awaited, oldest):
            self._awaited, self._since_ms = dict(vector), now_ms
        count = len(tombstones)
        too_many, few = bool(most) and count > most, not most or count * 10 <= most * 9
        if (event := self._excess.event(now_ms, too_many=too_many, few=few)) is not None:
            report(event, count)

    def oldest_ms(self, tombstones: UnstableTombstones, now_ms: float) -> float:
        """The age of the oldest tombstone since this process first observed it."""
        return now_ms - self._since_ms if tombstones else 0.0


class HeldTagWatch:
    """Observes the held tags of a region, and reports the conflicts that they have found."""

    def __init__(self) -> None:
        self._excess = _Excess("many_held_tags", "fewer_held_tags")
        self._dropped = 0
        self._dropped_ms = -AGAIN_MS

    def report(self, conflicts: Conflicts, now_ms: float, most: int, report: Note) -> None:
        """``most`` is ``max-held-tags``, 0: no limit.

        Too many are nine tenths of ``most``; the report is withdrawn below eight tenths.
        """
        self._report_conflicts(conflicts, report)
        count = len(conflicts)
        too_many, few = bool(most) and count * 10 >= most * 9, not most or count * 10 < most * 8
        if (event := self._excess.event(now_ms, too_many=too_many, few=few)) is not None:
            report(event, tags=count, most=most)
        if conflicts.dropped > self._dropped and now_ms - self._dropped_ms >= AGAIN_MS:
            report("held_tags_dropped", tags=conflicts.dropped - self._dropped, most=most)
            self._dropped, self._dropped_ms = conflicts.dropped, now_ms

    def _report_conflicts(self, conflicts: Conflicts, report: Note) -> None:
        """Report the newest conflict that was resolved since the last call, and their count."""
        resolved = conflicts.resolved
        if resolved:
            last = resolved[-1]
            report(
                "idmp_conflict",
                conflicts=len(resolved),
                db=last.db,
                key=last.key.decode(errors="backslashreplace"),
                producer=last.pid.decode(errors="backslashreplace"),
                stays=text(last.stays).decode(),
                goes=text(last.goes).decode() if last.goes else "unknown",
            )
            resolved.clear()
