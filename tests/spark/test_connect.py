"""Through Spark Connect: the driver is a server elsewhere, and its client has no Java."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.spark_cluster import SparkCluster, ended
from tests.spark.test_cluster import check_tour
from tests.spark.test_java import programs_but_java
from tests.spark.test_sink import entries, fill, url
from tests.support.servers import AnabranchServer

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc: NOTHING IS TESTED OVER SPARK CONNECT")
    with SparkCluster(tmp_path_factory.mktemp("connect")) as made:
        yield made


def test_all_works_through_a_connect_server(
    cluster: SparkCluster, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", 2000)
    address = cluster.connect()
    without_java = {"PATH": str(programs_but_java(tmp_path / "bin"))}
    driver = cluster.driver(
        tmp_path / "client", "tour", address, url(ours), str(tmp_path), environment=without_java
    )
    with ended(driver):
        told, noise = driver.communicate(timeout=600)
    assert (driver.returncode, noise) == (0, "")
    found = json.loads(told)
    for package, directory, has_tests in found["tasks"]:
        assert Path(package).is_relative_to(cluster.site)
        assert not has_tests
        assert not Path(directory).is_relative_to(tmp_path)
    check_tour(found, ours)
    assert found["late"] == 2000
    assert found["lag"] == [["s", 0]]
    assert found["by region"] == [2000, 1]
    assert found["taken in"] == [[1, 1], [1, 1]]
    assert found["replayed"] == 2000
    assert entries(ours, "again:s") == entries(ours, "s")
    with ours.client() as client:
        assert [client.call("XLEN", key) for key in ("c", "c:bad")] == [(":", 1), (":", 1)]
