"""valkey-glide: a client whose core is written in Rust, in both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.inspection import number, wait_until
from tests.support.packages import in_a_loop_of_its_own, required
from tests.support.servers import AnabranchServer

glide = required("glide")


both_protocols = pytest.mark.parametrize("resp", ["RESP2", "RESP3"])


@asynccontextmanager
async def connected(server: AnabranchServer, resp: str) -> AsyncIterator[Any]:
    client = await glide.GlideClient.create(
        glide.GlideClientConfiguration(
            [glide.NodeAddress("127.0.0.1", server.port)],
            protocol=getattr(glide.ProtocolVersion, resp),
            request_timeout=60_000,
        )
    )
    yield client
    await client.close()


@both_protocols
@in_a_loop_of_its_own
async def test_group_round_trip(server: AnabranchServer, resp: str) -> None:
    async with connected(server, resp) as client:
        first = await client.xadd("s", [("a", "1")])
        assert await client.xgroup_create("s", "g", "0") == "OK"
        assert await client.xreadgroup({"s": ">"}, "g", "c") == {b"s": {first: [[b"a", b"1"]]}}
        assert await client.xpending("s", "g") == [1, first, first, [[b"c", b"1"]]]
        assert (await client.xinfo_groups("s"))[0][b"lag"] == 0
        assert (await client.xautoclaim("s", "g", "d", 0, "0"))[1] == {first: [[b"a", b"1"]]}
        assert await client.xack("s", "g", [first.decode()]) == 1
        assert await client.xlen("s") == 1


@both_protocols
@in_a_loop_of_its_own
async def test_a_blocked_read_is_served(server: AnabranchServer, resp: str) -> None:
    async with connected(server, resp) as client:
        await client.xgroup_create("s", "g", "$", glide.StreamGroupOptions(make_stream=True))
        options = glide.StreamReadGroupOptions(block_ms=15_000)
        reading = asyncio.ensure_future(client.xreadgroup({"s": ">"}, "g", "c", options))
        with server.client() as other:
            await asyncio.to_thread(
                wait_until, lambda: number(other, "blocked_clients") == 1, "the reader waits"
            )
            other.call("XADD", "s", "1-1", "f", "v")
        assert await reading == {b"s": {b"1-1": [[b"f", b"v"]]}}


@both_protocols
@in_a_loop_of_its_own
async def test_transactions_and_scripts(server: AnabranchServer, resp: str) -> None:
    async with connected(server, resp) as client:
        batch = glide.Batch(is_atomic=True)
        batch.xadd("s", [("f", "v")], glide.StreamAddOptions(id="1-1"))
        batch.incr("n")
        assert await client.exec(batch, raise_on_error=True) == [b"1-1", 1]
        script = glide.Script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
        assert await client.invoke_script(script, keys=["n"], args=["5"]) == 6


@both_protocols
@in_a_loop_of_its_own
async def test_an_error_names_the_missing_command(server: AnabranchServer, resp: str) -> None:
    async with connected(server, resp) as client:
        with pytest.raises(glide.RequestError, match=r"unknown command 'HSET'.*stream server"):
            await client.hset("h", {"f": "v"})
