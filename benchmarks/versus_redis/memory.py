"""What an entry weighs: growth of the resident size, and MEMORY USAGE, for a few shapes of entries.

Each shape gets a fresh pair of servers, because memory that an allocator kept from another shape
would hide the growth. Entries have IDs from the clock and arrive pipelined, as in real use. The
resident size is read while the entries are added, and a minute later, when work that was put off
has been done. All servers rest through the same minute.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .load import Connection, RefusedError, request, windows
from .servers import Recipe, Server
from .workloads import ADD_LINES, dice, sensor_fields

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence

KEY = "bench:weight"
WARM_UP_KEY = "bench:weight-warm-up"
WARM_UP_ENTRIES = 2_000
SETTLE_S = 60.0
LOOK_EVERY = 5_120
"""Entries between two readings of the resident size."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of entry: what it is called and how one is made."""

    name: str
    make: Callable[[random.Random], list[str]]


@dataclass(frozen=True, slots=True)
class Weight:
    """Bytes per entry on one server.

    ``highest`` is the greatest resident size while they were added; ``usage`` is None if the server
    does not know MEMORY USAGE.
    """

    highest: float
    rss: float
    usage: float | None


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One shape on both servers."""

    name: str
    entries: int
    baseline: Weight
    subject: Weight
    highest_ratio: float | None
    rss_ratio: float | None
    usage_ratio: float | None


def shapes() -> list[Shape]:
    """Return the shapes that are weighed."""
    return [
        Shape("1-byte value", lambda chance: ["v", chance.choice("0123456789")]),
        Shape("three sensor fields", sensor_fields),
        Shape("150-byte JSON", lambda chance: ["json", _document(chance)]),
    ]


def run_shapes(
    wanted: Iterable[Shape],
    baseline: Recipe,
    subjects: Sequence[Recipe],
    entries: int,
    settle_s: float,
) -> Iterator[list[MemoryRow]]:
    """Weigh shapes, each on fresh servers, ``settle_s`` after the last was added.

    A list for each shape, with a row for each subject.
    """
    with ExitStack() as servers:
        filled = [
            (shape, [_Filled(servers, shape, recipe, entries) for recipe in (baseline, *subjects)])
            for shape in wanted
        ]
        time.sleep(settle_s)
        for shape, (theirs, *others) in filled:
            yield [_row(shape.name, entries, theirs, ours) for ours in others]


class _Filled:
    """A server to which entries of one shape were added."""

    def __init__(self, servers: ExitStack, shape: Shape, recipe: Recipe, entries: int) -> None:
        self._entries = entries
        self._server = servers.enter_context(Server(recipe))
        self._connection = servers.enter_context(Connection(self._server.port))
        self._add(WARM_UP_KEY, shape, WARM_UP_ENTRIES)
        self._before = self._highest = self._server.resident_bytes()
        self._add(KEY, shape, entries)

    def _add(self, key: str, shape: Shape, entries: int) -> None:
        chance = dice()
        for first in range(0, entries, LOOK_EVERY):
            adds = [
                request("XADD", key, "*", *shape.make(chance), lines=ADD_LINES)
                for _ in range(min(LOOK_EVERY, entries - first))
            ]
            self._connection.rehearse(windows(adds, 256))
            if key == KEY:
                self._highest = max(self._highest, self._server.resident_bytes())

    def weigh(self) -> Weight:
        """What an entry weighs now."""
        grown = self._server.resident_bytes() - self._before
        try:
            usage = self._connection.ask("MEMORY", "USAGE", KEY, "SAMPLES", 0)
        except RefusedError:
            usage = None
        return Weight(
            highest=(self._highest - self._before) / self._entries,
            rss=grown / self._entries,
            usage=usage / self._entries if isinstance(usage, int) else None,
        )


def _row(name: str, entries: int, theirs: _Filled, ours: _Filled) -> MemoryRow:
    baseline, subject = theirs.weigh(), ours.weigh()
    return MemoryRow(
        name=name,
        entries=entries,
        baseline=baseline,
        subject=subject,
        highest_ratio=_ratio(subject.highest, baseline.highest),
        rss_ratio=_ratio(subject.rss, baseline.rss),
        usage_ratio=_ratio(subject.usage, baseline.usage),
    )


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours and theirs and theirs > 0 else None


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
