"""The sink of `archive`: tasks write the Parquet files of a lake, the driver commits them.

The directory must be one that all workers and the driver share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from anabranch.spark.decoding.columns import CHANGE
from anabranch.spark.lake.files import Draft, LakeError, Run
from anabranch.spark.lake.table import Lake, PlacePart, drafts_of, entries_of
from anabranch.spark.options import OptionError
from anabranch.spark.writing.identity import Task
from anabranch.spark.writing.layout import RESERVED


@dataclass(frozen=True)
class _Wrote(WriterCommitMessage):
    query: str
    batch: int
    drafts: tuple[Draft, ...]
    parts: tuple[PlacePart, ...]
    erased: tuple[tuple[str, Run], ...]


class LakeSink(DataSource):
    """``format("anabranch-lake")``; option ``path`` names the directory."""

    @classmethod
    def name(cls) -> str:
        """The word for ``format``."""
        return "anabranch-lake"

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """A streaming write of rows that were read from streams; raises `LakeError` and others."""
        if tuple(schema.names) not in (RESERVED, (*RESERVED, CHANGE)):
            raise LakeError(f"a lake takes the columns {', '.join(RESERVED)}, in this order")
        if overwrite:
            raise OptionError('files are only added: use outputMode("append")')
        return _LakeWriter(Lake(self.options["path"]))


class _LakeWriter(DataSourceStreamArrowWriter):
    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Wrote:
        """One partition: a file for each stream and day, not visible yet."""
        query, batch, _ = Task.of_query()
        erased: list[tuple[str, Run]] = []
        drafts, parts = drafts_of(self._lake, entries_of(iterator, erased))
        return _Wrote(query, batch, tuple(drafts), tuple(parts), tuple(erased))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the batch."""
        wrote: list[_Wrote] = [each for each in messages if each is not None]
        if wrote:
            drafts = [draft for each in wrote for draft in each.drafts]
            parts = [part for each in wrote for part in each.parts]
            # First: it may be done twice, and a batch that is committed is not repeated.
            self._lake.erase(wrote[0].query, [run for each in wrote for run in each.erased])
            self._lake.commit(wrote[0].query, wrote[0].batch, drafts, parts)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing to do: files are not visible, and `compact` removes them."""
