"""coredis: streams, groups, pipelines, scripts and messages, in RESP3, its only protocol."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.packages import in_a_loop_of_its_own, required
from tests.support.servers import AnabranchServer

coredis = required("coredis")
exceptions = required("coredis.exceptions")
streams = required("coredis.patterns.streams")


def connected(server: AnabranchServer) -> Any:
    return coredis.Redis(port=server.port, decode_responses=True)


@in_a_loop_of_its_own
async def test_group_round_trip(server: AnabranchServer) -> None:
    async with connected(server) as client:
        first = await client.xadd("s", {"a": "1"})
        second = await client.xadd("s", {"a": "2"})
        assert await client.xgroup_create("s", "g", identifier="0")
        got = await client.xreadgroup("g", "c", streams={"s": ">"}, count=10)
        assert [each.identifier for each in got["s"]] == [first, second]
        pending = await client.xpending("s", "g")
        assert (pending.pending, dict(pending.consumers)) == (2, {"c": 2})
        claimed = await client.xautoclaim("s", "g", "d", 0, "0")
        assert [each.identifier for each in claimed[1]] == [first, second]
        assert await client.xack("s", "g", [first]) == 1
        (group,) = await client.xinfo_groups("s")
        assert (group["pending"], group["lag"]) == (1, 0)
        information = await client.xinfo_stream("s")
        assert information["last-entry"].identifier == second


@in_a_loop_of_its_own
async def test_its_consumers_share_the_entries_of_a_stream(server: AnabranchServer) -> None:
    async with connected(server) as client:
        reading = streams.GroupConsumer(client, ["a", "b"], "g", "c", auto_acknowledge=True)
        async with reading as group:
            ids = [await client.xadd(name, {"n": str(n)}) for n in range(3) for name in ("a", "b")]
            got = [await group.get_entry() for _ in ids]
            assert sorted(entry.identifier for _, entry in got) == sorted(ids)
            assert await group.get_entry() == (None, None)
        assert (await client.xpending("a", "g")).pending == 0


@in_a_loop_of_its_own
async def test_pipelines_and_scripts(server: AnabranchServer) -> None:
    async with connected(server) as client:
        async with client.pipeline(transaction=True) as pipeline:
            added = pipeline.xadd("s", {"f": "v"}, identifier="1-1")
            counted = pipeline.incr("n")
        assert (await added, await counted) == ("1-1", 1)
        script = client.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
        assert await script(keys=["n"], args=[5]) == 6


@in_a_loop_of_its_own
async def test_an_error_names_the_missing_command(server: AnabranchServer) -> None:
    async with connected(server) as client:
        with pytest.raises(exceptions.UnknownCommandError, match="'HSET'"):
            await client.hset("h", {"f": "v"})
