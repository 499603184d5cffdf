"""A short pipeline that has Java load what pipelines load, and says when its first result is there.

It needs no server: a data source of ten rows stands in for one.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from anabranch.spark.sessions import java_options, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FIRST_RESULT", "rehearse"]

FIRST_RESULT: Final = "first result at"
"""What is printed before the time of the first result, in seconds of the monotonic clock."""

_SCHEMA: Final = "n long, word string"


def rehearse(words: Iterable[str], *, whole: bool) -> None:
    """Read ten rows in a session with these arguments of Java; `whole`: and do more after that."""
    given = {"spark.driver.extraJavaOptions": java_options(words)}
    spark = session("rehearsal", conf=given, has_ml=False)
    spark.dataSource.register(_TenRows)
    spark.read.format(_TenRows.name()).load().collect()
    sys.stdout.write(f"{FIRST_RESULT} {time.monotonic()}\n")
    sys.stdout.flush()
    if whole:
        with tempfile.TemporaryDirectory() as scratch:
            _pipeline(spark, Path(scratch))
    spark.stop()


def _pipeline(spark: SparkSession, scratch: Path) -> None:
    rows = spark.read.format(_TenRows.name()).load()
    for kind in ("parquet", "csv", "json"):
        place = str(scratch / kind)
        rows.write.format(kind).save(place)
        stored = spark.read.format(kind).schema(_SCHEMA).load(place)
        stored.where("n > 3").groupBy("word").agg({"n": "sum"}).orderBy("word").collect()
    rows.write.format(_TenRows.name()).mode("append").save()
    growing = spark.readStream.format(_TenRows.name()).load()
    query = (
        growing.writeStream.format("parquet")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(scratch / "grown"))
    )
    query.awaitTermination()


class _TenRows(DataSource):
    """Ten rows, whatever they are read for; takes any, and drops them."""

    @classmethod
    def name(cls) -> str:
        return "rehearsal"

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return _Reader()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        del schema
        return _StreamReader()

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        del schema, overwrite
        return _Writer()


def _ten_rows() -> Iterator[pa.RecordBatch]:
    numbers = range(10)
    yield pa.RecordBatch.from_pydict(
        {"n": pa.array(numbers, pa.int64()), "word": [str(number % 3) for number in numbers]}
    )


class _Reader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        return _ten_rows()


class _StreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"read": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        del start, limit
        return {"read": 1}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        del start, end
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        return _ten_rows()


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
