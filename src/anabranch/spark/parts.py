"""Results of a query as a directory of Parquet files that any tool may read at any moment.

Each task of each batch writes one file, under a name that says which, and it appears as a whole.
A repeated task replaces its file by the same rows: so this sink is for queries whose batches are
the same each time they are repeated, as aggregations of decimal and whole numbers are. The
directory must be one that all workers share.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from anabranch.errors import AnabranchError
from anabranch.spark.lake_files import draft_in, sync_names
from anabranch.spark.task import Task

__all__ = ["PartsError", "PartsSink"]


class PartsError(AnabranchError):
    """Rows that cannot be written so; the text says why."""


@dataclass(frozen=True)
class _Wrote(WriterCommitMessage):
    rows: int


class PartsSink(DataSource):
    """``format("anabranch-parts")``, with option ``path``."""

    @classmethod
    def name(cls) -> str:
        """The word for ``format``."""
        return "anabranch-parts"

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """A streaming write; raises `PartsError`."""
        if overwrite:
            raise PartsError('files are only added: use outputMode("append")')
        return _PartsWriter(self.options)


class _PartsWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._root = options["path"]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Wrote:
        """One partition of a batch: one file, or none if there are no rows."""
        task = Task.of_query()
        if task is None:
            raise PartsError("this Spark does not tell its tasks which query and batch they are of")
        filled = [each for each in iterator if each.num_rows]
        if not filled:
            return _Wrote(0)
        table = pa.Table.from_batches(filled)
        root = Path(self._root)
        query, batch, partition = task
        with draft_in(root) as draft:
            pq.write_table(table, draft, compression="zstd")
            with draft.open("rb") as written:
                os.fsync(written.fileno())
            draft.rename(root / f"{query}-{batch:010d}-{partition:05d}.parquet")
        sync_names(root)
        return _Wrote(table.num_rows)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Files are there as they are written."""

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """What is there stays, and is replaced when the batch is repeated."""
