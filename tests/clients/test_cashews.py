"""cashews: a cache with locks."""

from __future__ import annotations

from tests.support.packages import in_a_loop_of_its_own, required
from tests.support.servers import AnabranchServer

cashews = required("cashews")

DEADLINE_S = 60


@in_a_loop_of_its_own
async def test_cashews_keeps_values_and_a_lock(server: AnabranchServer) -> None:
    cache = cashews.Cache()
    cache.setup(f"redis://127.0.0.1:{server.port}", client_side=False)
    await cache.set("k", {"a": 1}, expire=DEADLINE_S)
    assert await cache.get("k") == {"a": 1}
    assert [await cache.incr("n"), await cache.incr("n")] == [1, 2]
    assert await cache.set_lock("till", "mine", expire=DEADLINE_S)
    assert not await cache.set_lock("till", "other", expire=DEADLINE_S)
    assert await cache.is_locked("till")
    assert await cache.unlock("till", "mine")
    async with cache.lock("till", expire=DEADLINE_S):
        assert await cache.is_locked("till")
    await cache.delete_match("*")
    assert await cache.get("k") is None
    await cache.close()
