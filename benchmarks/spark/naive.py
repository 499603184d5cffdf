"""Reading a stream without the source: a data source that yields tuples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import redis
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from .data import SCHEMA
from .loop import loop


@dataclass
class Stretch(InputPartition):
    """IDs from and to."""

    start: str
    end: str


class Tuples(DataSource):
    """``format("tuples")``: what a reader is that makes a row at a time."""

    @classmethod
    def name(cls) -> str:
        """The word for ``format``."""
        return "tuples"

    def schema(self) -> str:
        """The typed columns."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return _Reader(int(self.options["port"]), self.options["key"], int(self.options["parts"]))


class _Reader(DataSourceReader):
    def __init__(self, port: int, key: str, parts: int) -> None:
        self._port, self._key, self._parts = port, key, parts

    def partitions(self) -> list[InputPartition]:
        with redis.Redis(port=self._port) as client:
            about: dict[str, Any] = client.xinfo_stream(self._key)
        first, last = (int(about[f"{end}-entry"][0].split(b"-")[0]) for end in ("first", "last"))
        edges = [
            first + (last + 1 - first) * number // self._parts for number in range(self._parts + 1)
        ]
        return [Stretch(f"{low}-0", f"({high}-0") for low, high in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, Stretch)
        for entry_id, fields in loop(self._port, self._key, partition.start, partition.end):
            ms, seq = entry_id.split(b"-")
            yield (
                datetime.fromtimestamp(int(ms) / 1000, UTC),
                int(seq),
                fields[b"sensor"].decode(),
                float(fields[b"temp"]),
            )
