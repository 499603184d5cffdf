"""The time of day of a server under test."""

from __future__ import annotations

import time
from collections.abc import Callable

from anabranch.server.clock import RealClock


class Clock(RealClock):
    """A clock that follows the system's clock until a test moves or stops it.

    IDs, deadlines of keys, idle times, the age of idempotent IDs and the time-outs of blocked
    readers follow it. A change takes effect before the method returns.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ahead_us = 0  # of the system's clock
        self._stopped_us: int | None = None
        self._on_change: list[Callable[[], None]] = []

    def on_change(self, look: Callable[[], None]) -> None:
        """Register a function that is called after each change."""
        self._on_change.append(look)

    def now_us(self) -> int:
        """Microseconds since 1970."""
        if self._stopped_us is not None:
            return self._stopped_us
        return time.time_ns() // 1000 + self._ahead_us

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self.now_us() // 1000

    def advance(self, seconds: float) -> None:
        """Advance the time; a stopped clock stays stopped."""
        self._set(self.now_us() + round(seconds * 1_000_000))

    def set(self, ms: int) -> None:
        """Set the time, in milliseconds since 1970."""
        self._set(ms * 1000)

    def freeze(self) -> None:
        """Stop the time at this moment, at a whole millisecond."""
        self._stopped_us = self.now_ms * 1000

    def resume(self) -> None:
        """Start the clock again, from the time at which it was stopped."""
        if self._stopped_us is not None:
            self._ahead_us = self._stopped_us - time.time_ns() // 1000
            self._stopped_us = None

    def reset(self) -> None:
        """Follow the system's clock again, at its time."""
        self._stopped_us = None
        self._ahead_us = 0
        self._tell()

    def _set(self, now_us: int) -> None:
        if self._stopped_us is not None:
            self._stopped_us = now_us
        else:
            self._ahead_us = now_us - time.time_ns() // 1000
        self._tell()

    def _tell(self) -> None:
        for look in self._on_change:
            look()
