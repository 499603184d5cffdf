"""Who writes: what is the same in every attempt of a task.

It decides between exactly once and at least once. The query, the batch and the partition are the
same when a task is repeated and after every restart from the checkpoint, so by them rows that came
before are recognised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from pyspark import TaskContext

from anabranch.errors import AnabranchError
from anabranch.spark.options import WriteOptions

__all__ = ["CONTENT_ROWS_MAX", "Identity", "Task", "WriteFailed", "needs_identity"]

CONTENT_ROWS_MAX: Final = 960_000
"""Of one batch, so that servers remember the contents of all of them."""


class WriteFailed(AnabranchError):
    """Rows could not be written; what was written stays, and a repetition goes on behind it."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is the same in every attempt of a task, and after a restart from the checkpoint.

    Spark gives a writer no batch number. It is in the task's local properties, under names that are
    no documented interface, so whoever depends on it has to be prepared for its absence.
    """

    query: str | None
    """None outside a streaming query."""
    batch: int | None
    partition: int

    @classmethod
    def running(cls) -> Self | None:
        """The task that runs this; None if none does."""
        context = TaskContext.get()
        if context is None:
            return None
        batch = context.getLocalProperty("streaming.sql.batchId")
        return cls(
            context.getLocalProperty("sql.streaming.queryId") or None,
            int(batch) if batch else None,
            context.partitionId(),
        )

    @classmethod
    def of_query(cls) -> tuple[str, int, int]:
        """Query, batch and partition of the running task; raises `WriteFailed` without them."""
        task = cls.running()
        if task is None or task.query is None or task.batch is None:
            raise WriteFailed("this Spark does not tell its tasks their query and their batch")
        return task.query, task.batch, task.partition


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes, the same in every attempt."""

    producer: str
    """``spark/<query>/<sink>``; the partition is added where rows are told apart by place."""
    partition: int
    batch: int
    chosen: bool
    """The batch number comes from the user, who then may well give an old one."""
    query: str | None = None
    """The streaming query, if one writes. Each checkpoint is another one."""
    named: bool = False
    """The producer has its name from the user."""

    @property
    def task(self) -> str:
        """Producer and partition."""
        return f"{self.producer}/{self.partition}"

    @classmethod
    def of_task(cls, options: WriteOptions, job: str | None) -> Self:
        """Of the task that runs this. `job` is what stands for the query in a plain batch write.

        A streaming write of which Spark does not tell them is refused: guessing would be
        duplicates. So is a plain batch write with a name and no number: all its runs would be one
        batch, and the rows of the second one would be taken for repetitions.
        """
        task = Task.running()
        if task is None:
            raise WriteFailed("a writer only works within a task of Spark")
        known = (task.query or options.producer_id) and task.batch is not None
        if job is None and not known and needs_identity(options):
            raise WriteFailed(
                "this Spark does not tell its tasks which query and batch they belong to (local "
                "properties sql.streaming.queryId and streaming.sql.batchId), so repeated rows "
                "could not be recognised. Write in foreachBatch with options producerId and "
                "batchId, or choose idempotence=none"
            )
        if (
            task.batch is None
            and options.producer_id is not None
            and options.batch_id is None
            and needs_identity(options)
            and options.idempotence != "column"
        ):
            raise WriteFailed(
                f"producerId={options.producer_id} names a job and not its run: give batchId as "
                "well, a number that is greater in each run and the same when a run is repeated, "
                "or leave producerId out, and each save() is new data"
            )
        number = options.batch_id if options.batch_id is not None else task.batch or 0
        name = options.producer_id or task.query or job
        return cls(
            f"spark/{name}/{options.sink_id}",
            task.partition,
            number,
            options.batch_id is not None,
            task.query,
            options.producer_id is not None,
        )


def needs_identity(options: WriteOptions) -> bool:
    """Whether rows are told apart by who writes them."""
    return options.idempotence != "none" and not options.preserve_ids
