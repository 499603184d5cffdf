"""Lakes without a server and without a JVM."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from anabranch.spark.lake.table import Lake

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


def table(positions: Iterable[int], stream: str = "s", region: str = "eu", ms: int = 1) -> pa.Table:
    """Entries whose time is `ms` times their position."""
    rows = [
        {
            "stream": stream, "region": region, "id": f"{each * ms}-0", "ts": each * ms * 1000,
            "seq": 0, "position": each, "fields": [{"field": b"n", "value": b"%d" % each}],
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
    query: str = "q",
    ms: int = 1,
) -> bool:
    """Commit a batch with a write for each range of positions, both ends included."""
    drafts = [
        draft
        for first, last in ranges
        for draft in lake.write(table(range(first, last + 1), stream, region, ms))
    ]
    return lake.commit(query, batch, drafts)


def positions(lake: Lake, stream: str = "s", region: str = "eu") -> list[int]:
    """What a reader sees, in order."""
    dataset = lake.table().to_pyarrow_dataset()
    chosen = (ds.field("stream") == stream) & (ds.field("region") == region)
    return sorted(dataset.to_table(["position"], filter=chosen).column(0).to_pylist())


def seen_by_polars(root: Path) -> list[tuple[str, str, int, str]]:
    """Stream, region, position and ID of all entries, as Polars reads them."""
    import polars

    rows = polars.read_delta(str(root)).select("stream", "region", "position", "id").rows()
    return sorted(rows)


def seen_by_duckdb(root: Path) -> list[tuple[str, str, int, str]]:
    """The same, as DuckDB reads the files that the newest version lists."""
    import duckdb
    from deltalake import DeltaTable

    dataset = DeltaTable(str(root)).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("lake", dataset)
        found = connection.execute("select stream, region, position, id from lake").fetchall()
    return sorted(found)


def die_at(step: int) -> None:
    """Let this process be killed before the `step`-th of all steps that change a lake.

    What a process has written survives its death, so nothing is synced here.
    """
    from deltalake import DeltaTable
    from deltalake.table import TableOptimizer

    left = step

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **more: Any) -> Any:
            nonlocal left
            for moment in range(2):  # before it, and after
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                if not moment:
                    result = call(*args, **more)
            return result

        return counted

    os.fsync = dying(lambda fd: None)
    os.mkdir = dying(os.mkdir)
    os.link = dying(os.link)
    DeltaTable.create = staticmethod(dying(DeltaTable.create))  # type: ignore[method-assign]
    for owner, name in (
        (DeltaTable, "create_checkpoint"),
        (DeltaTable, "vacuum"),
        (TableOptimizer, "compact"),
    ):
        setattr(owner, name, dying(getattr(owner, name)))


def copies(root: Path, number: int) -> Path:
    return root.with_name(f"{root.name}-{number}")
