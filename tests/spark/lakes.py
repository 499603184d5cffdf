"""Lakes without a server, and jobs on them without a JVM."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.spark.lake import Lake, LakeFile

DAY_MS = 86_400_000
SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("region", pa.string()),
        ("id", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("seq", pa.int64()),
        ("position", pa.int64()),
        ("fields", pa.list_(pa.struct([("field", pa.binary()), ("value", pa.binary())]))),
    ]
)


def table(positions: Iterable[int], stream: str = "s", region: str = "eu") -> pa.Table:
    """Entries whose time is their position."""
    rows = [
        {
            "stream": stream, "region": region, "id": f"{each}-0", "ts": each * 1000, "seq": 0,
            "position": each, "fields": [{"field": b"n", "value": b"%d" % each}],
        }
        for each in positions
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def add(
    lake: Lake,
    batch: int,
    *ranges: tuple[int, int],
    stream: str = "s",
    region: str = "eu",
    date: str = "1970-01-01",
    query: str = "q",
) -> list[LakeFile]:
    """Publish a batch with a file for each range of positions, both ends included."""
    files = [
        lake.write(table(range(first, last + 1), stream, region), stream, region, date)
        for first, last in ranges
    ]
    lake.publish(query, batch, files)
    return files


def positions(lake: Lake, stream: str = "s", region: str = "eu") -> list[int]:
    """What a reader of the published files sees, in the order of files."""
    return [
        position
        for each in lake.files()
        if (each.stream, each.region) == (stream, region)
        for position in pq.read_table(lake.root / each.path).column("position").to_pylist()
    ]


class Here:
    """Runs in this process what Spark would run on executors; of a session it has only that."""

    def __init__(self) -> None:
        self.between: Callable[[], object] = lambda: None
        """Called when tasks are done and the driver has not yet heard of it."""
        self._source: Any = None
        self.dataSource = self.read = self

    def register(self, source: Any) -> None:
        self._source = source

    def format(self, _name: str) -> Here:
        return self

    def load(self) -> Here:
        return self

    def collect(self) -> list[dict[str, Any]]:
        reader = self._source({}).reader(None)
        rows = [row for piece in reader.partitions() for row in reader.read(piece)]
        self.between()
        return [{"number": number, "said": said} for number, said in rows]


STEPS = ("link", "fsync", "unlink", "mkdir")


def die_at(step: int) -> None:
    """Let this process be killed before the `step`-th of all steps that change a directory.

    What a process has written survives its death, so nothing is synced here.
    """
    os.fsync = lambda fd: None
    left = step

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **more)

        return counted

    for name in STEPS:
        setattr(os, name, dying(getattr(os, name)))
    pq.ParquetWriter.write_table = dying(pq.ParquetWriter.write_table)


def copies(root: Path, number: int) -> Path:
    return root.with_name(f"{root.name}-{number}")
