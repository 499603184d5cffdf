"""Packages that live on scripts: redis-py's register_script, Redlock, rate limiters."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import redis

from anabranch.testing import Server
from tests.clients.conftest import missing
from tests.support.servers import AnabranchServer

DEADLINE_S = 60.0

LIMITED = """
import sys
from limits import RateLimitItemPerHour, storage, strategies
store = storage.RedisStorage(sys.argv[1])
limiter = getattr(strategies, sys.argv[2])(store)
item = RateLimitItemPerHour(30)
sys.stdin.readline()
print(sum(limiter.hit(item, "door") for _ in range(25)))
"""
"""A process that wants to come in 25 times; 30 are let in together."""


def test_register_script_of_redis_py(server: AnabranchServer) -> None:
    client = redis.Redis(port=server.port)
    add = client.register_script(
        "local n = redis.call('INCRBY', KEYS[1], ARGV[1]) "
        "redis.call('XADD', KEYS[2], '*', 'sum', n) return n"
    )
    assert add(keys=["n", "s"], args=[5]) == 5
    client.script_flush()  # it sends the script again after NOSCRIPT
    assert add(keys=["n", "s"], args=[2]) == 7
    queue = client.pipeline()
    queue.set("a", "b")
    add(keys=["n", "s"], args=[1], client=queue)
    queue.get("a")
    assert queue.execute() == [True, 8, b"b"]
    assert [fields[b"sum"] for _, fields in client.xrange("s")] == [b"5", b"7", b"8"]


@pytest.fixture
def masters() -> Iterator[set[redis.Redis]]:
    with Server() as first, Server() as second, Server() as third:
        yield {redis.Redis(port=each.port) for each in (first, second, third)}


def test_redlock_on_three_servers(masters: set[redis.Redis]) -> None:
    try:
        from pottery import Redlock
    except ImportError:
        missing("pottery is not installed: Redlock IS NOT TRIED", forgiven=False)

    def lock(patience_s: float) -> Redlock:
        return Redlock(
            key="till",
            masters=masters,
            auto_release_time=DEADLINE_S,
            context_manager_timeout=patience_s,
        )

    first = lock(DEADLINE_S)
    assert first.acquire(timeout=DEADLINE_S)
    assert first.locked() > 0
    first.extend()
    second = lock(DEADLINE_S)
    assert not second.acquire(blocking=False)
    first.release()
    assert second.acquire(timeout=DEADLINE_S)
    second.release()

    counter = next(iter(masters))
    counter.set("n", 0)

    def add() -> None:
        for _ in range(3):
            with lock(DEADLINE_S):
                counter.set("n", int(counter.get("n") or 0) + 1)

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert counter.get("n") == b"9"


@pytest.mark.parametrize(
    "strategy",
    ["FixedWindowRateLimiter", "MovingWindowRateLimiter", "SlidingWindowCounterRateLimiter"],
)
def test_a_rate_limit_holds_for_several_processes(server: AnabranchServer, strategy: str) -> None:
    try:
        import limits  # noqa: F401
    except ImportError:
        missing("limits is not installed: rate limiters ARE NOT TRIED", forgiven=False)
    address = f"redis://127.0.0.1:{server.port}"
    visitors = [
        subprocess.Popen(
            [sys.executable, "-c", LIMITED, address, strategy],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for visitor in visitors:
            assert visitor.stdin is not None
            visitor.stdin.write("go\n")
            visitor.stdin.flush()
        let_in = [int(visitor.communicate(timeout=DEADLINE_S)[0]) for visitor in visitors]
    finally:
        for visitor in visitors:
            visitor.kill()
            visitor.wait()
    assert sum(let_in) == 30
