"""Policies with real processes: workers and servers that are killed, connections that close."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
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


def policy(client: redis.Redis, key: str, name: str) -> dict[str, str]:
    rows = client.execute_command("AB.POLICY", "GET", key, "GROUP", "g")
    found: dict[str, str] = next(row for row in rows if row["policy"] == name)
    return found


def set_policy(client: redis.Redis, key: str, *pairs: str) -> None:
    """Set it as soon as every region knows policies."""

    def is_set() -> bool:
        try:
            return bool(client.execute_command("AB.POLICY", "SET", key, *pairs))
        except redis.ResponseError:  # it has not heard of another one yet
            return False

    wait_until(is_set, "every region knows policies")


def pending(client: redis.Redis, key: str = "jobs:1") -> list[dict[str, Any]]:
    """Pending entries by ID."""
    rows: list[dict[str, Any]] = client.xpending_range(key, "g", "-", "+", 100)
    return rows


def taken(client: redis.Redis, consumer: str, key: str = "jobs:1", **options: Any) -> list[str]:
    """The IDs that a plain XREADGROUP gives."""
    reply: Any = client.xreadgroup("g", consumer, {key: ">"}, **options)
    return [entry_id for some in (reply or {}).values() for run in some for entry_id, _ in run]


WORKER = """
import sys, time, redis
r = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
while True:
    for _, entries in r.xreadgroup("g", sys.argv[2], {"jobs:1": ">"}, count=1, block=0):
        for entry_id, fields in entries:
            print(entry_id, flush=True)
            time.sleep(float(fields["seconds"]))
            r.xack("jobs:1", "g", entry_id)
"""
"""An unmodified worker: it takes an entry, works for as long as the entry says, acknowledges."""


class Worker:
    """A process of its own."""

    def __init__(self, server: Any, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(server.port), name],
            stdout=subprocess.PIPE,
            text=True,
        )

    def takes(self) -> str:
        """The ID of the next entry that it takes."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def workers(server: AnabranchServer) -> Iterator[dict[str, Worker]]:
    """Workers of a group with a lease; tests add them."""
    started: dict[str, Worker] = {}
    with client_of(server) as r:
        r.xgroup_create("jobs:1", "g", mkstream=True)
    try:
        yield started
    finally:
        for each in started.values():
            if each.process.poll() is None:
                each.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AnabranchServer]:
    with server_in(tmp_path) as one:
        yield one


# -- rules ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rewrites", [False, True])
def test_a_killed_server_has_its_rules_again(server: AnabranchServer, rewrites: bool) -> None:
    with client_of(server) as r:
        r.xgroup_create("jobs:1", "g", mkstream=True)
        r.execute_command("AB.POLICY", "SET", "PATTERN", "jobs:*", "redeliver", "first")
        if rewrites:
            r.save()
        r.xadd("jobs:1", {"f": "v"})
    server.kill()
    server.start()
    with client_of(server) as r:
        assert policy(r, "jobs:1", "redeliver")["source"] == "pattern jobs:*"
        entry_id = taken(r, "c")[0]
        r.xnack("jobs:1", "g", "FAIL", entry_id)
        assert taken(r, "d") == [entry_id]


def test_regions_have_the_same_rules() -> None:
    with Cluster("eu", "us") as regions:
        clients = [client_of(each) for each in regions]
        set_policy(clients[0], "PATTERN", "jobs:*", "redeliver", "first")
        wait_until(
            lambda: policy(clients[1], "jobs:1", "redeliver")["value"] == "first",
            "the rule is in the other region",
        )
        for each in clients:
            each.close()


# -- leases -------------------------------------------------------------------------------------


def test_what_a_killed_worker_had_goes_to_another_one(
    server: AnabranchServer, workers: dict[str, Worker]
) -> None:
    with client_of(server) as r:
        set_policy(r, "jobs:1", "lease", "connection:500ms")
        first = workers["ann"] = Worker(server, "ann")
        lost = r.xadd("jobs:1", {"seconds": 3600})
        assert first.takes() == lost
        second = workers["bob"] = Worker(server, "bob")
        wait_until(lambda: r.info("clients")["blocked_clients"] == 1, "bob waits")
        first.kill()
        assert second.takes() == lost
        (row,) = pending(r)
        assert (row["consumer"], row["times_delivered"]) == ("bob", 2)


def test_a_worker_that_only_takes_long_keeps_its_entry(
    server: AnabranchServer, workers: dict[str, Worker]
) -> None:
    """What a dead one had is handed out meanwhile, so leases were looked at."""
    with client_of(server) as r:
        set_policy(r, "jobs:1", "lease", "connection:0")
        for name in ("ann", "eve"):
            workers[name] = Worker(server, name)
            taken_by = r.xadd("jobs:1", {"seconds": 3600})
            assert workers[name].takes() == taken_by
        workers["bob"] = Worker(server, "bob")
        workers["eve"].kill()
        assert workers["bob"].takes() == taken_by
        rows = pending(r)
        assert [row["consumer"] for row in rows] == ["ann", "bob"]
        assert rows[0]["times_delivered"] == 1


def test_after_a_killed_server_what_nobody_asks_for_is_released(
    server: AnabranchServer, workers: dict[str, Worker]
) -> None:
    with client_of(server) as r:
        set_policy(r, "jobs:1", "lease", "connection:500ms")
        workers["ann"] = Worker(server, "ann")
        lost = r.xadd("jobs:1", {"seconds": 3600})
        assert workers["ann"].takes() == lost
    server.kill()
    workers["ann"].kill()
    server.start()
    workers["bob"] = Worker(server, "bob")
    assert workers["bob"].takes() == lost


def test_a_region_releases_what_is_pending_in_it() -> None:
    with Cluster("eu", "us") as regions:
        eu, us = (client_of(each) for each in regions)
        eu.xgroup_create("jobs:1", "g", mkstream=True)
        first, second = (eu.xadd("jobs:1", {"f": "v"}) for _ in range(2))
        wait_until(lambda: us.exists("jobs:1") and us.xlen("jobs:1") == 2, "us has the entries")
        set_policy(eu, "jobs:1", "lease", "connection:0")
        wait_until(lambda: policy(us, "jobs:1", "lease")["source"] == "key", "us has the lease")
        with client_of(next(iter(regions))) as ann:
            assert taken(ann, "ann", count=1) == [first]
        assert taken(us, "bob") == [first, second]  # each region delivers by itself
        wait_until(lambda: pending(eu)[0]["consumer"] == "", "eu has released what ann had")
        assert [row["consumer"] for row in pending(us)] == ["bob", "bob"]
        assert taken(eu, "eve") == [first, second]
        eu.close()
        us.close()


# -- dead letters -------------------------------------------------------------------------------


def test_there_is_one_copy_of_each_dead_letter_however_often_the_server_is_killed(
    server: AnabranchServer,
) -> None:
    with client_of(server) as r:
        r.xgroup_create("jobs:1", "g", mkstream=True)
        set_policy(r, "jobs:1", "max-deliveries", "2", "dead-letter", "dead", "redeliver", "first")
        ids = [r.xadd("jobs:1", {"n": n}) for n in range(300)]
    rng = random.Random(5)
    for _ in range(4):
        with client_of(server) as r, killing(server, rng.randint(10, 70)) as step:
            while some := taken(r, "c", count=7):
                for entry_id in some:
                    step()
                    r.xnack("jobs:1", "g", "FAIL", entry_id)
        server.start()
    with client_of(server) as r:
        left = [row["message_id"] for row in pending(r)]
        while some := [*left, *taken(r, "c", count=50)]:
            for entry_id in some:
                r.xnack("jobs:1", "g", "FAIL", entry_id)
            left = []
        copies = [fields["ab-id"] for _, fields in r.xrange("dead")]
        assert sorted(copies) == sorted(ids)
        assert pending(r) == []
