"""Receives Spark's report after each batch of one query, for jobs that show their progress."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["QueryWatch"]

_Result = TypeVar("_Result")
_LISTENER_S: Final = 10.0


class QueryWatch(StreamingQueryListener):
    """Receives each batch of the query called `name`, over all its restarts."""

    def __init__(self, kind: str, report: Callable[[StreamingQueryProgress], None]) -> None:
        """`kind` begins the name. `report` is called on a thread of Spark's."""
        self.name = f"{kind}-{uuid.uuid4().hex}"
        self._report = report
        self._running: set[str] = set()
        self._ended = threading.Condition()

    def during(self, spark: SparkSession, job: Callable[[], _Result]) -> _Result:
        """Call a function that runs the query, and receive all reports of it."""
        spark.streams.addListener(self)
        try:
            done = job()
            with self._ended:  # Spark reports in a separate thread
                self._ended.wait_for(lambda: not self._running, _LISTENER_S)
            return done
        finally:
            spark.streams.removeListener(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Remember the run ID of the query."""
        if event.name == self.name:
            with self._ended:
                self._running.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch is done."""
        if event.progress.name == self.name:
            self._report(event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """The last report of a query."""
        with self._ended:
            self._running.discard(str(event.runId))
            self._ended.notify_all()
