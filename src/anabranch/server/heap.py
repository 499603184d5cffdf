"""Memory that was freed and that the C library keeps is given back to the system, at rest.

Python's own arenas are returned by Python. What is larger than 512 bytes comes from the C library,
which returns only what lies at the end of its heap, unless it is asked to look for more. That takes
some 50 ms for a gigabyte, so it is done when nothing else is, and rarely if it takes long.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Final

__all__ = ["Heap"]

_LOOK_EVERY_S: Final = 5.0
_REST_SHARE: Final = 0.05
"""Less of a core than this is rest."""
_WORTH_CPU_S: Final = 0.2
"""After less work than this there is nothing to give back."""
_COST_SHARE: Final = 0.001
"""It takes no more of the time than this."""


def _libc_trim() -> Callable[[int], int] | None:
    """``malloc_trim`` of the GNU C library; other libraries have nothing like it."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return trim


class Heap:
    """Watches how much the process does, and gives back when it rests."""

    def __init__(
        self,
        trim: Callable[[int], int] | None = None,
        *,
        cpu_s: Callable[[], float] = time.process_time,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``trim`` is ``malloc_trim``, if not given; the clocks are the system's."""
        self._trim = trim or _libc_trim()
        self._cpu_s = cpu_s
        self._now_s = now_s
        self._looked = now_s(), cpu_s()
        self._given_back_at_cpu_s = 0.0
        self._not_before_s = 0.0

    def tick(self) -> None:
        """Look now and then whether it is time."""
        now_s = self._now_s()
        before_s, before_cpu_s = self._looked
        if now_s - before_s < _LOOK_EVERY_S:
            return
        cpu_s = self._cpu_s()
        self._looked = now_s, cpu_s
        rests = cpu_s - before_cpu_s < _REST_SHARE * (now_s - before_s)
        if (
            rests
            and cpu_s - self._given_back_at_cpu_s > _WORTH_CPU_S
            and now_s > self._not_before_s
        ):
            self.give_back()

    def give_back(self) -> None:
        """Give back what there is, at once."""
        if self._trim is None:
            return
        began_s = self._now_s()
        self._trim(0)
        ended_s = self._now_s()
        self._not_before_s = ended_s + (ended_s - began_s) / _COST_SHARE
        self._given_back_at_cpu_s = self._cpu_s()
