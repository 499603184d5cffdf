"""Reads of entries that were written a while ago, beside the same reads in redis-server.

The servers are started for these workloads, once for each *form* of old nodes. Below
`stream-memory-hot` (the default) Anabranch packs small fields lightly and leaves other entries as
they are (``hot``); above it nodes are compressed (``compressed``). Here nodes are old after two
seconds, and what was opened is shut after one or two. Places are chosen at random among all
entries, and the cache of opened nodes has its default size: in ``compressed`` nodes an eighth to a
half of what these streams take when they are opened, in ``hot`` nodes it depends on the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .load import Request, Window, request, windows
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

ENTRIES: Final = 300_000
REST_S: Final = 3.0
"""After this long all full nodes are old."""

READS: Final = 1_600
SEQUENTIAL: Final = 1_000
"""Requests that read on from the beginning, COUNT 100 of a reader or 10 of a group each."""
DEPTH: Final = 16
GROUP: Final = "bench"

READS_OF: Final = (
    *("XRANGE COUNT 1", "XRANGE COUNT 10", "XRANGE COUNT 100"),
    *("XREAD COUNT 100 to the end", "XREADGROUP COUNT 10 to the end"),
)
"""What is asked, of each form and shape."""

SOON: Final = ("--stream-compression-age", "1")
"""Options of Anabranch with which nodes are soon old, in seconds."""

FORMS: Final = {"hot": (), "compressed": ("--stream-memory-hot", "1")}
"""Options of Anabranch for each form, in bytes."""


def old_entries_catalogue(form: str) -> list[Workload]:
    """Return the workloads: reads of few and of many entries, for each shape of entries."""
    return [workload for shape in shapes() for workload in _of_shape(form, shape)]


def name_of(what: str, form: str, shape: str) -> str:
    """Return the name of a workload: what is asked (``XRANGE COUNT 10``), the form, the shape."""
    return f"{what}, {form}, {shape}"


def _of_shape(form: str, shape: Shape) -> list[Workload]:
    key = f"bench:old:{shape.name}"
    stream = Stream(key, lambda: _fill(key, shape), REST_S, f"old, {form}")
    lines = ENTRY_LINES[len(shape.make(dice())) // 2]

    def workload(what: str, depth: int, plan: Callable[[float], Script]) -> Workload:
        return Workload(name_of(what, form, shape.name), f"{form} nodes", depth, plan)

    def at_random(count: int) -> Workload:
        def plan(scale: float) -> Script:
            reads = scaled(READS, scale)
            places = dice().sample(range(ENTRIES - count), reads)
            requests = [
                request(
                    *("XRANGE", stream.key, sensor_id(place), "+", "COUNT", count),
                    lines=1 + count * lines,
                )
                for place in places
            ]
            return Script(windows(requests, DEPTH), reads, stream=stream)

        return workload(f"XRANGE COUNT {count}", DEPTH, plan)

    def reader(scale: float) -> Script:
        reads = scaled(SEQUENTIAL, scale)
        requests = [_read_after(stream.key, index * 100, lines) for index in range(reads)]
        return Script(windows(requests, 1), reads, stream=stream)

    def group(scale: float) -> Script:
        reads = scaled(SEQUENTIAL, scale)
        take = request(
            *("XREADGROUP", "GROUP", GROUP, "worker", "COUNT", 10, "STREAMS", stream.key, ">"),
            lines=5 + 10 * lines,
        )
        setup = [
            request("XGROUP", "DESTROY", stream.key, GROUP),
            request("XGROUP", "CREATE", stream.key, GROUP, "0"),
        ]
        return Script(windows([take] * reads, 1), reads, setup=windows(setup, 1), stream=stream)

    return [
        *(at_random(count) for count in (1, 10, 100)),
        workload(READS_OF[3], 1, reader),
        workload(READS_OF[4], 1, group),
    ]


def _read_after(key: str, index: int, lines: int) -> Request:
    # `*1`, `*2` and the key come before the entries.
    after = sensor_id(index - 1) if index else "0"
    words = ("XREAD", "COUNT", 100, "STREAMS", key, after)
    return request(*words, lines=5 + 100 * lines)


def _fill(key: str, shape: Shape) -> list[Window]:
    chance = dice()
    adds = [
        request("XADD", key, sensor_id(index), *shape.make(chance), lines=ADD_LINES)
        for index in range(ENTRIES)
    ]
    return windows(adds, 256)
