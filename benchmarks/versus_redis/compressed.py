"""Reads of nodes that Anabranch holds in compressed form, beside the same reads in redis-server.

The servers are started for these workloads. Anabranch compresses nodes soon, and has a small cache
of opened nodes. Each request of a round reads other nodes, so that none of them is in the cache
when the next round asks for it.
"""

from __future__ import annotations

from .load import Window, request, windows
from .memory import Shape, shapes
from .workloads import (
    ADD_LINES,
    ENTRY_LINES,
    Script,
    Stream,
    Workload,
    dice,
    scaled,
    sensor_id,
)

ENTRIES = 400_000
READS = 1_600
DEPTH = 16
OPTIONS = (
    *("--stream-memory-hot", "1", "--stream-compression-age", "0"),
    *("--stream-compression-cache", "64kb"),
)
"""Options of Anabranch, in seconds and bytes."""


def compressed_catalogue() -> list[Workload]:
    """Return the workloads: reads of few and of many entries, for each shape of entries."""
    return [_read(shape, count) for shape in shapes() for count in (1, 10, 100)]


def name_of(shape: str, count: int) -> str:
    """Return the name of a workload."""
    return f"XRANGE COUNT {count}, compressed, {shape}"


def _read(shape: Shape, count: int) -> Workload:
    stream = Stream(f"bench:compressed:{shape.name}", lambda: _fill(stream.key, shape))
    lines = 1 + count * ENTRY_LINES[len(shape.make(dice())) // 2]

    def build(scale: float) -> Script:
        reads = scaled(READS, scale)
        places = dice().sample(range(0, ENTRIES, 100), reads)
        requests = [
            request("XRANGE", stream.key, sensor_id(place), "+", "COUNT", count, lines=lines)
            for place in places
        ]
        return Script(windows(requests, DEPTH), reads, stream=stream)

    return Workload(name_of(shape.name, count), "compressed nodes", DEPTH, build)


def _fill(key: str, shape: Shape) -> list[Window]:
    chance = dice()
    adds = [
        request("XADD", key, sensor_id(index), *shape.make(chance), lines=ADD_LINES)
        for index in range(ENTRIES)
    ]
    return windows(adds, 256)
