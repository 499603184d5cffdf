"""Both servers with the same data at several sizes, and the cost of commands at each of them.

All sizes of a dimension are on the servers at once. A round asks for the same commands at every
size, on one server after the other, so that whatever else the machine does falls on all alike.
The growth is computed within a round; the median of these is reported.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.shared.figures import Figure, Points, of_rounds
from benchmarks.versus_redis.load import Connection, RefusedError, Request, windows
from benchmarks.versus_redis.servers import (
    Recipe,
    Server,
    anabranch_recipe,
    cpu_between,
    redis_recipe,
)
from benchmarks.versus_redis.workloads import SEED

DEPTH = 16
FREE_GROWTH = 1.2
"""Growth that is allowed even where Redis's cost does not grow."""
OURS, THEIRS = "anabranch", "redis"

Fill = Callable[[int], Iterable[Request]]
"""The requests that make the data of a size."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: in which round it is, of which size, and how many requests are wanted."""

    turn: int
    size: int
    count: int

    def chance(self) -> random.Random:
        """Return the source of chance: the same at each call and for both servers."""
        return random.Random(f"{SEED} {self.turn} {self.size}")  # noqa: S311 - not secret


Ask = Callable[[Sample], list[Request]]
"""The requests of a sample."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What is asked for at every size."""

    name: str
    ask: Ask
    setup: Ask | None = None
    """What is sent before each sample and not timed."""
    only_ours: bool = False
    """redis-server 7.0 does not have it."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """What grows, how the data are made, and what is asked for."""

    name: str
    sizes: tuple[int, ...]
    quick_sizes: tuple[int, ...]
    fill: Fill
    operations: tuple[Operation, ...]

    def measure(self, *, quick: bool) -> list[Figure]:
        """Return a figure for each operation: the cost at the largest size over the smallest."""
        sizes = self.quick_sizes if quick else self.sizes
        rounds, count = (3, 320) if quick else (7, 1600)
        with ExitStack() as stack:
            servers = {
                recipe.name: stack.enter_context(_Filled(recipe, self, sizes))
                for recipe in (redis_recipe(), anabranch_recipe())
            }
            return [
                self._grown(one, servers, sizes, rounds, count, is_less=quick)
                for one in self.operations
            ]

    def _grown(
        self,
        operation: Operation,
        servers: dict[str, _Filled],
        sizes: Sequence[int],
        rounds: int,
        count: int,
        *,
        is_less: bool,
    ) -> Figure:
        asked = {
            name: server
            for name, server in servers.items()
            if name == OURS or not operation.only_ours
        }
        costs: dict[str, list[list[float]]] = {name: [] for name in asked}
        gc.disable()
        try:
            for turn in range(rounds + 1):
                for name in sorted(asked, reverse=bool(turn % 2)):
                    costs[name].append(
                        [asked[name].cost(operation, Sample(turn, size, count)) for size in sizes]
                    )
        finally:
            gc.enable()
        for rows in costs.values():
            del rows[0]  # the round in which caches and groups were made
        growth = {name: [row[-1] / row[0] for row in rows] for name, rows in costs.items()}
        medians = {name: _medians(rows) for name, rows in costs.items()}
        theirs = of_rounds("", growth[THEIRS], "") if THEIRS in growth else None
        note = "; ".join(
            f"{name} {', '.join(f'{cost:.1f}' for cost in medians[name])} µs" for name in medians
        )
        if theirs is not None:
            note += f"; redis grows {theirs.value:.2f} times"
        figure = of_rounds(
            f"{operation.name}, {sizes[0]:,} to {sizes[-1]:,} {self.name}",
            growth[OURS],
            "times",
            note,
            is_less=is_less,
        )
        return figure.within(
            max(FREE_GROWTH, theirs.value if theirs else 0.0), Points(list(sizes), medians)
        )


class _Filled:
    """One server with the data of all sizes, each in a database of its own; a context manager."""

    def __init__(self, recipe: Recipe, dimension: Dimension, sizes: Sequence[int]) -> None:
        self._server = Server(recipe)
        self._dimension = dimension
        self._sizes = sizes
        self._connections: dict[int, Connection] = {}
        self._stack = ExitStack()

    def __enter__(self) -> _Filled:
        self._stack.enter_context(self._server)
        for database, size in enumerate(self._sizes):
            connection = self._stack.enter_context(Connection(self._server.port))
            connection.ask("SELECT", database)
            self._connections[size] = connection
            batch: list[Request] = []
            for one in self._dimension.fill(size):
                batch.append(one)
                if len(batch) == 10_000:
                    connection.rehearse(windows(batch, 256))
                    batch.clear()
            connection.rehearse(windows(batch, 256))
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def cost(self, operation: Operation, sample: Sample) -> float:
        """Return microseconds of CPU for one request of a sample."""
        connection = self._connections[sample.size]
        if operation.setup is not None:
            connection.rehearse(windows(operation.setup(sample), DEPTH))
        timed = operation.ask(sample)
        script = windows(timed, DEPTH)
        before = self._server.cpu()
        try:
            connection.rehearse(script)
        except RefusedError as error:
            raise RefusedError(f"{operation.name}, {self._server.name}: {error}") from error
        return cpu_between(before, self._server.cpu()) / 1000 / len(timed)


def _medians(rows: Sequence[Sequence[float]]) -> list[float]:
    return [of_rounds("", column, "").value for column in zip(*rows, strict=True)]
