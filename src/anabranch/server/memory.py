"""How the process treats its memory: C allocator and garbage collector.

Allocator: replies of a hundred kilobytes are made and freed thousands of times a second. By
default glibc maps such blocks from the kernel and hands the top of the heap back whenever it can,
so each reply pays again for its pages: XRANGE COUNT 1000 in pipelines cost 210 µs of CPU instead
of 77. So freed memory is kept, and given back when the server rests (``heap.py``).

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
