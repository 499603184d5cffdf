"""How long a start takes when there is something to recover, and what it costs.

Each server is filled over the network with its log on, stopped in an orderly way, and started
again; what counts is from the start of the process until it answers. An empty start is measured
too, since an interpreter needs its time whatever there is to load. Starts take turns. First both
have a log and nothing else (neither rewrites it by itself here), then what BGREWRITEAOF makes of
it.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass

from .load import Connection, request, windows
from .measure import Spread, spread
from .servers import Recipe, Server, cpu_between
from .workloads import ADD_LINES, dice, sensor_fields

KEY = "bench:restart"
LOG = "from the log"
REWRITTEN = "from a rewritten log or snapshot"
STARTS = 5
REWRITE_LOOK_S = 0.05
CHUNK = 50_000


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds until a server answered, and the CPU seconds it had used by then."""

    wall_s: Spread
    cpu_s: Spread
    empty_wall_s: Spread


@dataclass(frozen=True, slots=True)
class RestartRow:
    """A recovery of both servers."""

    name: str
    source: str
    """:data:`LOG` or :data:`REWRITTEN`."""
    entries: int
    baseline: Start
    subject: Start
    wall_ratio: Spread
    cpu_ratio: Spread


def run_restarts(baseline: Recipe, subject: Recipe, entries: int) -> list[RestartRow]:
    """Fill both servers, and start each several times, from the log and from what it becomes."""
    empty = [_starts_of(recipe) for recipe in (baseline, subject)]
    with Server(baseline) as theirs, Server(subject) as ours:
        for server in (theirs, ours):
            _fill(server, entries)
        log = _compare(LOG, theirs, ours, empty, entries)
        for server in (theirs, ours):
            _rewrite(server)
        return [log, _compare(REWRITTEN, theirs, ours, empty, entries)]


def _compare(
    source: str, theirs: Server, ours: Server, empty: list[Spread], entries: int
) -> RestartRow:
    pairs = []
    for turn in range(STARTS):
        first, second = (ours, theirs) if turn % 2 else (theirs, ours)
        taken = {id(server): _restart(server, entries) for server in (first, second)}
        pairs.append((taken[id(theirs)], taken[id(ours)]))
    starts = []
    for side in (0, 1):
        wall, cpu = zip(*(pair[side] for pair in pairs), strict=True)
        starts.append(Start(spread(wall), spread(cpu), empty[side]))
    return RestartRow(
        name=f"{entries:,} entries of three sensor fields, {source}",
        source=source,
        entries=entries,
        baseline=starts[0],
        subject=starts[1],
        wall_ratio=spread([ours[0] / theirs[0] for theirs, ours in pairs]),
        cpu_ratio=spread([ours[1] / theirs[1] for theirs, ours in pairs]),
    )


def _starts_of(recipe: Recipe) -> Spread:
    taken = []
    for _ in range(STARTS):
        began = time.perf_counter()
        with Server(recipe):
            taken.append(time.perf_counter() - began)
    return spread(taken)


def _fill(server: Server, entries: int) -> None:
    chance = dice()
    with closing(Connection(server.port)) as connection:
        for first in range(0, entries, CHUNK):
            adds = [
                request("XADD", KEY, "*", *sensor_fields(chance), lines=ADD_LINES)
                for _ in range(min(CHUNK, entries - first))
            ]
            connection.replay(windows(adds, 256))


def _rewrite(server: Server) -> None:
    with closing(Connection(server.port)) as connection:
        connection.ask("BGREWRITEAOF")
        while b"aof_rewrite_in_progress:0" not in connection.ask("INFO", "persistence"):
            time.sleep(REWRITE_LOOK_S)


def _restart(server: Server, entries: int) -> tuple[float, float]:
    began = time.perf_counter()
    server.restart()
    wall = time.perf_counter() - began - server.stop_s
    cpu = cpu_between({}, server.cpu()) / 1e9
    with closing(Connection(server.port)) as connection:
        assert connection.ask("XLEN", KEY) == entries, f"{server.name} lost entries"
    return wall, cpu
