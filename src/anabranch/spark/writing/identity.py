"""The identity of a writer, which is the same in every attempt of a task.

It decides between exactly once and at least once. Query, batch and partition are the same when a
task is repeated and after every restart from the checkpoint. So repeated rows are recognised by
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pyspark import TaskContext

from anabranch.errors import AnabranchError
from anabranch.spark.options import WriteOptions


class WriteFailed(AnabranchError):
    """Rows could not be written; written rows stay, and a repetition continues behind them."""


@dataclass(frozen=True, slots=True)
class WriterIdentity:
    """The identity of a writer, the same in every attempt."""

    producer: str
    """``spark/<query>/<sink>``."""
    partition: int
    batch: int
    chosen: bool
    """The user gives the batch number, which may be an old one."""
    query: str | None = None
    """The streaming query, if one writes. Each checkpoint is another one."""
    named: bool = False
    """The user gives the name of the producer."""
    run: str | None = None
    """Another one in each start of the query."""

    @property
    def task(self) -> str:
        """Producer and partition."""
        return f"{self.producer}/{self.partition}"

    @classmethod
    def of_task(cls, options: WriteOptions, job: str | None) -> Self:
        """The identity of the running task. `job` replaces the query in a plain batch write.

        Refuses a streaming write without these facts from Spark, because a guess could add
        duplicates. Refuses a plain batch write with a name and without a number: all runs would be
        the same batch, and the rows of the second run would count as repetitions. Refuses a number
        without a name: no run would be recognised.
        """
        context = TaskContext.get()
        if context is None:
            raise WriteFailed("a writer only works within a task of Spark")
        # Undocumented names, because Spark gives a writer no batch number: they may be missing.
        query = context.getLocalProperty("sql.streaming.queryId") or None
        batch = context.getLocalProperty("streaming.sql.batchId") or None
        known = (query or options.producer_id) and batch is not None
        if job is None and not known and needs_identity(options):
            raise WriteFailed(
                "this Spark does not tell its tasks which query and batch they belong to (local "
                "properties sql.streaming.queryId and streaming.sql.batchId), so repeated rows "
                "could not be recognised. Write in foreachBatch with options producerId and "
                "batchId, or choose idempotence=none"
            )
        is_run = batch is None and needs_identity(options)
        if is_run and options.producer_id is None and options.batch_id is not None:
            raise WriteFailed(
                f"batchId={options.batch_id} numbers a run and names no job: give producerId as "
                "well, the same in all runs, or leave batchId out, and each save() is new data"
            )
        if is_run and options.producer_id is not None and options.batch_id is None:
            raise WriteFailed(
                f"producerId={options.producer_id} names a job and not its run: give batchId as "
                "well, a number that is greater in each run and the same when a run is repeated, "
                "or leave producerId out, and each save() is new data"
            )
        number = options.batch_id if options.batch_id is not None else int(batch or 0)
        name = options.producer_id or query or job
        return cls(
            f"spark/{name}/{options.sink_id}",
            context.partitionId(),
            number,
            options.batch_id is not None,
            query,
            options.producer_id is not None,
            context.getLocalProperty("spark.jobGroup.id"),
        )


def needs_identity(options: WriteOptions) -> bool:
    """Whether repeated rows are recognised by their writer."""
    return options.idempotence != "none" and not options.preserve_ids
