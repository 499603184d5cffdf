"""Keep a streaming query running: start it again from its checkpoint, ever more slowly.

Spark ends a query when a task has failed too often, when its source's process dies or when the
server is away for longer than the client waits. The checkpoint makes starting again safe, so doing
it is left to a loop: back-off doubles from a second to a minute, begins anew after progress, and
ends after a number of failures without any.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["GaveUp", "Supervised", "reason_of", "supervise"]

_log = logging.getLogger(__name__)
_JITTER: Final = 0.2  # queries that fell together do not come back together


class GaveUp(AnabranchError):
    """A query failed too often without progress; the text ends with its last failure."""


@dataclass(frozen=True, slots=True)
class Supervised:
    """How it went."""

    starts: int
    """How often the query was started."""
    failures: tuple[str, ...]
    """First line of each failure."""


def supervise(
    start: Callable[[], StreamingQuery],
    *,
    failures_max: int = 10,
    first_pause_s: float = 1.0,
    last_pause_s: float = 60.0,
    sleep: Callable[[float], None] = time.sleep,
) -> Supervised:
    """Run a query until it ends well (AvailableNow), is stopped, or fails too often in a row.

    `start` makes and starts the query, always with the same checkpoint. A batch that was committed
    counts as progress. Raises `GaveUp`; what `start` itself raises is a failure like others, but
    for the first start: a query that never was is a mistake to be told at once.
    """
    failures: list[str] = []
    in_a_row = 0
    starts = 0
    reached: int | None = None
    while True:
        query: StreamingQuery | None = None
        try:
            starts += 1
            query = start()
            query.awaitTermination()
        except Exception as error:
            if query is None and starts == 1:
                raise
            reason = reason_of(error)
        else:
            return Supervised(starts, tuple(failures))
        batch = None if query is None else _last_batch(query)
        if batch is not None and (reached is None or batch > reached):
            reached, in_a_row = batch, 0
        in_a_row += 1
        failures.append(reason)
        if in_a_row > failures_max:
            several = f"the query failed {in_a_row} times without a batch in between: "
            raise GaveUp(f"{several if failures_max else ''}{reason}")
        pause = min(last_pause_s, first_pause_s * 2.0 ** (in_a_row - 1))
        pause *= 1 + random.uniform(-_JITTER, _JITTER)  # noqa: S311 - nothing to guess here
        _log.warning("query failed, starts again in %.1f s: %s", pause, reason)
        sleep(pause)


def _last_batch(query: StreamingQuery) -> int | None:
    """The last batch that was committed while this query ran."""
    progress = query.lastProgress
    if progress is None:
        return None
    number = progress["batchId"]
    return None if number is None else int(number)


def reason_of(error: Exception) -> str:
    """What went wrong: the line of a Spark failure that is about us, without the error's name."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line.partition(": ")[2] for line in lines if line.startswith("anabranch.")]
    return (own or lines or [type(error).__name__])[0]
