"""The only reader of time; the test kit imports it without the server."""

from __future__ import annotations

import time
from collections.abc import Callable

from anabranch.compiling import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class RealClock:
    """Wall-clock and monotonic time of the operating system."""

    def __init__(self) -> None:
        self.ticks_ns: Callable[[], int] = time.perf_counter_ns
        """Nanoseconds of a clock that only goes forward."""
        self._time_ns = time.time_ns

    def now_us(self) -> int:
        """The wall clock in microseconds since 1970."""
        return self._time_ns() // 1000

    def cpu_ns(self) -> int:
        """Nanoseconds for which a processor worked for this thread."""
        return time.thread_time_ns()

    def sleep(self, seconds: float) -> None:
        """Block the whole process for this time."""
        time.sleep(seconds)
