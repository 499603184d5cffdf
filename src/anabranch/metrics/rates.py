"""Present rates, for INFO's ``instantaneous_*`` fields.

A few samples of counters that only grow; a rate is the difference between the oldest and the newest
sample, per second.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from anabranch.metrics.stats import Stats

_SAMPLES_MAX: Final = 17  # 16 intervals, 1.6 seconds at the shortest distance
_DISTANCE_MS: Final = 100


class PerSecond(NamedTuple):
    """What happens in a second at present."""

    commands: float = 0.0
    input_bytes: float = 0.0
    output_bytes: float = 0.0


class Rates:
    """The samples of one server."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int, int, int]] = deque(maxlen=_SAMPLES_MAX)

    def sample(self, now_ms: int, stats: Stats) -> None:
        """Note where the counters stand; a call soon after the last one does nothing."""
        samples = self._samples
        if samples and (
            now_ms < samples[-1][0] or stats.commands_processed < samples[-1][1]
        ):  # the clock was put back, or the counters were
            samples.clear()
        if not samples or now_ms - samples[-1][0] >= _DISTANCE_MS:
            samples.append(
                (now_ms, stats.commands_processed, stats.net_input_bytes, stats.net_output_bytes)
            )

    def per_second(self) -> PerSecond:
        """The rates; 0 until there are two samples."""
        if len(self._samples) < 2:
            return PerSecond()
        first, last = self._samples[0], self._samples[-1]
        seconds = (last[0] - first[0]) / 1000
        return PerSecond(
            *[max(new - old, 0) / seconds for old, new in zip(first[1:], last[1:], strict=True)]
        )
