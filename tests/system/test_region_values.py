"""Strings, counters, sets and lists of three regions: real processes, asked by redis-py."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses

WAIT_MS = 60_000


def shown(client: redis.Redis) -> list[Any]:
    """All values of a region."""
    return [
        client.get("text"),
        client.get("count"),
        client.smembers("members"),
        client.lrange("queue", 0, -1),
        client.type("met"),
    ]


def writes(client: redis.Redis) -> bool:
    """Whether a region takes sets, so knows that all members do."""
    try:
        client.sadd("begun", client.info("replication")["region_name"])
    except redis.ResponseError:
        return False
    return True


def has(client: redis.Redis, due: list[Any]) -> bool:
    """Whether a region answers, and shows this."""
    try:
        return shown(client) == due
    except redis.ConnectionError:
        return False


def link(regions: RegionProcesses, what: str) -> None:
    for server in regions.servers:
        for other in regions.servers:
            if other is not server:
                regions.call(server, "AB.LINK", other.number, what)


def concurrently(clients: list[redis.Redis], act: Callable[[redis.Redis, int], None]) -> None:
    """Let a client of each region do something."""
    threads = [
        threading.Thread(target=act, args=(client, number)) for number, client in enumerate(clients)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def test_small_values_of_three_regions_over_a_cut_a_crash_and_waits(tmp_path: Path) -> None:
    with RegionProcesses(tmp_path, ["eu", "us", "ap"]) as regions:
        clients = [
            redis.Redis(port=server.port, decode_responses=True, protocol=3, socket_timeout=60)
            for server in regions.servers
        ]
        eu, us, ap = clients
        for client in clients:
            wait_until(lambda client=client: writes(client), "levels are known")  # type: ignore[misc]

        # WAIT and tokens cover them: what was confirmed is there.
        eu.set("text", "a")
        eu.incrby("count", 5)
        eu.sadd("members", "a", "b")
        eu.rpush("queue", *[f"e{number}" for number in range(30)])
        assert eu.wait(2, WAIT_MS) == 2
        assert shown(us) == shown(ap) == shown(eu)
        us.sadd("members", "c")
        us.set("t:text", "b")
        us.incr("t:count")
        us.rpush("t:queue", "item")
        token = us.execute_command("AB.TOKEN")
        assert ap.execute_command("AB.WAITFOR", token, WAIT_MS) == "OK"
        assert ap.smembers("members") == {"a", "b", "c"}
        assert ap.mget("t:text", "t:count") == ["b", "1"]
        assert ap.lrange("t:queue", 0, -1) == ["item"]

        # A client that waits gets an item of another region.
        found: list[Any] = []
        waits = threading.Thread(target=lambda: found.append(ap.blpop("later", WAIT_MS // 1000)))
        waits.start()
        wait_until(lambda: eu.wait(2, WAIT_MS) == 2, "regions hear of each other")
        us.rpush("later", "item")
        waits.join()
        assert found == [["later", "item"]]

        # All change the same while they are cut off, and one of them is killed.
        link(regions, "PAUSE")
        popped: list[list[str]] = [[], [], []]

        def change(client: redis.Redis, number: int) -> None:
            client.set("text", f"of {number}")
            client.incr("count")
            client.sadd("members", f"m{number}")
            client.rpush("queue", *[f"{number}-{each}" for each in range(10)])
            for _ in range(15 + number):
                popped[number].append(client.lpop("queue"))  # type: ignore[arg-type]
            (client.sadd, client.rpush, client.set)[number]("met", f"v{number}")

        concurrently(clients, change)
        eu.srem("members", "a")
        us.sadd("members", "a")
        before = shown(ap)
        regions.servers[2].kill()
        regions.servers[2].start()
        wait_until(lambda: has(ap, before), "it is back and has what it had")
        regions.heal()
        wait_until(regions.converged, "all have applied the same")
        assert shown(us) == shown(ap) == shown(eu)
        assert eu.get("count") == "8"
        assert eu.smembers("members") == {"a", "b", "c", "m0", "m1", "m2"}
        assert eu.type("met") == "string"
        pushed = [
            *[f"e{number}" for number in range(30)],
            *[f"{number}-{each}" for number in range(3) for each in range(10)],
        ]
        left = eu.lrange("queue", 0, -1)
        assert left == pushed[17:]
        assert {each for some in popped for each in some} == set(pushed[:17])
        digests = {
            str(client.execute_command("AB.DIGEST", "members", "queue", "met"))
            for client in clients
        }
        assert len(digests) == 1
        for client in clients:
            client.close()
