"""The age of the log, roughly: enough to find what is older than a limit."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

__all__ = ["Ages"]

NOTED_EVERY_MS: Final = 60_000
"""So much more than the limit may be kept while the log is written to."""


class Ages:
    """Positions of the log, and for each the newest time of a batch up to there.

    Times are by the clocks of the batches' regions. A batch never counts as older than an earlier
    batch in the log, so a clock that is ahead keeps more of the log than necessary, never less.
    """

    def __init__(self) -> None:
        self._positions = array("Q")
        self._times = array("Q")
        self._newest_ms = 0

    def record(self, position: int, wall_ms: int) -> None:
        """A batch of this time stands at a position, behind all others."""
        self._newest_ms = max(self._newest_ms, wall_ms)
        if not self._times or self._newest_ms - self._times[-1] >= NOTED_EVERY_MS:
            self._positions.append(position)
            self._times.append(self._newest_ms)

    def prune(self, position: int) -> None:
        """The log begins there now."""
        gone = bisect_left(self._positions, position)
        del self._positions[:gone], self._times[:gone]

    def older_than(self, wall_ms: int, end: int) -> int:
        """A position before which everything is older than this; ``end`` is that of the log."""
        if self._newest_ms < wall_ms:
            return end
        at = bisect_left(self._times, wall_ms) - 1
        return self._positions[at] if at >= 0 else 0
