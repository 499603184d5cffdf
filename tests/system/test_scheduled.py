"""Scheduled entries with real processes: servers that are killed, regions that are cut off."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from anabranch.testing import Cluster
from tests.support.inspection import wait_until
from tests.support.killing import killing
from tests.support.servers import AnabranchServer, server_in


def client_of(server: Any) -> redis.Redis:
    return redis.Redis(port=server.port, decode_responses=True, protocol=3)


def schedule(client: redis.Redis, *words: object) -> str:
    handle: str = client.execute_command("AB.SCHEDULE", *words)
    return handle


def values(client: redis.Redis, key: str = "s") -> list[str]:
    rows: Any = client.xrange(key)
    return [fields["n"] for _, fields in rows]


def figure(client: redis.Redis, name: str) -> int:
    found: Any = client.info("policies")
    return int(found[name])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AnabranchServer]:
    with server_in(tmp_path) as one:
        yield one


def test_a_plain_client_schedules_reads_and_cancels(server: AnabranchServer) -> None:
    with client_of(server) as r:
        schedule(r, "s", "IN", 50, "n", 1)
        schedule(r, "s", "IN", "1h", "ID", "later", "n", 2)
        ((_, [[(_, fields)]]),) = r.xread({"s": "0"}, block=60_000).items()
        assert fields == {"n": "1"}
        (plan,) = r.execute_command("AB.SCHEDULE LIST", "s")
        assert (plan["handle"], plan["fields"]) == ("later", ["n", "2"])
        assert (
            r.execute_command("AB.SCHEDULE RUN", "s", "later")
            == r.xinfo_stream("s")["last-generated-id"]
        )
        assert r.execute_command("AB.SCHEDULE CANCEL", "s", "later") == 0
        with pytest.raises(redis.ResponseError, match="knows no time zone"):
            schedule(r, "s", "CRON", "0 4 * * *", "TZ", "Europe/Nowhere", "n", 3)
        schedule(r, "s", "CRON", "0 4 * * *", "TZ", "Europe/Berlin", "n", 3)
        help_: Any = r.execute_command("AB.SCHEDULE HELP")
        assert any("CANCEL key handle" in line for line in help_)


def test_a_killed_server_adds_each_entry_once(server: AnabranchServer) -> None:
    """It is killed at random moments while entries are scheduled and added, and a snapshot made."""
    rng = random.Random(1)
    answered: set[str] = set()
    number = 0
    for _ in range(2):
        with client_of(server) as r, killing(server, rng.randrange(50, 250)) as step:
            while True:
                number += 1
                schedule(r, "s", "IN", rng.choice([1, 20, 100, 400]), "n", number)
                answered.add(f"{number}")
                if number % 100 == 0:
                    with contextlib.suppress(redis.ResponseError):
                        r.bgsave()
                step()
        server.start()
    with client_of(server) as r:
        wait_until(lambda: figure(r, "scheduled_entries") == 0, "everything is added")
        found = values(r)
    assert len(found) == len(set(found))
    assert answered <= set(found)
    assert len(found) - len(answered) <= 2  # whose reply the kill has cut off


def test_three_regions_add_each_entry_once_over_cuts_and_a_removal() -> None:
    with Cluster("eu", "us", "ap") as regions:
        eu, us, ap = clients = [client_of(each) for each in regions]
        wait_until(lambda: is_scheduled(eu, "n", 0), "every region knows scheduled entries")
        for number, client in enumerate(clients * 5, 1):
            schedule(client, "s", "IN", 1 + number * 20, "n", number)
        wait_until(
            lambda: not any(figure(each, "scheduled_entries") for each in clients), "all are added"
        )
        regions.cut("eu", "us")
        for number, client in enumerate(clients, 100):
            schedule(client, "s", "IN", 50, "n", number)
        wait_until(
            lambda: all(f"{number}" in values(each) for number, each in enumerate(clients, 100)),
            "each region adds its own",
        )
        regions.heal()
        expected = {*map(str, range(16)), "100", "101", "102"}
        wait_until(lambda: all(set(values(each)) == expected for each in clients), "all have all")
        assert all(len(values(each)) == len(expected) for each in clients)
        schedule(ap, "s", "IN", 1500, "n", "last")
        wait_until(
            lambda: all(
                figure(each, "scheduled_entries") or "last" in values(each) for each in (eu, us)
            ),
            "the others know of it",
        )
        regions.ap.crash()
        eu.execute_command("AB.REGION", "REMOVE", "ap", "FORCE")
        wait_until(
            lambda: all(values(each).count("last") == 1 for each in (eu, us)), "another one adds it"
        )
        for each in clients:
            each.close()


def is_scheduled(client: redis.Redis, name: str, number: int) -> bool:
    try:
        schedule(client, "s", "IN", 1, name, number)
    except redis.ResponseError:  # it has not heard of another one yet
        return False
    return True
