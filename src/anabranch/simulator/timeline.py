"""Virtual time: a queue of events."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

BEGIN_MS = 1_700_000_000_000


class Timeline:
    """Events by time; those of the same time in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        """Time since the run began."""
        self.events = 0
        """The count of past events."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Call ``action`` after a delay."""
        self._count += 1
        heapq.heappush(self._queue, (self.now_ms + max(delay_ms, 0.0), self._count, action))

    def run_until(self, until_ms: float) -> None:
        """Run all events up to a time."""
        queue = self._queue
        while queue and queue[0][0] <= until_ms:
            self.now_ms, _, action = heapq.heappop(queue)
            self.events += 1
            action()
        self.now_ms = until_ms


class WallClock:
    """The clock of one machine: it has an offset and a drift, and may be set again."""

    def __init__(self, timeline: Timeline, chance: random.Random) -> None:
        """``chance`` draws how long work takes."""
        self._timeline = timeline
        self._chance = chance
        self.offset_ms = 0.0
        self.drift = 0.0
        """Its error per ms."""
        self.ticks = 0

    def now_us(self) -> int:
        """Microseconds since 1970."""
        elapsed_ms = self._timeline.now_ms * (1 + self.drift)
        return int((BEGIN_MS + elapsed_ms + self.offset_ms) * 1000)

    def cpu_ns(self) -> int:
        """No other work disturbs a simulated process."""
        return self.ticks

    def ticks_ns(self) -> int:
        """For durations: most work takes a microsecond, some much longer."""
        self.ticks += 1000 if self._chance.random() < 0.7 else 2_500_000
        return self.ticks
