"""Reports when too many tags are held, and the conflicts that held tags have found.

Held tags use memory in every region until the last member has them. An operator must know before
the oldest are dropped, because conflicts with dropped tags are not found any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.keyspace.conflicts import Conflicts
from anabranch.stream.entry_id import text

AGAIN_MS: Final = 60_000.0
"""The interval between two reports of too many tags."""

Note = Callable[..., None]


class HeldTagWatch:
    """Observes the held tags of a region. Times are in ms."""

    def __init__(self) -> None:
        self._noted_ms: float | None = None  # the last report, None while there are not too many
        self._dropped = 0
        self._dropped_ms = -AGAIN_MS

    def report(self, conflicts: Conflicts, now_ms: float, most: int, report: Note) -> None:
        """``most`` is ``max-held-tags``, 0: no limit; ``report`` gets an event and its facts.

        Too many are nine tenths of ``most``; the report is withdrawn below eight tenths.
        """
        self._report_conflicts(conflicts, report)
        count = len(conflicts)
        if most and count * 10 >= most * 9:
            if self._noted_ms is None or now_ms - self._noted_ms >= AGAIN_MS:
                self._noted_ms = now_ms
                report("many_held_tags", tags=count, most=most)
        elif self._noted_ms is not None and (not most or count * 10 < most * 8):
            self._noted_ms = None
            report("fewer_held_tags", tags=count, most=most)
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
