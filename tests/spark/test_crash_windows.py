"""Checkpoints as crashes leave them, and what starts again with them: fast, for nothing dies."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.accidents import broken_source, dying_source
from tests.spark.reading import streaming, talking, to_memory
from tests.spark.test_sink import (
    accidents,
    fill,
    forget_last,
    run_in_batches,
    start,
    url,
    values,
)
from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 3000
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def test_a_batch_that_was_written_but_never_noted_is_completed_by_what_came_since(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", ROWS)
    run_in_batches(spark, ours, tmp_path)
    fill(ours, "s", 10)
    run_in_batches(spark, ours, tmp_path)
    assert forget_last(tmp_path, "commits") == forget_last(tmp_path, "offsets") == 3
    fill(ours, "s", 20)  # the batch is planned again, and now it is longer
    run_in_batches(spark, ours, tmp_path)
    assert values(ours, "t") == [*range(ROWS), *range(10), *range(20)]


def test_a_batch_that_died_half_written_is_completed_under_other_options(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    spark.dataSource.register(broken_source("hopeless", ours.port, 700))
    fill(ours, "s", ROWS)

    def cut(pieces: int) -> DataFrame:
        reader = spark.readStream.format("anabranch").option("url", url(ours))
        reader = reader.options(subscribe="s", startingOffsets="earliest", minPartitions=pieces)
        return reader.load().select("fields")

    def run(table: DataFrame, kind: str, **options: Any) -> None:
        start(table, ours, tmp_path, kind, stream="t", **options).awaitTermination()

    with pytest.raises(Exception, match="an accident"):
        run(cut(2), "broken", maxRowsInFlight=70)
    assert accidents(ours) >= 4
    half = len(values(ours, "t"))
    assert 500 <= half < ROWS
    before = spark.conf.get(ARROW_ROWS)
    spark.conf.set(ARROW_ROWS, "77")
    try:
        run(cut(5), "anabranch", maxRowsInFlight=1000)
    finally:
        spark.conf.set(ARROW_ROWS, before)
    found = values(ours, "t")
    assert len(found) == ROWS
    for task in (range(ROWS // 2), range(ROWS // 2, ROWS)):
        assert [each for each in found if each in task] == list(task)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(more, marks=pytest.mark.long) for more in (1, 2, 3))]
)
def test_workers_that_are_killed_while_they_read_lose_and_double_nothing(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path, seed: int
) -> None:
    spark.dataSource.register(dying_source(ours.port, random.Random(seed).randrange(1400)))
    fill(ours, "s", ROWS)
    given = {"url": url(ours), "subscribe": "s", "minPartitions": "2"}
    given["startingOffsets"] = "earliest"
    table = spark.read.format("dying").schema("n int").options(**given).load()
    assert sorted(row.n for row in table.collect()) == list(range(ROWS))
    assert accidents(ours) == 2
    growing = spark.readStream.format("dying").schema("n int").options(**given).load()
    start(growing, ours, tmp_path, stream="t").awaitTermination()
    assert accidents(ours) == 4
    assert sorted(values(ours, "t")) == list(range(ROWS))


def test_an_idle_query_runs_no_batch_in_50_polls(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", 10)
    frame = streaming(spark, ours, "n int", subscribe="s", pollTimeoutMs=10)
    query = to_memory(frame, f"t{tmp_path.name}".replace("-", "_"), tmp_path)
    try:
        query.processAllAvailable()
        with talking(ours) as client:

            def polls() -> int:
                calls: int = client.info("commandstats")["cmdstat_ab.offsets"]["calls"]
                return calls

            first = polls()
            wait_until(lambda: polls() >= first + 50, "50 polls", 300)
        assert [each.name for each in (tmp_path / "offsets").glob("[0-9]*")] == ["0"]
        assert query.exception() is None
    finally:
        query.stop()
