"""Of which query and batch a task is: the one place that asks Spark.

Spark gives a writer no batch number. It is in the task's local properties, under names that are no
documented interface, so whoever depends on it has to be prepared for its absence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pyspark import TaskContext

__all__ = ["Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """What is the same in every attempt of a task, and after a restart from the checkpoint."""

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
    def of_query(cls) -> tuple[str, int, int] | None:
        """Query, batch and partition of the running task; None if Spark does not tell them."""
        task = cls.running()
        if task is None or task.query is None or task.batch is None:
            return None
        return task.query, task.batch, task.partition
