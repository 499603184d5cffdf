"""Many pieces of work on executors, in rounds: the driver sees how it goes and acts in between.

Work is done as if it were read, by a data source: that is what Python code can do on executors of
every kind of session without pandas.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["in_rounds"]

_Item = TypeVar("_Item")
_NAME: Final = "anabranch-round"


def in_rounds(
    spark: SparkSession, items: Sequence[_Item], work: Callable[[_Item], Any], size: int
) -> Iterator[list[Any]]:
    """What `work` says of each item, a list for each `size` items, in their order.

    A piece of work is a task of its own and may be repeated; what it returns must be fit for JSON.
    Raises what Spark raises.
    """
    for at in range(0, len(items), size):
        spark.dataSource.register(_source(items[at : at + size], work))
        rows = spark.read.format(_NAME).load().collect()
        yield [json.loads(row["said"]) for row in sorted(rows, key=lambda row: row["number"])]


def _source(items: Sequence[Any], work: Callable[[Any], Any]) -> type[DataSource]:
    """A class of its own for each round: classes within functions travel with all they refer to."""

    class Round(DataSource):
        @classmethod
        def name(cls) -> str:
            return _NAME

        def schema(self) -> str:
            return "number bigint, said string"

        def reader(self, schema: StructType) -> DataSourceReader:
            return _Reader(items, work)

    return Round


@dataclass
class _Piece(InputPartition):
    number: int
    item: Any

    def __post_init__(self) -> None:
        super().__init__(None)


class _Reader(DataSourceReader):
    def __init__(self, items: Sequence[Any], work: Callable[[Any], Any]) -> None:
        self._items = items
        self._work = work

    def partitions(self) -> list[InputPartition]:
        """A task for each item."""
        return [_Piece(number, item) for number, item in enumerate(self._items)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        """Do the work."""
        assert isinstance(partition, _Piece)
        yield partition.number, json.dumps(self._work(partition.item))
