"""redis-py as people use it with asyncio, in both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import redis
import redis.asyncio

from tests.clients.test_redis_py import streams
from tests.support.servers import AnabranchServer

Client = Any


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
async def connect(
    server: AnabranchServer, request: pytest.FixtureRequest
) -> AsyncIterator[Callable[..., Client]]:
    """Makes clients of one protocol."""
    made = []

    def another(**options: object) -> Client:
        settings: dict[str, Any] = {"decode_responses": True, **options}
        client = redis.asyncio.Redis(port=server.port, protocol=request.param, **settings)
        made.append(client)
        return client

    yield another
    for client in made:
        await client.aclose()


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    """One of them."""
    return connect()


async def blocked(client: Client, count: int = 1) -> None:
    """Ask the server until so many clients are blocked; nobody else would tell us."""
    async with asyncio.timeout(60):
        found = -1
        while found != count:
            found = (await client.info("clients"))["blocked_clients"]


async def test_group_round_trip(client: Client) -> None:
    assert await client.xgroup_create("s", "g", "$", mkstream=True) is True
    for n in range(1, 4):
        assert await client.xadd("s", {"n": n}, id=f"{n}-0") == f"{n}-0"
    assert streams(await client.xreadgroup("g", "alice", {"s": ">"}, count=2, block=1000)) == {
        "s": [("1-0", {"n": "1"}), ("2-0", {"n": "2"})]
    }
    assert await client.xack("s", "g", "1-0") == 1
    assert (await client.xpending("s", "g"))["consumers"] == [{"name": "alice", "pending": 1}]
    assert await client.xclaim("s", "g", "bob", 0, ["2-0"]) == [("2-0", {"n": "2"})]
    assert await client.xautoclaim("s", "g", "carol", 0) == ["0-0", [("2-0", {"n": "2"})], []]
    assert (await client.xinfo_groups("s"))[0]["lag"] == 1
    assert (await client.xinfo_stream("s"))["length"] == 3
    assert {one["name"] for one in await client.xinfo_consumers("s", "g")} == {
        *("alice", "bob", "carol"),
    }


async def test_blocked_reads_are_served_by_another_connection(
    client: Client, connect: Callable[..., Client]
) -> None:
    readers = [connect() for _ in range(5)]
    reading = [asyncio.create_task(each.xread({"s": "$"}, block=0)) for each in readers]
    await blocked(client, 5)
    added = await client.xadd("s", {"news": "yes"})
    async with asyncio.timeout(60):
        for reply in await asyncio.gather(*reading):
            assert streams(reply) == {"s": [(added, {"news": "yes"})]}


async def test_workers_of_a_group_share_the_work(
    client: Client, connect: Callable[..., Client]
) -> None:
    await client.xgroup_create("work", "g", mkstream=True)
    done: dict[str, str] = {}

    async def worker(name: str) -> None:
        own = connect()
        while len(done) < 200:
            reply = streams(await own.xreadgroup("g", name, {"work": ">"}, count=7, block=100))
            for entry_id, task in reply.get("work", []):
                assert entry_id not in done
                done[entry_id] = task["n"]
                assert await own.xack("work", "g", entry_id) == 1

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for n in range(4):
            group.create_task(worker(f"worker-{n}"))
        for n in range(200):
            await client.xadd("work", {"n": n})
    assert sorted(map(int, done.values())) == list(range(200))
    assert (await client.xpending("work", "g"))["pending"] == 0


async def test_a_cancelled_read_leaves_nobody_blocked(
    client: Client, connect: Callable[..., Client]
) -> None:
    reading = asyncio.create_task(connect().xread({"s": "$"}, block=0))
    await blocked(client)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await blocked(client, 0)


async def test_transactions_and_pipelines(client: Client) -> None:
    async with client.pipeline(transaction=True) as pipe:
        assert await pipe.xadd("s", {"a": "b"}, id="1-1").xlen("s").execute() == ["1-1", 1]
    async with client.pipeline(transaction=False) as pipe:
        for n in range(1000):
            pipe.xadd("p", {"n": n}, id=f"{n + 1}-0")
        assert await pipe.execute() == [f"{n + 1}-0" for n in range(1000)]


async def test_idempotent_production_at_once(
    client: Client, connect: Callable[..., Client]
) -> None:
    senders = [connect() for _ in range(10)]
    ids = await asyncio.gather(
        *(each.xadd("s", {"a": "b"}, idmp=("producer", b"order-1")) for each in senders)
    )
    assert len(set(ids)) == 1
    assert await client.xlen("s") == 1


async def test_publish_and_subscribe(client: Client) -> None:
    async with client.pubsub() as listener:
        await listener.subscribe("news")
        assert (await listener.get_message(timeout=60))["type"] == "subscribe"
        assert await client.publish("news", "hello") == 1
        heard = await listener.get_message(timeout=60)
        assert (heard["channel"], heard["data"]) == ("news", "hello")


async def test_a_blocking_pool(connect: Callable[..., Client], server: AnabranchServer) -> None:
    pool = redis.asyncio.BlockingConnectionPool(
        port=server.port, max_connections=3, timeout=60, decode_responses=True
    )
    async with redis.asyncio.Redis(connection_pool=pool) as client:
        ids = await asyncio.gather(*(client.xadd("s", {"n": n}) for n in range(100)))
        assert len(set(ids)) == 100
        assert (await client.info("clients"))["connected_clients"] <= 4
    await pool.disconnect()
    assert await connect().xlen("s") == 100
