"""Commands that start no Java: jobs on a lake, from the command until it has ended."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.spark.lake.files import SCHEMA
from anabranch.spark.lake.table import Lake
from benchmarks.shared.figures import Figure, of_rounds
from benchmarks.versus_redis.load import Connection

from .data import fill
from .local import everywhere, serving, url

KEY = "bench:alone"
ENTRIES, QUICK_ENTRIES = 200_000, 20_000
BATCH = 10_000
ROUNDS, QUICK_ROUNDS = 3, 1


def commands(*, quick: bool) -> list[Figure]:
    """`archive`, `verify` and `compact`, of 200,000 entries."""
    entries = QUICK_ENTRIES if quick else ENTRIES
    rounds = QUICK_ROUNDS if quick else ROUNDS
    note = f"{entries:,} entries, until the command has ended"
    taken: dict[str, list[float]] = {"archive": [], "verify": [], "compact": []}
    everywhere()
    for _ in range(rounds):
        with serving() as server, tempfile.TemporaryDirectory() as scratch:
            lake = str(Path(scratch, "lake"))
            _fill_lake(Lake(lake), entries)
            taken["verify"].append(_seconds("verify", lake))
            taken["compact"].append(_seconds("compact", lake))
            with Connection(server.port) as connection:
                fill(connection, KEY, entries)
            words = ("archive", str(Path(scratch, "other")), "-u", url(server), "--streams", KEY)
            taken["archive"].append(_seconds(*words))
    return [of_rounds(f"{name} without Java", some, "s", note) for name, some in taken.items()]


def _fill_lake(lake: Lake, entries: int) -> None:
    """Batches of ten thousand, as `archive` would have written them."""
    for batch, first in enumerate(range(0, entries, BATCH)):
        count = min(BATCH, entries - first)
        ms = np.arange(first, first + count) * 100
        pair = [{"field": b"sensor", "value": b"s1"}, {"field": b"temp", "value": b"21.50"}]
        table = pa.table(
            {
                "stream": [KEY] * count,
                "region": [""] * count,
                "id": [f"{each}-0" for each in ms],
                "ts": pa.array(ms * 1000, pa.timestamp("us", "UTC")),
                "seq": pa.array(np.zeros(count, np.int64)),
                "position": pa.array(np.arange(first, first + count)),
                "fields": pa.array([pair] * count, SCHEMA.field("fields").type),
            }
        )
        lake.commit("bench", batch, lake.write(table))


def _seconds(*words: str) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-m", "anabranch", "spark", *words]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began
