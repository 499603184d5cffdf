"""python-redis-lock: a lock that wakes who waits for it, by a list."""

from __future__ import annotations

import threading

import redis

from tests.support.packages import required
from tests.support.servers import AnabranchServer

redis_lock = required("redis_lock")

DEADLINE_S = 60


def test_python_redis_lock_wakes_who_waits(server: AnabranchServer) -> None:
    with redis.Redis(port=server.port) as client:
        first, second = (redis_lock.Lock(client, "till", expire=DEADLINE_S) for _ in range(2))
        assert first.acquire(blocking=False)
        assert not second.acquire(blocking=False)
        first.extend(2 * DEADLINE_S)
        assert client.ttl("lock:till") > DEADLINE_S
        got_it: list[bool] = []
        waits = threading.Thread(
            target=lambda: got_it.append(second.acquire(timeout=DEADLINE_S)), daemon=True
        )
        waits.start()
        first.release()
        waits.join(DEADLINE_S)
        assert got_it == [True]
        second.release()
        assert not second.locked()
