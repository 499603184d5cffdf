"""Receives Spark's reports after each batch, and computes from them how far a query is behind.

Offsets are positions, so the lag of each region is a subtraction; the server is not asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from anabranch.spark.reading.offsets import OffsetError, Vector

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far one query is behind in one region of one stream, after a batch."""

    query: str
    """Name of the query, or its ID."""
    batch: int
    stream: str
    region: str
    entries: int
    """Entries the server had when the batch was planned, and the batch did not reach."""


def lags(query: str, batch: int, end: str, latest: str) -> list[Lag]:
    """The lag from two offsets: the end of a batch, and the latest one at that time.

    Empty for a batch that is repeated after a restart: Spark has not requested the latest offset.
    """
    if latest == "None":
        return []
    reached, newest = Vector.parse(end), Vector.parse(latest)
    behind = {(each.stream, each.region): len(each) for each in newest.ranges(reached)}
    return [
        Lag(query, batch, stream, region, behind.get((stream, region), 0))
        for stream, region, _ in newest.items()
    ]


class LagListener(StreamingQueryListener):
    """Reports the lag after every batch of the queries of a session.

    ``spark.streams.addListener(LagListener())`` logs it; give a function to do something else.
    """

    def __init__(self, report: Callable[[Lag], None] | None = None) -> None:
        """`report` gets each figure, on a thread of Spark's."""
        self._report = report if report is not None else _to_log

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to report yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Subtract, and report."""
        progress = event.progress
        name = progress.name or str(progress.id)
        for source in progress.sources:
            try:
                found = lags(name, progress.batchId, source.endOffset, source.latestOffset)
            except OffsetError:
                continue  # a source of another kind
            for lag in found:
                self._report(lag)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing to report any more."""


def _to_log(lag: Lag) -> None:
    place = f"{lag.stream}/{lag.region}" if lag.region else lag.stream
    _log.info(
        "query %s, batch %d: %d entries behind in %s", *(lag.query, lag.batch), lag.entries, place
    )
