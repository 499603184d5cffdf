"""Runs many pieces of work in rounds, here or on executors; the driver sees the progress.

Executors do the work in the reader of a data source: the only way to run Python code on executors
of every kind of session without pandas. Without a session threads of this process do it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, InputPartition
    from pyspark.sql.types import StructType

ROUND: Final = 64
"""Items between two reports of progress."""

_Item = TypeVar("_Item")
_NAME: Final = "anabranch-round"
_THREADS: Final = 4


def in_rounds(
    spark: SparkSession | None,
    items: Sequence[_Item],
    work: Callable[[_Item], Any],
    size: int = ROUND,
) -> Iterator[Any]:
    """The results of `work` for all items, in order; executors get `size` items at a time.

    Without `spark` it is done here. On executors a piece of work is a task of its own and may be
    repeated; what it returns must be fit for JSON. Raises what Spark raises.
    """
    if spark is None:
        with ThreadPoolExecutor(_THREADS) as threads:
            yield from threads.map(work, items)
        return
    for at in range(0, len(items), size):
        spark.dataSource.register(_source(items[at : at + size], work))
        rows = spark.read.format(_NAME).load().collect()
        for row in sorted(rows, key=lambda row: row["number"]):
            yield json.loads(row["said"])


def _source(items: Sequence[Any], work: Callable[[Any], Any]) -> type[DataSource]:
    """A class of its own for each round: classes within functions travel with all they refer to."""
    from pyspark.sql.datasource import (  # noqa: PLC0415 - heavy, and not needed without a session
        DataSource,
        DataSourceReader,
        InputPartition,
    )

    class RoundReader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(len(items))]

        def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
            yield partition.value, json.dumps(work(items[partition.value]))

    class Round(DataSource):
        @classmethod
        def name(cls) -> str:
            return _NAME

        def schema(self) -> str:
            return "number bigint, said string"

        def reader(self, schema: StructType) -> DataSourceReader:
            return RoundReader()

    return Round
