"""FastStream: subscribers of a stream, with and without a consumer group, and what they claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests.support.packages import in_a_loop_of_its_own, required
from tests.support.servers import AnabranchServer

faststream = required("faststream.redis")

POLL_MS = 50


def broker(server: AnabranchServer) -> Any:
    return faststream.RedisBroker(f"redis://127.0.0.1:{server.port}", logger=None)


def stream(**options: Any) -> Any:
    return faststream.StreamSub("s", polling_interval=POLL_MS, **options)


def noting(notes: asyncio.Queue[tuple[str, Any]], name: str) -> Callable[[dict[str, int]], Any]:
    async def handle(message: dict[str, int]) -> None:
        await notes.put((name, message["n"]))

    return handle


@in_a_loop_of_its_own
async def test_a_group_shares_what_others_get_as_a_whole(server: AnabranchServer) -> None:
    notes: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    async with broker(server) as app:
        for name in ("one", "other"):
            app.subscriber(stream=stream(group="g", consumer=name))(noting(notes, name))
        app.subscriber(stream=stream(last_id="0"))(noting(notes, "all"))
        await app.start()
        for number in range(6):
            await app.publish({"n": number}, stream="s")
        got = [await notes.get() for _ in range(12)]
        assert sorted(n for name, n in got if name == "all") == list(range(6))
        assert sorted(n for name, n in got if name != "all") == list(range(6))
    with server.client() as client:
        assert client.call("XPENDING", "s", "g")[1][0] == (":", 0)


@pytest.mark.parametrize("option", ["min_idle_time", "claim_min_idle_time"])
@in_a_loop_of_its_own
async def test_entries_of_a_dead_consumer_are_claimed(server: AnabranchServer, option: str) -> None:
    notes: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    async with broker(server) as app:
        await app.connect()
        await app.publish({"n": 7}, stream="s")
        with redis.Redis(port=server.port) as dead:
            dead.xgroup_create("s", "g", "0")
            assert dead.xreadgroup("g", "dead", {"s": ">"})
        app.subscriber(stream=stream(group="g", consumer="c", **{option: 1}))(noting(notes, "c"))
        await app.start()
        assert await notes.get() == ("c", 7)


@in_a_loop_of_its_own
async def test_batches_and_requests_that_fail(server: AnabranchServer) -> None:
    batches: asyncio.Queue[list[Any]] = asyncio.Queue()
    async with broker(server) as app:

        @app.subscriber(stream=stream(group="g", consumer="c", batch=True, max_records=10))
        async def handle(messages: list[dict[str, int]]) -> None:
            await batches.put(messages)
            raise ValueError("not today")

        await app.start()
        await app.publish({"n": 1}, stream="s")
        assert await batches.get() == [{"n": 1}]
        with server.client() as client:
            assert client.call("XLEN", "s") == (":", 1)
