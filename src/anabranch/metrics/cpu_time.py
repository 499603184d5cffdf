"""The processor time of a request, without a look at that clock for each one.

Reading the processor clock of a thread is a call of the system. It is read at most once a
millisecond, and when a request turns out to be slow: the time since the last look, at most the
whole time of the request, is that of the request. It may be too long by the work of one millisecond
before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_EVERY_NS: Final = 1_000_000


class CpuTime:
    """The processor time since a mark, of one thread."""

    def __init__(self, cpu_ns: Callable[[], int]) -> None:
        """``cpu_ns`` reads the processor clock, in nanoseconds."""
        self._cpu_ns = cpu_ns
        self._marked_ns = 0
        self._due_ns = 0  # when, by the monotonic clock, the next look is due

    def begin(self, now_ns: int) -> int:
        """Requests begin: mark, unless the last mark is recent; returns ``now_ns``."""
        if now_ns >= self._due_ns:
            self.mark(now_ns)
        return now_ns

    def mark(self, now_ns: int) -> None:
        """Measure from now on; ``now_ns`` is the time of the monotonic clock."""
        self._marked_ns = self._cpu_ns()
        self._due_ns = now_ns + _EVERY_NS

    def since(self) -> int:
        """The processor time since the mark, in nanoseconds."""
        return self._cpu_ns() - self._marked_ns
