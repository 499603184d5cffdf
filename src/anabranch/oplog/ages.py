"""The approximate age of parts of the log, to find those that are older than a limit."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

NOTED_EVERY_MS: Final = 60_000
"""The resolution: so much more than the limit may be kept."""


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
        """Record the time of a batch at the end of the log."""
        self._newest_ms = max(self._newest_ms, wall_ms)
        if not self._times or self._newest_ms - self._times[-1] >= NOTED_EVERY_MS:
            self._positions.append(position)
            self._times.append(self._newest_ms)

    def prune(self, position: int) -> None:
        """The log begins at this position now: drop older records."""
        gone = bisect_left(self._positions, position)
        del self._positions[:gone], self._times[:gone]

    def older_than(self, wall_ms: int, end: int) -> int:
        """A position before which all batches are older than a time; ``end`` is that of the log."""
        if self._newest_ms < wall_ms:
            return end
        at = bisect_left(self._times, wall_ms) - 1
        return self._positions[at] if at >= 0 else 0
