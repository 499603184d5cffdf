"""Keeps a streaming query running: starts it again from its checkpoint, with back-off.

Spark ends a query when a task has failed too often, when the process of its source dies, or when
the server is unreachable for longer than the client waits. With a checkpoint a restart is safe, so
a loop does it: the back-off doubles from a second to a minute, is reset after progress, and the
loop gives up after a number of failures without progress.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from anabranch.errors import AnabranchError

_log = logging.getLogger(__name__)
_JITTER: Final = 0.2  # queries that failed together should not restart together


class GaveUp(AnabranchError):
    """A query failed too often without progress; the text ends with its last failure."""


class Supervisable(Protocol):
    """What is run: a StreamingQuery of Spark, or something like it."""

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
        """None, or what has ``"batchId"``: the last batch that was committed."""

    def awaitTermination(self) -> Any:  # noqa: N802 - Spark's name
        """Return when it has ended, and raise the exception with which it failed."""


@dataclass(frozen=True, slots=True)
class Supervised:
    """The outcome of a supervised query."""

    starts: int
    """How often the query was started."""
    failures: tuple[str, ...]
    """First line of each failure."""


def supervise(
    start: Callable[[], Supervisable],
    *,
    failures_max: int = 10,
    first_pause_s: float = 1.0,
    last_pause_s: float = 60.0,
    sleep: Callable[[float], Any] = time.sleep,
) -> Supervised:
    """Run a query until it ends (AvailableNow), is stopped, or fails too often in a row.

    `start` makes and starts the query, always with the same checkpoint. A batch that was committed
    counts as progress. Raises `GaveUp`; an exception of `start` counts as a failure,
    except at the first start, where it is raised at once.
    """
    failures: list[str] = []
    in_a_row = 0
    starts = 0
    reached: int | None = None
    while True:
        query: Supervisable | None = None
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
        done = None if query is None else query.lastProgress
        batch = None if done is None else done["batchId"]  # the last one that was committed
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


def reason_of(error: Exception) -> str:
    """The line of a Spark failure that concerns this package, without the error's name."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line.partition(": ")[2] for line in lines if line.startswith("anabranch.")]
    return (own or lines or [type(error).__name__])[0]
