"""How the process treats its memory: C allocator and garbage collector.

Allocator: replies of a hundred kilobytes are made and freed thousands of times a second. By
default glibc maps such blocks from the kernel and hands the top of the heap back whenever it can,
so each reply pays again for its pages: XRANGE COUNT 1000 in pipelines cost 210 µs of CPU instead
of 77. So freed memory is kept, and given back when the server rests (:class:`Heap`).

Collector: the data contains no cyclic garbage, but there can be millions of objects. A collection
visits all young objects, and what they refer to, while every client waits. That takes 0.1 to 1
microseconds an object, depending on what is in the caches of the processor. So collections are
frequent and visit few, and the collector does not know most objects of the data (``compiling.py``).
An object that has survived one or two collections is old. A collection of the old objects would
visit all data, so there is practically none. Therefore nothing that lives long may end as a cycle:
sessions, links and feeds of the page break theirs when they end.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3

_MMAP_FROM_BYTES = 32 * 1024 * 1024  # the largest value glibc takes
_TRIM_ABOVE_BYTES = 256 * 1024 * 1024
_GROW_BY_BYTES = 4 * 1024 * 1024


def keep_freed_memory() -> bool:
    """Raise glibc's thresholds for this process; False where there is no ``mallopt``."""
    import ctypes  # noqa: PLC0415 - slow, and not needed inside another program

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library, or Windows
        return False
    return all(
        mallopt(option, value) == 1
        for option, value in (
            (_M_MMAP_THRESHOLD, _MMAP_FROM_BYTES),
            (_M_TRIM_THRESHOLD, _TRIM_ABOVE_BYTES),
            (_M_TOP_PAD, _GROW_BY_BYTES),
        )
    )


_YOUNG_OBJECTS = 2_500
"""New objects from one collection to the next, less those that are freed, young or old.

So there can be more young objects than this: 8,500 were seen under mixed load."""

_YOUNG_COLLECTIONS = 0
"""Every second collection visits the survivors of the first one, too."""

_OLD_COLLECTIONS = 500_000
"""Collections of survivors from one of all objects to the next."""


def calm_collector() -> None:
    """Exclude the present heap from collections, and make collections short."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_COLLECTIONS, _OLD_COLLECTIONS)
    gc.enable()


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
    """Observes the CPU time of the process, and returns freed memory while the server rests.

    Python returns its own arenas. Blocks of more than 512 bytes come from the C library, which
    returns only the end of its heap unless ``malloc_trim`` is called. A call takes about 50 ms for
    a gigabyte, so it is made while the server rests, and rarely if it takes long.
    """

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
