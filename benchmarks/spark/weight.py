"""Memory of driver, JVM and workers while a long stream is read, beside that for a short one.

Each read has processes of its own; what counts is the most that each of them ever had in RAM. Run
as a program this module is such a read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from benchmarks.shared.figures import Figure
from benchmarks.versus_redis.load import Connection

from .data import SCHEMA, fill
from .local import below, drained, everywhere, jvm, peak_bytes, serving, spark, url

KEY = "bench:weight"
SHORT, QUICK_SHORT = 1_000_000, 100_000
LONG = 3_000_000
LONGEST = 10_000_000
TIMEOUT_S = 600.0


def while_reading(*, quick: bool) -> list[Figure]:
    """Three times the entries, as a rule."""
    return _beside(QUICK_SHORT if quick else SHORT, 3 * QUICK_SHORT if quick else LONG)


def ten_million(*, quick: bool) -> list[Figure]:
    """Ten times the entries."""
    return _beside(SHORT, LONG if quick else LONGEST)


def _beside(short: int, long: int) -> list[Figure]:
    peaks = {}
    with serving() as server, Connection(server.port) as connection:
        for entries in (short, long):
            fill(connection, f"{KEY}:{entries}", entries)
            peaks[entries] = _read(url(server), f"{KEY}:{entries}")
    ratio = sum(peaks[long].values()) / sum(peaks[short].values())
    figures = [
        Figure(
            "memory of a longer read", ratio, "x",
            note=f"peaks of all processes, {long:,} entries beside {short:,}",
            is_less=long < LONG,
        )
    ]  # fmt: skip
    for who in ("driver", "JVM", "workers"):
        note = f"{short:,} entries: {peaks[short][who] / 2**20:.0f} MiB"
        figures.append(Figure(f"peak memory, {who}", peaks[long][who] / 2**20, "MiB", note=note))
    return figures


def _read(address: str, key: str) -> dict[str, int]:
    everywhere()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark.weight", address, key],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    peaks: dict[str, int] = json.loads(done.stdout)
    return peaks


def _peaks(address: str, key: str) -> dict[str, int]:
    options = {"url": address, "subscribe": key, "minPartitions": "2"}
    drained(spark().read.format("anabranch").options(**options).schema(SCHEMA).load())
    root = jvm()
    return {
        "driver": peak_bytes(os.getpid()),
        "JVM": peak_bytes(root),
        "workers": sum(peak_bytes(pid) for pid in below(root) if pid != root),
    }


if __name__ == "__main__":
    print(json.dumps(_peaks(*sys.argv[1:])))
