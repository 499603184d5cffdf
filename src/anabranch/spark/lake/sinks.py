"""Sinks whose tasks write Parquet files: a lake's, and a directory of a query's results.

The directory must be one that all workers and the driver share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from anabranch.spark.lake.files import draft_in, sync_names, write_synced
from anabranch.spark.lake.table import Draft, Lake, LakeError, PlacePart, drafts_of
from anabranch.spark.options import OptionError
from anabranch.spark.writing.identity import Task

_COLUMNS: Final = ("stream", "region", "id", "ts", "seq", "position", "fields")


@dataclass(frozen=True)
class _Wrote(WriterCommitMessage):
    query: str
    batch: int
    drafts: tuple[Draft, ...] = ()
    parts: tuple[PlacePart, ...] = ()


class PartsSink(DataSource):
    """``format("anabranch-parts")``: results of a query, which any tool may read at any time.

    Each task of each batch writes one file, whose name contains batch and task, and which appears
    as a whole. A repeated task replaces its file by the same rows. So this sink is for queries
    whose batches are equal when they are repeated, such as aggregations of decimals and integers.
    Option ``path`` names the directory.
    """

    word: ClassVar = "anabranch-parts"

    @classmethod
    def name(cls) -> str:
        """The word for ``format``."""
        return cls.word

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """A streaming write; raises `OptionError`."""
        if overwrite:
            raise OptionError('files are only added: use outputMode("append")')
        return _PartsWriter(self.options["path"])


class LakeSink(PartsSink):
    """``format("anabranch-lake")``: tasks write files, the driver commits them to a lake."""

    word: ClassVar = "anabranch-lake"

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """A streaming write of rows that were read from streams; raises `LakeError` and others."""
        if tuple(schema.names) != _COLUMNS:
            raise LakeError(f"a lake takes the columns {', '.join(_COLUMNS)}, in this order")
        super().streamWriter(schema, overwrite)
        return _LakeWriter(self.options["path"])


class _PartsWriter(DataSourceStreamArrowWriter):
    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Wrote:
        """One partition of a batch: one file, or none if there are no rows."""
        query, batch, partition = Task.of_query()
        filled = [each for each in iterator if each.num_rows]
        if filled:
            out = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_batches(filled), out, compression="zstd")
            with draft_in(self._root) as draft:
                write_synced(draft, out.getvalue())
                draft.rename(self._root / f"{query}-{batch:010d}-{partition:05d}.parquet")
            sync_names(self._root)
        return _Wrote(query, batch)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing to do: files are visible when they are written."""

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing to do: files stay, and are written again when the batch is repeated."""


class _LakeWriter(_PartsWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Wrote:
        """One partition: a file for each stream and day, not visible yet."""
        query, batch, _ = Task.of_query()
        drafts, parts = drafts_of(Lake(self._root), iterator)
        return _Wrote(query, batch, tuple(drafts), tuple(parts))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the batch."""
        wrote: list[_Wrote] = [each for each in messages if each is not None]
        if wrote:
            drafts = [draft for each in wrote for draft in each.drafts]
            parts = [part for each in wrote for part in each.parts]
            Lake(self._root).commit(wrote[0].query, wrote[0].batch, drafts, parts)
