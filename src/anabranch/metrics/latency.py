"""The latency monitor, and what command histograms say about latency.

The monitor keeps, per event (``command``, ``fast-command``), the worst latency of each second in
which one reached ``latency-monitor-threshold`` milliseconds, for the latest 160 such seconds.
Histograms are those of :class:`~anabranch.metrics.stats.CommandStats`: powers of two of
nanoseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from anabranch.metrics.slowlog import NEVER_NS

_SAMPLES_MAX: Final = 160


class LatencyEvent:
    """The spikes of one kind of event, oldest first, as ``(unix second, worst ms)``."""

    def __init__(self) -> None:
        self.samples: deque[tuple[int, int]] = deque(maxlen=_SAMPLES_MAX)
        self.max_ms = 0

    def record(self, unix_seconds: int, ms: int) -> None:
        """Note a spike; within one second only the worst counts."""
        self.max_ms = max(self.max_ms, ms)
        if self.samples and self.samples[-1][0] == unix_seconds:
            ms = max(ms, self.samples.pop()[1])
        self.samples.append((unix_seconds, ms))


class LatencyMonitor:
    """Latency spikes by event. Requests shorter than ``threshold_ns`` need no call."""

    def __init__(self, threshold_ms: int = 0) -> None:
        self.threshold_ns = NEVER_NS
        self.events: dict[str, LatencyEvent] = {}
        self.set_threshold_ms(threshold_ms)

    @property
    def enabled(self) -> bool:
        """Whether a threshold is set."""
        return self.threshold_ns < NEVER_NS

    def set_threshold_ms(self, threshold_ms: int) -> None:
        """Take over ``latency-monitor-threshold``; 0 switches the monitor off."""
        self.threshold_ns = threshold_ms * 1_000_000 if threshold_ms > 0 else NEVER_NS

    def record(self, event: str, unix_seconds: int, ms: int) -> None:
        """Note a spike of an event."""
        if event not in self.events:
            self.events[event] = LatencyEvent()
        self.events[event].record(unix_seconds, ms)

    def reset(self, names: Sequence[str] = ()) -> int:
        """Forget some events, or all when none is named; returns how many there were."""
        doomed = [name for name in names or list(self.events) if name in self.events]
        for name in doomed:
            del self.events[name]
        return len(doomed)


def cumulative_usec(histogram: Sequence[int]) -> list[tuple[int, int]]:
    """``(bucket, calls that took no longer)`` for every bucket that adds calls.

    Buckets are powers of two of microseconds, counted as 1024 ns: the first holds all below.
    """
    pairs: list[tuple[int, int]] = []
    total = 0
    for power, count in enumerate(histogram):
        if not count:
            continue
        total += count
        bucket = 1 << max(power - 10, 0)
        if pairs and pairs[-1][0] == bucket:
            pairs.pop()
        pairs.append((bucket, total))
    return pairs


def percentile_usec(histogram: Sequence[int], percentile: float) -> float:
    """Latency in microseconds below which ``percentile`` per cent of the calls stayed.

    Within a bucket calls are taken to be spread evenly; 0 without calls.
    """
    wanted = sum(histogram) * percentile / 100
    seen = 0
    for power, count in enumerate(histogram):
        if count and seen + count >= wanted:
            low = (1 << power) / 2 if power else 0.0
            high = float(1 << power)
            return (low + (high - low) * max(wanted - seen, 0) / count) / 1000
        seen += count
    return 0.0
