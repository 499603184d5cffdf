"""aiocache: its Redis back end, which needs strings and scripts only."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.packages import in_a_loop_of_its_own, required
from tests.support.servers import AnabranchServer

aiocache = required("aiocache")
lock = required("aiocache.lock")
serializers = required("aiocache.serializers")


def connected(server: AnabranchServer) -> Any:
    return aiocache.RedisCache(
        endpoint="127.0.0.1",
        port=server.port,
        namespace="test",
        serializer=serializers.JsonSerializer(),
    )


@in_a_loop_of_its_own
async def test_values_are_kept_and_deleted(server: AnabranchServer) -> None:
    async with connected(server) as cache:
        assert await cache.set("a", {"x": 1}, ttl=100)
        assert await cache.get("a") == {"x": 1}
        assert await cache.multi_set([("b", 1), ("c", 2)], ttl=100)
        assert await cache.multi_get(["b", "c", "d"]) == [1, 2, None]
        assert await cache.add("d", 1)
        with pytest.raises(ValueError, match="already exists"):
            await cache.add("d", 1)
        assert await cache.increment("n", 5) == 5
        assert await cache.exists("a")
        assert await cache.expire("b", 100)
        assert await cache.delete("a") == 1
        assert await cache.clear()
        assert await cache.get("b") is None


@in_a_loop_of_its_own
async def test_its_lock_lets_one_in_at_a_time(server: AnabranchServer) -> None:
    async with connected(server) as cache:
        async with lock.RedLock(cache, "k", lease=20):
            assert await cache.exists("k-lock")
        assert not await cache.exists("k-lock")


@in_a_loop_of_its_own
async def test_a_conditional_write_needs_the_old_value(server: AnabranchServer) -> None:
    async with connected(server) as cache:
        await cache.set("a", "old")
        async with lock.OptimisticLock(cache, "a") as unchanged:
            await cache.set("a", "by another")
            with pytest.raises(lock.OptimisticLockError):
                await unchanged.cas("new")
        async with lock.OptimisticLock(cache, "a") as unchanged:
            assert await unchanged.cas("new")
        assert await cache.get("a") == "new"
