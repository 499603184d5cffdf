"""Writes tables into streams: the writers that Spark runs.

The driver makes a plan and sends it to every task, which carries it out (`writing`). Tasks import
that module themselves: Spark plans and commits a write in separate processes, which start in half
the time without Arrow and a client.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from anabranch.spark.options import OptionError
from anabranch.spark.reading.checkpoint import seconds_since_planned
from anabranch.spark.runtime.logs import audible
from anabranch.spark.writing.identity import WriteFailed, needs_identity
from anabranch.spark.writing.plan import Plan, Written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of ``df.write``; raises `OptionError` and `EncodeError`."""
    if overwrite:
        raise OptionError(
            'mode("overwrite") would have to delete the stream first: delete the key yourself, and '
            'write with mode("append")'
        )
    return BatchWriter(Plan.of(options, schema))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of ``df.writeStream``; raises `OptionError` and `EncodeError`."""
    if overwrite:
        raise OptionError(
            'outputMode("complete") rewrites the whole result in every batch, and a stream only '
            'grows: use outputMode("append"), with withWatermark for aggregates, so that each is '
            "written once it is complete. Spark offers update to no sink in Python: foreachBatch "
            'writes what changed, .outputMode("update").foreachBatch(write).start()'
        )
    given = {name.lower(): value for name, value in options.items()}
    waited_s = seconds_since_planned(given.get("checkpointlocation"))
    plan = replace(Plan.of(options, schema), job=None, waited_s=waited_s)
    if plan.options.batch_id is not None:
        raise OptionError(
            "option batchId is for batch writes: a streaming query numbers its batches itself, and "
            "one number for all would take every batch but the first for a repetition"
        )
    return _StreamWriter(plan)


class _PartitionWriter:
    """Writes the rows of tasks by a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write a partition.

        Repeated tasks add nothing; a repeated job does, unless producerId and batchId name it.
        """
        from anabranch.spark.writing.task import write  # noqa: PLC0415 - heavy

        return write(self.plan, iterator)


class BatchWriter(_PartitionWriter, DataSourceArrowWriter):
    """One ``save()``."""

    def commit(self, messages: list[Any]) -> None:
        """Rows are committed already; check that all partitions were there."""
        _require_partitions(messages)
        if self.plan.options.result_file is not None:
            done = [each for each in messages if each is not None]
            known = [each.known for each in done]
            said = {
                "rows": sum(each.rows for each in done),
                "known": None if None in known else sum(filter(None, known)),
            }
            Path(self.plan.options.result_file).write_text(json.dumps(said), "utf-8")

    def abort(self, messages: list[Any]) -> None:
        """Written rows stay: readers may have seen them, and a repetition continues behind them."""


class _StreamWriter(_PartitionWriter, DataSourceStreamArrowWriter):
    """One query; Spark makes a new object for every batch."""

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Rows are committed already; check that tasks and Spark had the same batch."""
        others = {each.batch for each in messages if each is not None} - {batchId}
        if others and needs_identity(self.plan.options):
            raise WriteFailed(
                f"tasks took batch {batchId} for batch {sorted(others)[0]}: this version of Spark "
                "numbers batches otherwise, and repeated rows would not be recognised"
            )
        _require_partitions(messages)
        memories = [
            (each.memory_s, each.waited_s)
            for each in messages
            if each is not None and each.memory_s is not None and each.waited_s > each.memory_s
        ]
        if memories:
            audible()
            memory_s, waited_s = min(memories)
            _log.warning(
                "batch %d was planned %d s ago, was not committed, and has been written now: "
                "idempotent IDs are remembered for %d s, so rows of it that had been written by "
                "then may be there twice",
                *(batchId, waited_s, memory_s),
            )

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Written rows stay: the batch is repeated, and the ledger recognises them."""


def _require_partitions(messages: Sequence[Written | None]) -> None:
    """Check that a repeated batch has not fewer partitions than before.

    Each partition recognises its own rows. Rows of one that is missing now are in others, too.
    """
    had = max((each.partitions for each in messages if each is not None), default=0)
    if had > len(messages):
        raise WriteFailed(
            f"a batch that is repeated has {len(messages)} partitions, and had {had} or more: rows "
            "of it may be there twice, because a batch needs the same number of partitions in each "
            "attempt. To continue with what was written, give allowProducerChange=true"
        )
