"""Rates of the last moments, for INFO's ``instantaneous_*`` fields.

A short row of samples of counters that only grow; the rate is what was added between the oldest
and the newest sample, per second.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["Rates"]

_SAMPLES_MAX: Final = 17  # 16 intervals, 1.6 seconds at the shortest distance
_DISTANCE_MS: Final = 100


class Rates:
    """Growth per second of some counters, always given in the same order."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._samples: deque[tuple[int, tuple[int, ...]]] = deque(maxlen=_SAMPLES_MAX)

    def sample(self, now_ms: int, *counters: int) -> None:
        """Note where the counters stand; calls at short distance cost nothing."""
        samples = self._samples
        if samples and now_ms < samples[-1][0]:  # the clock was put back
            samples.clear()
        if not samples or now_ms - samples[-1][0] >= _DISTANCE_MS:
            samples.append((now_ms, counters))

    def reset(self) -> None:
        """The counters were set back (CONFIG RESETSTAT)."""
        self._samples.clear()

    def per_second(self) -> tuple[float, ...]:
        """The rates, 0 until there are two samples."""
        if len(self._samples) < 2:
            return (0.0,) * self._width
        first_ms, first = self._samples[0]
        last_ms, last = self._samples[-1]
        seconds = (last_ms - first_ms) / 1000
        return tuple(
            max(new - old, 0) / seconds for old, new in zip(first, last, strict=True)
        )
