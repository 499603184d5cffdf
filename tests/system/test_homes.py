"""A fail-over with real processes: what is repeated, who says so, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses

ENTRIES = 6


def read(client: redis.Redis, group: str, count: int = 100) -> list[str]:
    """The values of new entries."""
    found: Any = client.xreadgroup(group, "c", {"jobs": ">"}, count=count)
    return [fields["n"] for _, fields in found["jobs"][0]] if found else []


def shown(client: redis.Redis) -> dict[str, Any]:
    found: dict[str, Any] = client.execute_command("AB.HOME SHOW", "jobs", "GROUP", "homed")
    return found


def is_set(client: redis.Redis, *words: str) -> bool:
    try:
        client.execute_command("AB.POLICY SET", "jobs", "GROUP", *words)
    except redis.ResponseError:  # it has not heard of another one yet
        return False
    return True


def pending(client: redis.Redis, group: str) -> list[str]:
    found: Any = client.xpending_range("jobs", group, "-", "+", 100)
    return [row["message_id"] for row in found]


def test_a_killed_home_is_taken_and_gets_the_group_back(tmp_path: Path) -> None:
    with RegionProcesses(tmp_path, ["eu", "us", "ap"]) as regions:
        eu, us, ap = clients = [
            redis.Redis(port=server.port, decode_responses=True, protocol=3)
            for server in regions.servers
        ]
        wait_until(lambda: is_set(eu, "homed", "home-region", "eu"), "levels are known")
        assert is_set(eu, "told", "acks", "all")
        for group in ("homed", "told"):
            eu.xgroup_create("jobs", group, "0", mkstream=True)
        ids: list[Any] = [eu.xadd("jobs", {"n": number}) for number in range(1, ENTRIES + 1)]
        for group in ("homed", "told"):
            assert read(eu, group, 3) == ["1", "2", "3"]
            assert eu.xack("jobs", group, ids[1]) == 1
        wait_until(regions.converged, "all have the acknowledgements")
        for client in (us, ap):
            with pytest.raises(redis.ResponseError, match=r"^HOMED eu [0-9.]+:\d+ consumer"):
                read(client, "homed")
        regions.servers[0].kill()

        assert read(us, "told") == ["1", "3", "4", "5", "6"]
        assert us.execute_command("AB.HOME TAKE", "jobs", "GROUP", "homed", "FORCE") == "OK"
        assert read(us, "homed", 3) == ["1", "3", "4"]
        assert us.xack("jobs", "homed", ids[0]) == 1
        assert shown(us)["waiting-for"] != []

        regions.servers[0].start()
        wait_until(lambda: shown(us)["waiting-for"] == [], "eu and ap have handed over")
        assert shown(us)["delivered-twice"] == [ids[0], ids[2]]
        assert {shown(client)["home"] for client in (eu, us, ap)} == {"us"}
        with pytest.raises(redis.ResponseError, match="HOMED us"):
            read(eu, "homed")
        assert eu.xack("jobs", "homed", ids[2]) == 1  # a worker of eu that had it
        wait_until(lambda: pending(us, "homed") == [ids[3]], "us learns of it")

        assert us.execute_command("AB.HOME MOVE", "jobs", "GROUP", "homed", "eu") == "OK"
        wait_until(lambda: shown(eu)["state"] == "here", "eu is the home again")
        assert pending(eu, "homed") == [ids[3]]
        assert read(eu, "homed") == ["5", "6"]
        for client in (us, ap):
            with pytest.raises(redis.ResponseError, match="HOMED"):
                read(client, "homed")
        for client in clients:
            client.close()
