"""Ten million JSON entries, within the memory that streams may take as they are, and far beyond it.

By default that is an eighth of the machine's memory, and with `maxmemory 1gb` a quarter of a
gigabyte: then nodes are compressed while entries come. A canary beside Anabranch measures how long
others wait meanwhile. Afterwards the same entries are read from both servers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from benchmarks.shared.figures import Figure, of_rounds
from benchmarks.versus_redis.canary import Canary
from benchmarks.versus_redis.load import Connection, Request, request, windows
from benchmarks.versus_redis.memory import shapes
from benchmarks.versus_redis.servers import Server, anabranch_recipe, cpu_between, redis_recipe
from benchmarks.versus_redis.workloads import ADD_LINES, ENTRY_LINES, dice, sensor_id

ENTRIES, QUICK_ENTRIES = 10_000_000, 200_000
KEY: Final = "bench:budget"
PART: Final = 25_600
"""Entries between two looks at the canary. No node of entries has a document twice."""
DEPTH: Final = 256
ROUNDS, READS = 5, 800
SETTLE_S, QUICK_SETTLE_S = 60.0, 5.0
WAIT_MS: Final = 20.0
GIGABYTE: Final = 1e9
SHAPE: Final = "150-byte JSON"

Reads = Callable[[list[int]], list[Request]]
"""The requests for entries at these places."""


def _at_random(count: int) -> Reads:
    def ask(places: list[int]) -> list[Request]:
        return [
            request(
                "XRANGE",
                KEY,
                sensor_id(place),
                "+",
                "COUNT",
                count,
                lines=1 + ENTRY_LINES[1] * count,
            )
            for place in places
        ]

    return ask


def _onwards(places: list[int]) -> list[Request]:
    """A reader that goes on from one of these places, a hundred entries at a time."""
    return [
        request(
            *("XREAD", "COUNT", 100, "STREAMS", KEY, sensor_id(places[0] + 100 * turn)),
            lines=5 + 100 * ENTRY_LINES[1],
        )
        for turn in range(len(places) // 4)
    ]


READ: Final[dict[str, Reads]] = {
    "XRANGE COUNT 1": _at_random(1),
    "XRANGE COUNT 10": _at_random(10),
    "XRANGE COUNT 100": _at_random(100),
    "XREAD COUNT 100 onwards": _onwards,
}
WITHIN, BEYOND = "default budget", "maxmemory 1gb"
GOALS: Final = {
    WITHIN: {"memory": 1.4, **dict(zip(READ, (1.0, 0.8, 0.4, 0.5), strict=True))},
    BEYOND: {"memory": 0.4, **dict(zip(READ, (2.0, 1.5, 1.0, 1.0), strict=True))},
}
"""What each may cost at most, as a multiple of redis-server's."""


def within(*, quick: bool) -> list[Figure]:
    """Return the figures with the default settings."""
    return _measure(WITHIN, (), quick=quick)


def beyond(*, quick: bool) -> list[Figure]:
    """Return the figures with a limit of a gigabyte; a quick run has a smaller one."""
    limit = f"{32 if quick else 1024}mb"
    return _measure(BEYOND, ("--maxmemory", limit), quick=quick)


def _measure(case: str, options: tuple[str, ...], *, quick: bool) -> list[Figure]:
    entries = QUICK_ENTRIES if quick else ENTRIES
    with ExitStack() as stack:
        theirs = stack.enter_context(Server(redis_recipe()))
        ours = stack.enter_context(Server(anabranch_recipe(options=options)))
        sides = [
            (server, stack.enter_context(Connection(server.port))) for server in (theirs, ours)
        ]
        empty = [server.resident_bytes() for server, _ in sides]
        canary = stack.enter_context(Canary(ours.port, ours.pid))
        sightings = []
        for part in parts(entries):
            for _, connection in sides:
                connection.rehearse(windows(part, DEPTH))
            sightings.append(canary.look())
        time.sleep(QUICK_SETTLE_S if quick else SETTLE_S)
        sightings.append(canary.look())
        worst_ms = max(each.worst_ms for each in sightings)
        worst_cpu_ms = max(each.worst_cpu_ms for each in sightings)
        grown = [
            server.resident_bytes() - before
            for (server, _), before in zip(sides, empty, strict=True)
        ]
        sizes = " and ".join(f"{size / GIGABYTE:.2f}" for size in grown)
        goals = GOALS[case]
        figures = [
            Figure(
                f"{case}: memory of {entries:,} JSON entries",
                grown[1] / grown[0],
                "times",
                note=f"redis and anabranch grew by {sizes} GB",
                is_less=quick,
                at_most=goals["memory"],
            ),
            Figure(
                f"{case}: longest wait of others meanwhile",
                worst_ms,
                "ms",
                note=f"the server itself ran for {worst_cpu_ms:.1f} ms of a wait at most",
                is_less=quick,
                at_most=WAIT_MS,
            ),
        ]
        figures += [
            _ratio(f"{case}: {name}", ask, sides, entries, goals[name], is_less=quick)
            for name, ask in READ.items()
        ]
        return figures


def parts(entries: int) -> Iterator[list[Request]]:
    """Give the XADDs, so many at a time that they need little memory here."""
    chance = dice()
    (shape,) = (each for each in shapes() if each.name == SHAPE)
    documents = [shape.make(chance) for _ in range(PART)]
    for first in range(0, entries, PART):
        yield [
            request("XADD", KEY, sensor_id(first + index), *fields, lines=ADD_LINES)
            for index, fields in enumerate(documents[: entries - first])
        ]


def _ratio(
    name: str,
    ask: Reads,
    sides: list[tuple[Server, Connection]],
    entries: int,
    at_most: float,
    *,
    is_less: bool,
) -> Figure:
    """Return what reads cost, as a multiple of redis-server's; each round reads other places."""
    chance = dice()
    rounds = []
    for turn in range(ROUNDS):
        places = [chance.randrange(entries - 100 * READS) for _ in range(READS)]
        timed = ask(places)
        costs = [0.0, 0.0]
        for side in (0, 1) if turn % 2 else (1, 0):
            server, connection = sides[side]
            before = server.cpu()
            connection.rehearse(windows(timed, 16))
            costs[side] = cpu_between(before, server.cpu()) / 1000 / len(timed)
        rounds.append(costs)
    note = "; ".join(
        f"{server.name} {of_rounds('', [costs[side] for costs in rounds], '').value:.1f} µs"
        for side, (server, _) in enumerate(sides)
    )
    figure = of_rounds(
        name, [ours / theirs for theirs, ours in rounds], "times", note, is_less=is_less
    )
    return replace(figure, at_most=at_most)
