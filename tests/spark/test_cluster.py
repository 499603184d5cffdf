"""On a cluster: workers that share nothing with the driver, that die, that do the same twice."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.spark.spark_cluster import SparkCluster, SparkProcess, ended
from tests.spark.test_sink import fill, url, values
from tests.support.servers import AnabranchServer

pytestmark = [pytest.mark.slow]

HOSTS = ("127.0.0.2", "127.0.0.3")
ROWS = 24_000


class TwoWorkers:
    """A master with two workers, of which tests may kill any."""

    def __init__(self, cluster: SparkCluster) -> None:
        self.cluster = cluster
        self.address = cluster.master()
        self.workers: dict[str, SparkProcess] = {}

    def complete(self) -> None:
        """Have two workers."""
        missing = [host for host in HOSTS if host not in self.workers]
        for host in missing:
            self.workers[host] = self.cluster.worker(self.address, host)
        for host in missing:
            self.workers[host].says("Successfully registered with master")

    def run(self, place: Path, *words: str) -> dict[str, Any]:
        """What a driver tells when it is done; else it only says where its queries start."""
        what, *rest = words
        with ended(self.cluster.driver(place, what, self.address, *rest)) as driver:
            told, noise = driver.communicate(timeout=600)
        starts = [each for each in noise.splitlines() if "no checkpoint yet: starting" in each]
        assert (driver.returncode, noise.splitlines()) == (0, starts)
        found: dict[str, Any] = json.loads(told)
        return found


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoWorkers]:
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc, and addresses 127.x.x.x: NOTHING IS TESTED ON A CLUSTER")
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield TwoWorkers(cluster)


@pytest.fixture
def spark_workers(two_workers: TwoWorkers) -> TwoWorkers:
    two_workers.complete()
    return two_workers


@pytest.mark.long
def test_all_works_where_nothing_is_shared_but_the_package(
    spark_workers: TwoWorkers, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", 2000)
    told = spark_workers.run(tmp_path / "driver", "tour", url(ours), str(tmp_path))
    tasks = told["tasks"]
    for package, _, has_tests in tasks:
        assert Path(package).is_relative_to(spark_workers.cluster.site)
        assert not has_tests
    places = {
        host: sum(Path(directory).is_relative_to(worker.place) for _, directory, _ in tasks)
        for host, worker in spark_workers.workers.items()
    }
    assert min(places.values()) > 0
    assert sum(places.values()) == len(tasks)
    check_tour(told, ours)


def check_tour(told: dict[str, Any], server: AnabranchServer) -> None:
    """What the rest of the tour must have found in 2000 entries."""
    assert told["numbers"] == list(range(2000))
    assert sorted(values(server, "t")) == list(range(2000))
    assert told["archived"] == [2000, 0]


@pytest.mark.long
def test_a_worker_and_its_executor_killed_in_mid_batch_lose_and_double_nothing(
    spark_workers: TwoWorkers, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", ROWS)
    halves = (range(ROWS // 2), range(ROWS // 2, ROWS))
    least = random.Random(7).randrange(1, ROWS // 30)
    cluster = spark_workers.cluster
    with ended(
        cluster.driver(tmp_path, "copy", spark_workers.address, url(ours), str(tmp_path))
    ) as driver:
        wait_for_entries(ours, driver, halves, least)
        spark_workers.workers.pop(HOSTS[1]).kill()
        before = values(ours, "t")
        told, noise = driver.communicate(timeout=600)
    # Both workers were in the middle of their half, so one half was done by two of them.
    assert all(0 < sum(each in half for each in before) < len(half) for half in halves)
    assert driver.returncode == 0, noise
    assert json.loads(told) == {"batches": [ROWS]}
    found = values(ours, "t")
    assert sorted(found) == list(range(ROWS))
    for half in halves:
        assert [each for each in found if each in half] == list(half)


def wait_for_entries(
    server: AnabranchServer, driver: subprocess.Popen[str], halves: Sequence[range], least: int
) -> None:
    """Until each half has come that far."""
    deadline = time.monotonic() + 300
    while min(sum(each in half for each in values(server, "t")) for half in halves) < least:
        assert driver.poll() is None, driver.communicate()
        assert time.monotonic() < deadline, "the driver writes nothing"
        time.sleep(0.002)


def speculate(
    cluster: TwoWorkers, server: AnabranchServer, place: Path, idempotence: str
) -> list[int]:
    """What is in the stream after two attempts of a task ran at the same time."""
    cluster.run(place, "speculate", url(server), idempotence)
    with server.client() as client:
        begun = [each[1] for each in client.call("LRANGE", "begun", "0", "-1")[1]]
        done = [each[1] for each in client.call("LRANGE", "done", "0", "-1")[1]]
    assert sorted(begun) == [b"0 0", b"0 1", b"1 0"]
    # The first attempt went on, so it had met the second in the middle of both.
    assert set(done) & {b"0 0", b"0 1"}
    return values(server, "t")


@pytest.mark.long
def test_a_task_that_spark_runs_twice_at_a_time_writes_each_row_once(
    spark_workers: TwoWorkers, ours: AnabranchServer, tmp_path: Path
) -> None:
    found = speculate(spark_workers, ours, tmp_path, "ledger")
    assert sorted(found) == list(range(4000))
    for half in (range(2000), range(2000, 4000)):
        assert [each for each in found if each in half] == list(half)
