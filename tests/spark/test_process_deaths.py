"""Any one process of a query dies, at any moment: every row is written once, and in order."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.spark.runtime.supervise import Supervised, supervise
from tests.spark.cutting import ReturningServer
from tests.spark.processes import PLANNERS, SOURCE, TASKS, kill_one
from tests.spark.test_ledger import kill_at
from tests.spark.test_sink import fill, start, url, values
from tests.support.servers import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 3000
BATCH = 1000

pytestmark = [pytest.mark.slow]


def copy(spark: SparkSession, server: ServerProcess, place: Path) -> Supervised:
    """Stream ``s`` to stream ``t`` in batches of two tasks, a few rows at a time, to its end."""
    reader = spark.readStream.format("anabranch").option("url", url(server))
    reader = reader.options(subscribe="s", startingOffsets="earliest", minPartitions=2)
    reader = reader.options(maxEntriesPerTrigger=BATCH, retries=9, retryIntervalMs=50)
    table = reader.load().select("fields")
    options = {"stream": "t", "maxRowsInFlight": 4, "retries": 9}
    return supervise(lambda: start(table, server, place, **options), sleep=lambda _seconds: None)


def check_copy(server: ServerProcess) -> None:
    """Every row once; those of a task in their order."""
    found = values(server, "t")
    assert sorted(found) == list(range(ROWS))
    half = BATCH // 2
    for first in range(0, ROWS, half):
        task = range(first, first + half)
        assert [each for each in found if each in task] == list(task)


@pytest.mark.parametrize(
    ("victims", "starts"),
    [
        pytest.param(TASKS, None, id="a worker that reads or writes"),
        pytest.param(SOURCE, 4, id="the process that plans batches"),
        pytest.param(PLANNERS, 1, id="those that plan and commit writes"),
    ],
)
def test_a_process_killed_at_any_moment_loses_and_doubles_nothing(
    spark: SparkSession, ours: ServerProcess, tmp_path: Path, victims: tuple[str, ...], starts: int
) -> None:
    fill(ours, "s", ROWS)
    rng = random.Random(str(victims))
    moments = [first + rng.randrange(50, BATCH - 300) for first in range(0, ROWS, BATCH)]
    killed: list[int] = []

    def kill() -> None:
        with ours.client() as watcher:
            for moment in moments:
                while int(watcher.call("XLEN", "t")[1]) < moment:
                    pass
                killed.extend(kill_one(spark, victims, rng))

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    done = copy(spark, ours, tmp_path)
    killer.join(60)
    assert not killer.is_alive()
    assert len(killed) == len(moments)
    assert starts in (None, done.starts)
    check_copy(ours)


def test_a_server_killed_while_it_is_read_and_written_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(11)
    with ReturningServer(tmp_path / "server", ["--appendfsync", "always"]) as server:
        fill(server, "s", ROWS)
        moments = sorted(rng.sample(range(1, ROWS - 300), 3))
        killer = threading.Thread(target=kill_at, args=(server, moments, "t"), daemon=True)
        killer.start()
        copy(spark, server, tmp_path / "checkpoint")
        killer.join(60)
        assert server.starts == 1 + len(moments)
        check_copy(server)
