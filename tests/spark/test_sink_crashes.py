"""The whole driver dies, Java and workers included, and the query goes on from its checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark import copying_driver
from tests.spark.processes import kill_session
from tests.spark.test_sink import fill, load, start, url, values
from tests.support.servers import REPOSITORY, AnabranchServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 6000


@pytest.mark.long
def test_a_driver_killed_twice_in_mid_batch_writes_every_row_once(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", ROWS)
    for chunk, until in ((4, 1500), (7, 4000)):
        driver = subprocess.Popen(
            [sys.executable, copying_driver.__file__, url(ours), str(tmp_path / "c"), str(chunk)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
            cwd=tmp_path,
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for_entries(ours, driver, until)
        finally:
            kill_session(driver.pid)
            driver.wait()
        with ours.client() as client:
            assert until <= int(client.call("XLEN", "t")[1]) < ROWS
    table = load(spark, ours, "s").select("fields")
    with pytest.raises(Exception, match=r"rows of another query .* made anew"):
        start(table, ours, tmp_path / "new", stream="t").awaitTermination()
    start(table, ours, tmp_path / "c", stream="t").awaitTermination()
    found = values(ours, "t")
    assert sorted(found) == list(range(ROWS))
    for task in (range(ROWS // 2), range(ROWS // 2, ROWS)):  # so many entries are two tasks
        assert [each for each in found if each in task] == list(task)


def wait_for_entries(
    server: AnabranchServer, driver: subprocess.Popen[bytes], entries: int
) -> None:
    deadline = time.monotonic() + 300
    with server.client() as client:
        while int(client.call("XLEN", "t")[1]) < entries:
            assert driver.poll() is None, "the driver ended by itself"
            assert time.monotonic() < deadline, "the driver writes nothing"
            time.sleep(0.01)
