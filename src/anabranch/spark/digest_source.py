"""The audit's work on executors: a data source whose rows are digests of stretches of streams.

Spark runs code of ours on executors, without pandas and over Spark Connect as well, if it is a data
source. What each task has to read goes there as text, as options of a read do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from anabranch.spark.client import connect
from anabranch.spark.digests import LEFT_OUT, Bucket, Piece, Place, summary
from anabranch.spark.options import ServerOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["DigestSource", "digests"]

_COLUMNS: Final = (
    "replica int, stream int, origin string, bucket bigint, entries bigint, high bigint, "
    "low bigint, first bigint, last bigint"
)
_SCHEMA: Final = pa.schema(
    [
        ("replica", pa.int32()),
        ("stream", pa.int32()),
        ("origin", pa.string()),
        *((name, pa.int64()) for name in ("bucket", "entries", "high", "low", "first", "last")),
    ]
)


def digests(
    spark: SparkSession,
    servers: Sequence[ServerOptions],
    tasks: Sequence[Sequence[Piece]],
) -> tuple[list[dict[tuple[Place, int], Bucket]], int]:
    """For each replica its buckets, by place and number; and how many entries were left out.

    Bucket n of a place begins at millisecond n times the width. Raises what Spark raises.
    """
    found: list[dict[tuple[Place, int], Bucket]] = [{} for _ in servers]
    left_out = 0
    if not tasks:
        return found, left_out
    spark.dataSource.register(DigestSource)
    table = (
        spark.read.format("anabranch-digests")
        .option("servers", json.dumps([asdict(each) for each in servers]))
        .option("tasks", json.dumps([[asdict(piece) for piece in each] for each in tasks]))
        .load()
        .toArrow()
    )
    columns = [table.column(name).to_pylist() for name in _SCHEMA.names]
    for replica, stream, origin, bucket, entries, *rest in zip(*columns, strict=True):
        if bucket == LEFT_OUT:
            left_out += entries
        else:
            place = (stream, origin), bucket
            # A half that Spark takes for a negative number is right again modulo 2**64.
            found[replica].setdefault(place, Bucket()).add(entries, *rest)
    return found, left_out


class DigestSource(DataSource):
    """``format("anabranch-digests")``: what `digests` reads."""

    @classmethod
    def name(cls) -> str:
        """The word for ``format``."""
        return "anabranch-digests"

    def schema(self) -> str:
        """One row for each bucket of each piece."""
        return _COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        servers = [ServerOptions(**each) for each in json.loads(self.options["servers"])]
        tasks = [[_piece(each) for each in task] for task in json.loads(self.options["tasks"])]
        return _Reader(servers, tasks)


def _piece(said: dict[str, Any]) -> Piece:
    low, high = tuple(said.pop("low")), tuple(said.pop("high"))
    return Piece(**said, low=low, high=high)


class _Reader(DataSourceReader):
    def __init__(self, servers: Sequence[ServerOptions], tasks: Sequence[Sequence[Piece]]) -> None:
        self._servers = servers
        self._tasks = tasks

    def partitions(self) -> list[InputPartition]:
        """The numbers of the tasks."""
        return [InputPartition(number) for number in range(len(self._tasks))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: the pieces of one task."""
        for piece in self._tasks[partition.value]:
            with connect(self._servers[piece.replica]) as client:
                yield _batch(piece, summary(piece, client))


def _batch(piece: Piece, buckets: dict[int, Bucket]) -> pa.RecordBatch:
    count = len(buckets)
    values = list(buckets.values())
    return pa.RecordBatch.from_arrays(
        [
            pa.array([piece.replica] * count, pa.int32()),
            pa.array([piece.stream] * count, pa.int32()),
            pa.array([piece.origin] * count, pa.string()),
            pa.array(list(buckets), pa.int64()),
            pa.array([each.entries for each in values], pa.int64()),
            # There are no unsigned columns: the same 64 bits, taken for a signed number.
            _signed([each.high for each in values]),
            _signed([each.low for each in values]),
            pa.array([each.first for each in values], pa.int64()),
            pa.array([each.last for each in values], pa.int64()),
        ],
        schema=_SCHEMA,
    )


def _signed(numbers: Sequence[int]) -> pa.Array:
    return pa.array(np.array(numbers, np.uint64).view(np.int64))
