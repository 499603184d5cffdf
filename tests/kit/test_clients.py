"""Client libraries that know nothing of the test kit, in its server and its cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis.asyncio

from anabranch.testing import Cluster, Server
from tests.support.inspection import wait_until

coredis: Any = None
try:
    import coredis
except ImportError:
    pass
needs_coredis = pytest.mark.skipif(
    coredis is None, reason="coredis is not installed: IT IS NOT TRIED WITH THE TEST KIT"
)


async def test_redis_py_with_asyncio_sees_time_faults_and_a_crash() -> None:
    async with (
        Server(persist=True) as server,
        redis.asyncio.from_url(server.url, decode_responses=True) as client,
    ):
        server.clock.freeze()
        await client.set("k", "v", ex=10)
        reader = asyncio.create_task(client.xread({"s": "$"}, block=5_000))
        await asyncio.to_thread(
            wait_until, lambda: server.statistics()["blocked_clients"] == 1, "the reader waits"
        )
        server.clock.advance(10)
        assert not await reader
        assert await client.get("k") is None
        server.fail_next("XADD", "OOM not now")
        with pytest.raises(redis.OutOfMemoryError):
            await client.xadd("s", {"f": "v"})
        await client.xadd("s", {"f": "v"})
        server.crash()
        server.restart()
        await client.connection_pool.disconnect()  # what the crash has broken
        assert await client.xlen("s") == 1


async def test_redis_py_with_asyncio_in_two_regions() -> None:
    async with (
        Cluster("eu", "us") as cluster,
        redis.asyncio.from_url(cluster.eu.url) as eu,
        redis.asyncio.from_url(cluster.us.url) as us,
    ):
        cluster.cut("eu", "us")
        await eu.xadd("s", {"f": "v"})
        await us.xadd("s", {"f": "v"})
        assert (await eu.xlen("s"), await us.xlen("s")) == (1, 1)
        cluster.heal()
        await asyncio.to_thread(cluster.settle)
        assert await eu.xrange("s") == await us.xrange("s")


@needs_coredis
@pytest.mark.parametrize("unix", [False, True])
async def test_coredis_reads_with_a_group(unix: bool) -> None:
    async with Server(unix=unix) as server:
        url = server.unix_url if unix else server.url
        async with coredis.Redis.from_url(url, decode_responses=True) as client:
            entry_id = await client.xadd("s", {"f": "v"})
            assert await client.xgroup_create("s", "g", identifier="0")
            found = await client.xreadgroup("g", "c", {"s": ">"})
            assert [each.identifier for each in found["s"]] == [entry_id]
            assert await client.xack("s", "g", [entry_id]) == 1
            server.fail_next("XADD", "ERR not now")
            with pytest.raises(coredis.exceptions.ResponseError):
                await client.xadd("s", {"f": "v"})
