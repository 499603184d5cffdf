"""The processes below a session: Java, the workers of tasks, and those that plan and commit."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_END_SECONDS = 60.0
_LOOK_SECONDS = 0.02

# What each of them was started with.
TASKS = ("pyspark.worker",)
SOURCE = ("pyspark.sql.streaming.python_streaming_source_runner",)
PLANNERS = (
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.python_streaming_sink_runner",
)


def python_processes(spark: SparkSession, modules: tuple[str, ...]) -> list[int]:
    """Python processes below the session's Java that do one of these things, sorted.

    Daemons, which only beget workers, are left out.
    """
    java: int = spark.sparkContext._gateway.proc.pid
    found = []
    for pid, parent, words in _tree(java):
        worker = "pyspark.daemon" not in words or _words(parent) == words
        if worker and any(each in words for each in modules):
            found.append(pid)
    return sorted(found)


def kill_one(spark: SparkSession, modules: tuple[str, ...], rng: random.Random) -> list[int]:
    """Kill one of these processes, drawn by chance; none if there is none now."""
    victims = python_processes(spark, modules)
    if not victims:
        return []
    victim = rng.choice(victims)
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    return [victim]


def kill_session(leader: int) -> None:
    """Kill a process that leads a session, and all in it; returns when the others are gone.

    Python's daemon makes a process group of its own, and a worker that lives on writes on.
    """
    deadline = time.monotonic() + _END_SECONDS
    while members := list(_members(leader)):
        assert time.monotonic() < deadline, f"they do not die: {members}"
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)


def _members(session: int) -> Iterator[int]:
    """Living processes of a session."""
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                # "pid (name) state parent group session ..."; the name may hold anything
                state, _, _, found = (each / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(found) == session and state not in "ZX":
                    yield int(each.name)


def _tree(root: int) -> Iterator[tuple[int, int, list[str]]]:
    """Process, parent and command line of everything below a process."""
    parents: dict[int, int] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                after_name = (each / "stat").read_text().rpartition(")")[2].split()
                if after_name[0] != "Z":
                    parents[int(each.name)] = int(after_name[1])
    for pid, parent in parents.items():
        above = parent
        while above in parents and above != root:
            above = parents[above]
        if above == root:
            yield pid, parent, _words(pid)


def _words(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []
