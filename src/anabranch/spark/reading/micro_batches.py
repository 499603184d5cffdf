"""Micro-batches without Spark: this process plans and reads them, in a checkpoint of Spark's form.

Spark may run a query once, and this module the next time: both find the batch that was planned and
not committed in the same files, and repeat it. See `anabranch.spark.reading.planner`.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from anabranch.errors import AnabranchError
from anabranch.spark.decoding.columns import Projection
from anabranch.spark.lake.files import draft_in, sync_names, write_synced
from anabranch.spark.options import ReadOptions
from anabranch.spark.reading.checkpoint import VERSION, ends_of_batch, newest_batch
from anabranch.spark.reading.executor import read_partition
from anabranch.spark.reading.offsets import OffsetError, Vector
from anabranch.spark.reading.partitions import Partition
from anabranch.spark.reading.planner import Planner
from anabranch.spark.runtime.logs import log_start

_KEPT: Final = 100  # batches, as many as Spark keeps


class CheckpointInUse(AnabranchError):
    """Another run planned or committed the same batch meanwhile."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One batch, to be written before the next one is planned."""

    query: str
    """ID of the query, the same for as long as there is the checkpoint."""
    number: int
    rows: Iterator[pa.RecordBatch]
    left: int
    """Positions that the server had when the run began, and that are not read yet."""


def read_all(
    options: ReadOptions, checkpoint: Path, schema: pa.Schema, work: Callable[[MicroBatch], None]
) -> str:
    """Read all present entries, batch by batch; returns the ID of the query.

    `work` must write a batch so that writing it twice has no effect: a batch that was running when
    an earlier run died is repeated. Raises what `work` raises, `CheckpointInUse`, `OffsetError`,
    `DataLossError`, `ServerBehindError`, `ServerUnreachable` and `ServerRefused`.
    """
    projection = Projection.of(schema, options)
    query = _query(checkpoint)
    planner = Planner(options)
    try:
        planner.freeze()
        newest = newest_batch(checkpoint, "offsets")
        number = -1 if newest is None else newest
        pending: Vector | None = None
        if newest is None:
            start = planner.initial()
        else:
            start = _vector(checkpoint, number)
            if number != newest_batch(checkpoint, "commits"):
                pending = start
                start = pending.initial or _vector(checkpoint, number - 1)
        log_start(options, start, resumed=newest is not None, selects=planner.selects)
        while (end := pending or planner.next(start, options.max_entries)) is not None:
            if pending is None:
                number += 1
                _plan(checkpoint, number, end)
            begin = end.initial or start
            task: Partition = (*end.ranges(begin), *end.removals(begin))
            rows = read_partition(task, options, projection)
            work(MicroBatch(query, number, rows, planner.left(end)))
            _commit(checkpoint, number)
            start, pending = end, None
        if number < 0 and start.cursors:  # ``latest`` would be another place in the next run
            _plan(checkpoint, 0, start)
            _commit(checkpoint, 0)
    finally:
        planner.close()
    return query


def _vector(checkpoint: Path, batch: int) -> Vector:
    """Where a batch ends."""
    ends = ends_of_batch(checkpoint, batch)
    if len(ends) != 1:
        raise OffsetError(f"{checkpoint} is not of a query with one source")
    return ends[0]


def _query(checkpoint: Path) -> str:
    path = checkpoint / "metadata"
    if not path.exists():
        _publish(path, json.dumps({"id": str(uuid.uuid4())}))
    return str(json.loads(path.read_text("utf-8"))["id"])


def _plan(checkpoint: Path, batch: int, end: Vector) -> None:
    now_ms = time.time_ns() // 1_000_000
    facts = {"batchWatermarkMs": 0, "batchTimestampMs": now_ms, "conf": {}}
    _write(checkpoint / "offsets" / str(batch), facts, end.to_dict())


def _commit(checkpoint: Path, batch: int) -> None:
    _write(checkpoint / "commits" / str(batch), {"nextBatchWatermarkMs": 0})
    for log in ("offsets", "commits"):
        (checkpoint / log / str(batch - _KEPT)).unlink(missing_ok=True)


def _write(path: Path, *lines: dict[str, Any]) -> None:
    _publish(path, "\n".join([VERSION, *map(json.dumps, lines)]))


def _publish(path: Path, text: str) -> None:
    """Write a file atomically and durably, unless it exists."""
    with draft_in(path.parent) as draft:
        write_synced(draft, text.encode())
        try:
            os.link(draft, path)
        except FileExistsError:
            raise CheckpointInUse(
                f"{path} came meanwhile: another run is at work with this checkpoint"
            ) from None
    sync_names(path.parent)
