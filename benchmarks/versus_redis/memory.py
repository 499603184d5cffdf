"""What an entry weighs: RSS growth per entry and MEMORY USAGE per entry, for a few shapes.

Each shape gets a fresh pair of servers, since memory that an allocator kept from the shape before
would hide the growth. Entries have IDs from the clock and arrive pipelined, as in real use, and
the weighing waits a moment so that work put off until later has been done.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .load import Connection, RefusedError, request, windows
from .servers import Recipe, Server
from .workloads import ADD_LINES, dice, sensor_fields

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

KEY = "bench:weight"
WARM_UP_KEY = "bench:weight-warm-up"
WARM_UP_ENTRIES = 2_000
SETTLE_S = 25.0


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of entry: what it is called and how one is made."""

    name: str
    make: Callable[[random.Random], list[str]]


@dataclass(frozen=True, slots=True)
class Weight:
    """Bytes per entry on one server; `usage` as MEMORY USAGE says, None if it does not."""

    rss: float
    usage: float | None


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One shape on both servers."""

    name: str
    entries: int
    problem: str
    baseline: Weight | None
    subject: Weight | None
    rss_ratio: float | None
    usage_ratio: float | None


def shapes() -> list[Shape]:
    """Return the shapes that are weighed."""
    return [
        Shape("1-byte value", lambda chance: ["v", chance.choice("0123456789")]),
        Shape("three sensor fields", sensor_fields),
        Shape("150-byte JSON", lambda chance: ["json", _document(chance)]),
    ]


def run_shape(shape: Shape, baseline: Recipe, subject: Recipe, entries: int) -> MemoryRow:
    """Weigh one shape on a fresh pair of servers."""
    try:
        theirs = _weigh(shape, baseline, entries)
        ours = _weigh(shape, subject, entries)
    except RefusedError as error:
        return MemoryRow(shape.name, entries, str(error), None, None, None, None)
    usage_ratio = ours.usage / theirs.usage if ours.usage and theirs.usage else None
    return MemoryRow(
        name=shape.name,
        entries=entries,
        problem="",
        baseline=theirs,
        subject=ours,
        rss_ratio=ours.rss / theirs.rss if theirs.rss > 0 else None,
        usage_ratio=usage_ratio,
    )


def _weigh(shape: Shape, recipe: Recipe, entries: int) -> Weight:
    with Server(recipe) as server, closing(Connection(server.port)) as connection:
        _add(connection, WARM_UP_KEY, shape, WARM_UP_ENTRIES)
        before = server.resident_bytes()
        _add(connection, KEY, shape, entries)
        time.sleep(SETTLE_S)
        after = server.resident_bytes()
        try:
            usage = connection.ask("MEMORY", "USAGE", KEY, "SAMPLES", 0)
        except RefusedError:
            usage = None
        return Weight(
            rss=(after - before) / entries,
            usage=usage / entries if isinstance(usage, int) else None,
        )


def _add(connection: Connection, key: str, shape: Shape, entries: int) -> None:
    chance = dice()
    adds = [request("XADD", key, "*", *shape.make(chance), lines=ADD_LINES) for _ in range(entries)]
    connection.rehearse(windows(adds, 256))


def _document(chance: random.Random) -> str:
    """Return a JSON document of 150 bytes."""
    document = {
        "device": f"sensor-{chance.randrange(10_000):04d}",
        "at": f"2024-03-01T{chance.randrange(24):02d}:{chance.randrange(60):02d}:00Z",
        "temperature": f"{chance.uniform(10, 30):.2f}",
        "battery": f"{chance.uniform(3, 4):.2f}",
        "state": chance.choice(("open", "shut")),
        "note": "",
    }
    short = 150 - len(json.dumps(document, separators=(",", ":")))
    document["note"] = f"{chance.getrandbits(160):040x}"[:short]
    return json.dumps(document, separators=(",", ":"))
