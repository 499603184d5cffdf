"""What a server takes before anybody uses it: time and CPU to its first PONG, and memory at rest.

Both servers run as they are started by default, with a log, so Anabranch's figures are those of
`make run` and later starts of an installed package. The first start is not counted: it writes the
bytecode of modules that were never imported.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.shared.figures import Figure, of_rounds
from benchmarks.versus_redis.servers import Server, anabranch_recipe, redis_recipe

ROUNDS, QUICK_ROUNDS = 11, 3
REST_S: Final = 7.0
"""A server gives back freed memory when it has rested for five seconds."""
MEGABYTE: Final = 1 << 20
KILOBYTE: Final = 1 << 10
PONG_MS, RESIDENT_MB = 150.0, 30.0


@dataclass(frozen=True, slots=True)
class _Start:
    pong_ms: float
    cpu_ms: float
    resident_mb: float
    private_mb: float


def at_rest(*, quick: bool) -> list[Figure]:
    """Return the figures of the start, and of the memory after a rest."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    figures = []
    for recipe in (redis_recipe(appendfsync="everysec"), anabranch_recipe("everysec")):
        # A rest for each start would take minutes, and memory is the same in all of them.
        starts = [
            _start(Server(recipe), 0.0 if turn < rounds else REST_S) for turn in range(rounds + 1)
        ]
        last, counted = starts[-1], starts[1:]
        made = {
            "first PONG": of_rounds("", [one.pong_ms for one in counted], "ms"),
            "CPU until then": of_rounds("", [one.cpu_ms for one in counted], "ms"),
            "resident at rest": Figure("", last.resident_mb, "MB"),
            "private at rest": Figure("", last.private_mb, "MB"),
        }
        goals = {"first PONG": PONG_MS, "resident at rest": RESIDENT_MB}
        for name, figure in made.items():
            goal = goals.get(name) if recipe.name != "redis" else None
            figures.append(
                replace(figure, name=f"{recipe.name}: {name}", at_most=goal, is_less=quick)
            )
    return figures


def _start(server: Server, rest_s: float) -> _Start:
    began = time.perf_counter()
    with server:
        pong_ms = (time.perf_counter() - began) * 1e3
        cpu_ms = sum(server.cpu().values()) / 1e6
        time.sleep(rest_s)
        return _Start(
            pong_ms,
            cpu_ms,
            server.resident_bytes() / MEGABYTE,
            _private_bytes(server.pid) / MEGABYTE,
        )


def _private_bytes(pid: int) -> int:
    """Return the memory that only this process has, and has written to."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * KILOBYTE
    return 0
