"""The only reader of time."""

from __future__ import annotations

import time

__all__ = ["RealClock"]


class RealClock:
    """Wall-clock and monotonic time of the operating system."""

    def now_us(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000

    ticks_ns = staticmethod(time.perf_counter_ns)
    """Nanoseconds of a clock that only goes forward."""

    def sleep(self, seconds: float) -> None:
        """Block the whole process for this time."""
        time.sleep(seconds)
