"""Returns freed memory of the C library to the system while the server rests.

Python returns its own arenas. Blocks of more than 512 bytes come from the C library, which returns
only the end of its heap unless ``malloc_trim`` is called. A call takes about 50 ms for a gigabyte,
so it is made while the server rests, and rarely if it takes long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_LOOK_EVERY_S: Final = 5.0
_REST_SHARE: Final = 0.05
"""The server rests while it uses less than this share of a core."""
_WORTH_CPU_S: Final = 0.2
"""After less work than this, no call is made."""
_WORTH_BYTES: Final = 1 << 20
"""A call is made all the same if so much was freed since the last one."""
_COST_SHARE: Final = 0.001
"""The greatest share of the time that the calls may take."""


def _libc_trim() -> Callable[[int], int] | None:
    """``malloc_trim`` of the GNU C library; other libraries do not have it."""
    import ctypes  # noqa: PLC0415 - slow, and not needed at the start

    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return trim


class Heap:
    """Observes the CPU time of the process, and returns memory while it rests."""

    def __init__(
        self,
        trim: Callable[[int], int] | None = None,
        *,
        cpu_s: Callable[[], float] = time.process_time,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``trim`` is ``malloc_trim``, if not given; the clocks are the system's."""
        self._trim = trim
        self._cpu_s = cpu_s
        self._now_s = now_s
        self._looked = now_s(), cpu_s()
        self._given_back_at_cpu_s = 0.0
        self._not_before_s = 0.0
        self._given_back_at_bytes = 0

    def tick(self, freed_bytes: int = 0) -> None:
        """Return memory if the server rests and it is time.

        ``freed_bytes`` is what the compression of streams has freed since the start.
        """
        now_s = self._now_s()
        before_s, before_cpu_s = self._looked
        if now_s - before_s < _LOOK_EVERY_S:
            return
        cpu_s = self._cpu_s()
        self._looked = now_s, cpu_s
        rests = cpu_s - before_cpu_s < _REST_SHARE * (now_s - before_s)
        is_worth_it = (
            cpu_s - self._given_back_at_cpu_s > _WORTH_CPU_S
            or freed_bytes - self._given_back_at_bytes > _WORTH_BYTES
        )
        if rests and is_worth_it and now_s > self._not_before_s:
            self._given_back_at_bytes = freed_bytes
            self.give_back()

    def give_back(self) -> None:
        """Return unused memory to the system at once."""
        trim = self._trim = self._trim or _libc_trim()
        if trim is None:
            return
        began_s = self._now_s()
        trim(0)
        ended_s = self._now_s()
        self._not_before_s = ended_s + (ended_s - began_s) / _COST_SHARE
        self._given_back_at_cpu_s = self._cpu_s()
