"""Clients whose region dies, and whose address leads to another region from then on.

An address that a load balancer, a name or a proxy leads somewhere else is how clients that know
one address only change to another region. What they had written had arrived there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from anabranch.testing import Cluster
from tests.clients.conftest import NODE_SOURCES
from tests.clients.test_taskiq import ASK, SECONDS, Start, notes, start, worker
from tests.support.packages import in_a_loop_of_its_own, required
from tests.support.programs import assert_every_check_passes
from tests.support.proxy import Proxy
from tests.support.servers import free_port
from tests.support.wire import RespClient

limits = required("limits")
pottery = required("pottery")
redis_lock = required("redis_lock")
cashews = required("cashews")

__all__ = ["notes", "start"]

LOCK_S = 600
WAYS = ("FixedWindowRateLimiter", "MovingWindowRateLimiter", "SlidingWindowCounterRateLimiter")


class Address:
    """Where clients connect: with the region eu, after :meth:`fail_over` with the region us."""

    def __init__(self, cluster: Cluster, proxy: Proxy) -> None:
        self.cluster, self.proxy = cluster, proxy
        self.port = free_port()
        eu = cluster.eu
        proxy.stand_before("clients", ("127.0.0.1", self.port), (eu.host, eu.port))

    def client(self) -> RespClient:
        return RespClient(self.port, resp=2, timeout=SECONDS)

    def fail_over(self) -> None:
        """Let eu die, as by ``kill -9``, after us has received what eu had written."""
        self.cluster.settle()
        self.proxy.lead("clients", (self.cluster.us.host, self.cluster.us.port))
        self.cluster.eu.crash()


@pytest.fixture
def server() -> Iterator[Address]:
    with Cluster("eu", "us") as cluster, Proxy(lambda _: "client") as proxy:
        yield Address(cluster, proxy)


def test_the_lock_of_redis_py_is_held(server: Address) -> None:
    with redis.Redis(port=server.port) as client:
        mine, other = client.lock("till", timeout=LOCK_S), client.lock("till", timeout=LOCK_S)
        assert mine.acquire(blocking=False)
        server.fail_over()
        assert not other.acquire(blocking=False)
        assert mine.extend(LOCK_S)
        mine.release()
        assert other.acquire(blocking=False)
        other.release()


def test_python_redis_lock_is_held(server: Address) -> None:
    with redis.Redis(port=server.port) as client:
        mine, other = (redis_lock.Lock(client, "till", expire=LOCK_S) for _ in range(2))
        assert mine.acquire(blocking=False)
        server.fail_over()
        assert not other.acquire(blocking=False)
        mine.extend(2 * LOCK_S)
        mine.release()
        assert other.acquire(timeout=SECONDS)
        other.release()


def test_redlock_of_pottery_is_held(server: Address) -> None:
    with redis.Redis(port=server.port) as client:
        mine, other = (
            pottery.Redlock(key="till", masters={client}, auto_release_time=LOCK_S)
            for _ in range(2)
        )
        assert mine.acquire(blocking=False)
        server.fail_over()
        assert not other.acquire(blocking=False)
        mine.extend()
        mine.release()
        assert other.acquire(blocking=False)
        other.release()


@in_a_loop_of_its_own
async def test_cashews_has_its_values_and_its_lock(server: Address) -> None:
    cache = cashews.Cache()
    cache.setup(f"redis://127.0.0.1:{server.port}", client_side=False)
    await cache.set("k", "v")
    await cache.incr("n")
    assert await cache.set_lock("till", "mine", expire=LOCK_S)
    server.fail_over()
    await cache.get("k")  # to cashews a connection that was lost is a value that is not there
    assert await cache.get("k") == "v"
    assert await cache.incr("n") == 2
    assert not await cache.set_lock("till", "other", expire=LOCK_S)
    assert await cache.unlock("till", "mine")
    await cache.close()


@pytest.mark.parametrize("strategy", WAYS)
def test_limits_goes_on_counting(server: Address, strategy: str) -> None:
    again = Retry(NoBackoff(), 1)  # without it the first hit raises what became of the connection
    store = limits.storage.RedisStorage(f"redis://127.0.0.1:{server.port}", retry=again)
    limiter = getattr(limits.strategies, strategy)(store)
    item = limits.RateLimitItemPerHour(30)
    assert all(limiter.hit(item, "door") for _ in range(20))
    server.fail_over()
    assert sum(limiter.hit(item, "door") for _ in range(25)) == 10
    store.storage.close()


@pytest.mark.timeout(3 * SECONDS)
def test_workers_of_taskiq_go_on(server: Address, start: Start) -> None:
    worker(start)
    before, _ = start("-c", ASK, "1").communicate(timeout=SECONDS)
    assert before.split() == ["2"]
    server.fail_over()
    after, _ = start("-c", ASK, "2").communicate(timeout=SECONDS)
    assert after.split() == ["4"]


def test_libraries_of_node(node_project: Path, server: Address) -> None:
    script = "fail_over.mjs"
    command = ["node", script, str(server.port), "2"]
    assert_every_check_passes(NODE_SOURCES / script, command, node_project, server.fail_over)
