"""Servers that a whole test session shares."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.support.servers import AnabranchServer, RedisServer, redis_server_path

STARTS_SPARK = ("test_cluster.py", "test_connect.py", "test_java.py")
"""In tests/spark, those that do without the session that the others there share."""


TOGETHER = ("tests/browser/", "tests/system/test_demo.py", "tests/system/test_image.py")
"""Share a browser, an image that takes long to build, or the ports that a demo always has."""


_HAS_BEGUN = pytest.StashKey[bool]()
_NICE = 5  # a third of the share of a core that a process with 0 gets


class _SparkTogether(LoadScopeScheduling):  # type: ignore[misc]  # without types
    """In several processes: tests that share what is dear run in one of them, test by test.

    For Spark that is its session; those that start Spark by themselves are one after the other,
    too. The session begins first, and its process has priority: it takes as long as half of all
    others, and no core should be idle at the end.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, _, _ = nodeid.partition("::")
        if path.startswith(TOGETHER):
            return path
        if not path.startswith("tests/spark/"):
            return nodeid
        return "starts Spark" if path.endswith(STARTS_SPARK) else "Spark"

    def _assign_work_unit(self, node: Any) -> None:
        if "Spark" in self.workqueue:
            self.workqueue.move_to_end("Spark", last=False)
        super()._assign_work_unit(node)


# An example takes as long as the machine is slow: its time says nothing about the code.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_configure() -> None:
    """Hear Control-C, and let the programs under test hear it, though we run in the background.

    What a shell without job control starts with ``&`` ignores SIGINT, and so does all below it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep all that was imported and collected out of garbage collections, and collect less often.

    They took a sixth of the time of tests that start no process.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """A process that begins with other tests gets a lower priority than the one with Spark."""
    if item.config.stash.get(_HAS_BEGUN, False):
        return
    item.config.stash[_HAS_BEGUN] = True
    if "PYTEST_XDIST_WORKER" in os.environ and not item.nodeid.startswith("tests/spark/"):
        os.nice(_NICE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _SparkTogether(config, log)


def require_redis() -> None:
    """Skip, loudly, without redis-server; where CI=true that is a failure."""
    if redis_server_path() is not None:
        return
    message = "redis-server is not installed: NOTHING IS COMPARED WITH REDIS"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """Redis, in memory."""
    require_redis()
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def second_redis_server() -> Iterator[RedisServer]:
    """Another Redis, to compare Redis with itself."""
    require_redis()
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def anabranch_server() -> Iterator[AnabranchServer]:
    """Our server; that it stops well is checked at the end."""
    with AnabranchServer() as server:
        yield server
