"""The sink that `archive` writes a lake with: tasks write files, the driver commits them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from anabranch.spark.lake import Draft, Lake, LakeError, PlacePart, drafts_of
from anabranch.spark.task import Task

__all__ = ["LakeSink"]

_COLUMNS: Final = ("stream", "region", "id", "ts", "seq", "position", "fields")


@dataclass(frozen=True)
class _Wrote(WriterCommitMessage):
    query: str
    batch: int
    drafts: tuple[Draft, ...]
    parts: tuple[PlacePart, ...]


class LakeSink(DataSource):
    """``format("anabranch-lake")``: the sink that `archive` writes with."""

    @classmethod
    def name(cls) -> str:
        """The word for ``format``."""
        return "anabranch-lake"

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """A streaming write of what a read of streams gives."""
        if tuple(schema.names) != _COLUMNS:
            raise LakeError(f"a lake takes the columns {', '.join(_COLUMNS)}, in this order")
        if overwrite:
            raise LakeError('a lake only grows: use outputMode("append")')
        return _LakeWriter(self.options)


class _LakeWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._root = options["path"]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Wrote:
        """One partition: a file for each stream and day in it."""
        task = Task.of_query()
        if task is None:
            raise LakeError("this Spark does not tell its tasks which query and batch they are of")
        query, batch, _ = task
        drafts, parts = drafts_of(Lake(self._root), iterator)
        return _Wrote(query, batch, tuple(drafts), tuple(parts))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the batch."""
        wrote = [each for each in messages if each is not None]
        if wrote:
            drafts = [draft for each in wrote for draft in each.drafts]
            parts = [part for each in wrote for part in each.parts]
            Lake(self._root).commit(wrote[0].query, wrote[0].batch, drafts, parts)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Files that are not committed are not seen, and are written again."""
