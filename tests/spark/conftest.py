"""One Spark session for all tests here, and servers that are empty at the start of each."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.class_archive import QUICK, archive_options
from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses
from tests.support.servers import AnabranchServer, RedisServer, ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark starts many processes, for each of which a busy machine may take half a minute."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> None:
    """Each Java is :data:`QUICK`, and loads classes from an archive.

    Spark's scripts hand these on to every Java that they start.
    """
    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK} {archive_options()}"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that `anabranch.spark.session` makes."""
    import pyarrow.dataset  # noqa: F401 - looks for pandas once, and stumbles over None

    from anabranch.spark import session

    # Clients of Spark Connect need pandas. The extra called spark does not bring it, so nothing
    # here may: an import of it fails.
    sys.modules["pandas"] = None  # type: ignore[assignment]
    made = session("tests", "local[2,4]")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RegionProcesses]:
    """The regions in ``NAMES`` of the module, with the ``ARGUMENTS`` that stand there, if any."""
    arguments = getattr(request.module, "ARGUMENTS", ())
    place = tmp_path_factory.mktemp("regions")
    with RegionProcesses(place, request.module.NAMES, *arguments) as processes:
        yield processes


@pytest.fixture
def regions(cluster: RegionProcesses) -> RegionProcesses:
    """The same, empty and connected; tests may part them."""
    cluster.heal()
    for server in cluster.servers:
        cluster.call(server, "FLUSHALL")
    wait_until(cluster.converged, "all have applied the same", 300)
    return cluster


@pytest.fixture
def ours(anabranch_server: AnabranchServer) -> AnabranchServer:
    """Our server, empty."""
    with anabranch_server.client() as client:
        client.call("FLUSHALL")
    return anabranch_server


@pytest.fixture
def plain(redis_server: RedisServer) -> RedisServer:
    """Redis, empty: no positions, no bulk commands."""
    with redis_server.client() as client:
        client.call("FLUSHALL")
    return redis_server


@pytest.fixture(params=["ours", "plain"])
def server(request: pytest.FixtureRequest) -> ServerProcess:
    """Both, one after the other."""
    found: ServerProcess = request.getfixturevalue(request.param)
    return found
