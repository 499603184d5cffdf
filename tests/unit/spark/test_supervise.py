"""Restarts with back-off, with queries that need no Spark."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.spark.runtime.supervise import GaveUp, supervise


class Query:
    """Ends as it is told to, after committing a batch or none."""

    def __init__(self, failure: str | None, batch: int | None) -> None:
        self.failure = failure
        self.lastProgress = None if batch is None else {"batchId": batch}

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        if self.failure is not None:
            raise RuntimeError(self.failure)


def run(*queries: Query | Exception, **more: Any) -> tuple[Any, list[float]]:
    pauses: list[float] = []
    waiting = list(queries)

    def start() -> Any:
        each = waiting.pop(0)
        if isinstance(each, Exception):
            raise each
        return each

    try:
        return supervise(start, sleep=pauses.append, **more), pauses
    finally:
        assert not waiting


def test_a_query_that_ends_well_is_not_started_again() -> None:
    done, pauses = run(Query(None, 3))
    assert (done.starts, done.failures, pauses) == (1, (), [])


def test_pauses_double_up_to_a_limit() -> None:
    falls = [Query("down", None) for _ in range(5)]
    done, pauses = run(*falls, Query(None, 1), first_pause_s=1, last_pause_s=4)
    assert done.starts == 6
    for pause, about in zip(pauses, [1, 2, 4, 4, 4], strict=True):
        assert 0.8 * about <= pause <= 1.2 * about


def test_progress_begins_the_count_anew() -> None:
    falls = [Query("down", batch) for batch in (1, 1, 2, 2, 3, 3)]
    done, pauses = run(*falls, Query(None, 4), failures_max=2)
    assert done.failures == ("down",) * 6
    assert max(pauses) <= 2.4


def test_it_gives_up_with_the_last_reason() -> None:
    java = "[STREAM_FAILED] Query failed\n  Traceback\nanabranch.spark.Bad: stream t is gone\n at"
    with pytest.raises(GaveUp, match=r"3 times .*: stream t is gone$"):
        run(*[Query(java, 7) for _ in range(3)], failures_max=2)


def test_a_start_that_fails_counts_unless_it_is_the_first() -> None:
    done, _ = run(Query("down", 1), OSError("no checkpoint now"), Query(None, 2))
    assert done.failures == ("down", "no checkpoint now")
    with pytest.raises(ValueError, match="wrong option"):
        run(ValueError("wrong option"))
