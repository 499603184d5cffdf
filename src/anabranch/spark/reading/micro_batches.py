"""Micro-batches that this process plans, in a checkpoint of the form of Spark's queries.

So a query of Spark may continue where a job was, and the other way round: both find the batch that
was planned and not committed in the same files. See `anabranch.spark.reading.planner`.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.spark.lake.files import publish
from anabranch.spark.options import ReadOptions
from anabranch.spark.reading.checkpoint import (
    DIGEST,
    VERSION,
    damaged,
    digest_of,
    ends_of_batch,
    newest_batch,
)
from anabranch.spark.reading.offsets import OffsetError, Vector
from anabranch.spark.reading.partitions import Partition, partitions_of
from anabranch.spark.reading.planner import Planner
from anabranch.spark.runtime.logs import log_start

_KEPT: Final = 100  # batches, as many as Spark keeps


class CheckpointInUse(AnabranchError):
    """Another run planned or committed the same batch meanwhile."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One batch: what its tasks read."""

    number: int
    partitions: list[Partition]
    left: int
    """Positions that the server had, when the run began or at the last look, behind this batch."""


class MicroBatches:
    """The batches of a query, one after the other; each is to be written, and then committed.

    Write a batch so that writing it twice has no effect: one that was not committed is repeated, by
    this run or by a later one.
    """

    def __init__(self, options: ReadOptions, checkpoint: Path, *, once: bool) -> None:
        """`once`: only entries that are present at the first look. Raises what `Planner` raises."""
        self._options = options
        self._checkpoint = checkpoint
        self._once = once
        self.query = query_of(checkpoint)
        """ID of the query, the same for as long as there is the checkpoint."""
        self._planner = Planner(options)
        self._number = -1
        self._start: Vector | None = None
        self._pending: Vector | None = None

    def _begin(self) -> Vector:
        """Where the query is, and its batch that was planned and not committed, if there is one."""
        if self._once:
            self._planner.freeze()
        newest = newest_batch(self._checkpoint, "offsets")
        if newest is None:
            start = self._planner.initial()
        else:
            self._number = newest
            start = _vector(self._checkpoint, newest)
            if newest != newest_batch(self._checkpoint, "commits"):
                self._pending = start
                start = start.initial or _vector(self._checkpoint, newest - 1)
        selects = self._planner.selects
        log_start(self._options, start, resumed=newest is not None, selects=selects)
        return start

    def next(self) -> MicroBatch | None:
        """Plan the next batch; None if there is nothing to read.

        Raises `CheckpointInUse`, `OffsetError`, `DataLossError`, `ServerBehindError`,
        `ServerUnreachable` and `ServerRefused`.
        """
        if self._start is None:
            self._start = self._begin()
        if self._pending is None:
            self._pending = self._planner.next(self._start, self._options.max_entries)
            if self._pending is not None:
                self._number += 1
                _plan(self._checkpoint, self._number, self._pending)
            elif self._number < 0 and self._start.cursors:
                # ``latest`` would be another place in the next run.
                self._number = 0
                _plan(self._checkpoint, 0, self._start)
                _commit(self._checkpoint, 0)
        end = self._pending
        if end is None:
            return None
        parts = partitions_of(end.initial or self._start, end)
        return MicroBatch(self._number, parts, self._planner.left(end))

    def commit(self) -> None:
        """Record that the last batch was written."""
        assert self._pending is not None
        _commit(self._checkpoint, self._number)
        self._start, self._pending = self._pending, None

    def close(self) -> None:
        """Return the connection."""
        self._planner.close()


def _vector(checkpoint: Path, batch: int) -> Vector:
    """Where a batch ends."""
    ends = ends_of_batch(checkpoint, batch)
    if len(ends) != 1:
        raise OffsetError(f"{checkpoint} is not of a query with one source")
    return ends[0]


def query_of(checkpoint: Path) -> str:
    """ID of the query of a checkpoint, which is made if there is none."""
    path = checkpoint / "metadata"
    if not path.exists():
        _publish(path, json.dumps({"id": str(uuid.uuid4())}))
    try:
        return str(json.loads(path.read_text("utf-8"))["id"])
    except (ValueError, LookupError, TypeError) as problem:
        raise damaged(checkpoint, "metadata", problem) from None


def _plan(checkpoint: Path, batch: int, end: Vector) -> None:
    now_ms = time.time_ns() // 1_000_000
    line = json.dumps(end.to_dict())
    conf = {DIGEST: digest_of(checkpoint, line)}
    facts = {"batchWatermarkMs": 0, "batchTimestampMs": now_ms, "conf": conf}
    _write(checkpoint / "offsets" / str(batch), json.dumps(facts), line)


def _commit(checkpoint: Path, batch: int) -> None:
    _write(checkpoint / "commits" / str(batch), json.dumps({"nextBatchWatermarkMs": 0}))
    for log in ("offsets", "commits"):
        (checkpoint / log / str(batch - _KEPT)).unlink(missing_ok=True)


def _write(path: Path, *lines: str) -> None:
    _publish(path, "\n".join([VERSION, *lines]))


def _publish(path: Path, text: str) -> None:
    if not publish(path, text.encode()):
        raise CheckpointInUse(f"{path} came meanwhile: another run is at work with this checkpoint")
