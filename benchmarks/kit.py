"""What the test kit costs a test suite: ``python -m benchmarks.kit``, some seconds; prints only.

Goals: its import and each start below 0.1 s, emptying a server below 1 ms. Imports are measured in
new interpreters; pytest, which imports the plugin, has already been imported by then. The modules
are compiled to bytecode, as they are after pip has installed them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import click

from anabranch.testing import Cluster, Server

from .shared.figures import Figure, of_rounds
from .shared.goals import Goal, judge

GOALS = {
    "import of the kit and its plugin": Goal(100.0),
    "first start, with all that it imports": Goal(100.0),
    "start of a server": Goal(100.0),
    "start of a server that keeps data": Goal(100.0),
    "flush of a server with 1,000 entries": Goal(1.0),
}

IMPORT = "import anabranch.testing, anabranch.testing.plugin"
FIRST = "from anabranch.testing import Server; Server().start()"


def in_new_interpreters(code: str, rounds: int) -> list[float]:
    """Milliseconds of a piece of code in processes that have imported pytest and asyncio."""
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as bytecode:
        environment["PYTHONPYCACHEPREFIX"] = bytecode
        in_new_interpreter(code, environment)  # writes the bytecode
        return [in_new_interpreter(code, environment) for _ in range(rounds)]


def in_new_interpreter(code: str, environment: dict[str, str]) -> float:
    """Milliseconds in one such process."""
    program = (
        f"import asyncio, time, pytest; began = time.perf_counter(); {code}; "
        "print((time.perf_counter() - began) * 1000)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return float(done.stdout)


def timed(action: Callable[[], object]) -> float:
    """Milliseconds that a call takes."""
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def starts(rounds: int, *, persist: bool) -> list[float]:
    """Of servers that begin without data."""
    found = []
    for _ in range(rounds):
        server = Server(persist=persist)
        found.append(timed(server.start))
        server.close()
    return found


def flushes(rounds: int) -> list[float]:
    """Of a server with some streams."""
    found = []
    with Server() as server:
        for _ in range(rounds):
            for number in range(1000):
                server.execute("XADD", f"s{number % 10}", "*", "f", "v")
            found.append(timed(server.flush))
    return found


def clusters(rounds: int) -> list[float]:
    """Of three regions, until each takes writes."""
    found = []
    for _ in range(rounds):
        cluster = Cluster()
        found.append(timed(cluster.start))
        cluster.close()
    return found


def figures(rounds: int) -> list[Figure]:
    """All of them, in milliseconds."""
    imports = in_new_interpreters(IMPORT, rounds)
    first = in_new_interpreters(FIRST, rounds)
    starts(1, persist=True)  # what is imported with the first one
    return [
        of_rounds("import of the kit and its plugin", imports, "ms"),
        of_rounds("first start, with all that it imports", first, "ms"),
        of_rounds("start of a server", starts(rounds, persist=False), "ms"),
        of_rounds("start of a server that keeps data", starts(rounds, persist=True), "ms"),
        of_rounds("start of a cluster of three regions", clusters(rounds), "ms"),
        of_rounds("flush of a server with 1,000 entries", flushes(rounds), "ms"),
    ]


@click.command()
@click.option("--rounds", default=9, show_default=True, help="Each figure is their median.")
def main(rounds: int) -> None:
    """Measure the test kit."""
    for verdict in judge(figures(rounds), GOALS):
        figure = verdict.figure
        spread = f"({figure.low:.2f} to {figure.high:.2f})"
        outcome = {True: "met", False: "MISSED", None: ""}[verdict.passed]
        goal = f"goal {verdict.goal.limit:g} ms: {outcome}" if verdict.goal else ""
        print(f"{figure.name:<40} {figure.value:8.2f} ms {spread:<22} {goal}".rstrip())


if __name__ == "__main__":
    main()
