"""Regions: what operators see of them, and what they do to them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import redis

from anabranch.config.settings import GOSSIP_PORT_ABOVE
from anabranch.testing import Cluster
from tests.support.inspection import info, wait_until
from tests.support.servers import AnabranchServer, free_port
from tests.support.wire import RespClient


class World:
    """Two or three regions with a client each."""

    def __init__(self, regions: Cluster) -> None:
        self.servers = list(regions)
        self.clients = [
            redis.Redis(port=server.port, decode_responses=True, protocol=3)
            for server in self.servers
        ]

    def connect(self, at: int) -> RespClient:
        """Another connection to a region."""
        return RespClient(self.servers[at].port)

    def peer(self, at: int, name: str) -> dict[str, Any]:
        """What a region says of another one."""
        rows = self.clients[at].execute_command("AB.PEERS")
        return next((row for row in rows if row["name"] == name), {"state": "unheard of"})

    def in_sync(self) -> bool:
        """Whether every region is connected with all others, and has what they have."""
        rows = [client.execute_command("AB.PEERS") for client in self.clients]
        return all(
            len(each) == len(self.servers) - 1
            and all(row["state"] == "in_sync" and row["lag-effects"] == 0 for row in each)
            for each in rows
        )

    def wait(self) -> None:
        wait_until(self.in_sync, "all regions are connected and in sync")

    def close(self) -> None:
        for client in self.clients:
            client.close()


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[World]:
    """Started and in sync; an ``indirect`` parameter is names of regions."""
    with Cluster(*getattr(request, "param", ("eu", "us")), appendfsync="everysec") as regions:
        made = World(regions)
        made.wait()
        yield made
        made.close()


three = pytest.mark.parametrize("cluster", [("eu", "us", "ap")], indirect=True, ids=["three"])


def length(client: redis.Redis, key: str, wanted: int) -> Callable[[], bool]:
    return lambda: client.xlen(key) == wanted


# -- looking ------------------------------------------------------------------------------------


def test_peers_show_who_is_there_and_how_far(cluster: World) -> None:
    eu, us = cluster.clients
    eu.xadd("s", {"f": "v"})
    wait_until(length(us, "s", 1), "the entry has arrived")
    cluster.wait()
    wait_until(lambda: cluster.peer(0, "us")["round-trip-us"] > 0, "a ping has come back")
    (row,) = eu.execute_command("AB.PEERS")
    assert (row["region"], row["name"], row["state"], row["fault"]) == (2, "us", "in_sync", "")
    assert row["lag-effects"] == row["lag-bytes"] == row["lag-ms"] == 0
    assert row["receive-lag-effects"] == row["receive-lag-ms"] == 0
    assert row["round-trip-us"] < 1_000_000
    assert row["last-row-ms"] < 5000
    assert row["sent-bytes"] > 0
    assert row["connects"] == 1


def test_a_region_that_ends_is_unreachable(cluster: World) -> None:
    eu, _ = cluster.clients
    cluster.servers[1].crash()
    wait_until(lambda: cluster.peer(0, "us")["state"] == "unreachable", "it is missed")
    eu.xadd("s", {"f": "v"})
    assert cluster.peer(0, "us")["lag-effects"] > 0
    members = eu.execute_command("AB.REGION", "LIST")
    assert [(each["name"], each["state"]) for each in members] == [
        ("eu", "myself"),
        ("us", "unreachable"),
    ]


def test_info_tells_of_all_regions(cluster: World) -> None:
    with cluster.connect(0) as client:
        replication = info(client, "replication")
        assert replication["role"] == "master"
        assert (replication["region"], replication["region_name"]) == ("1", "eu")
        assert replication["members"] == "2"
        assert len(replication["cluster_id"]) == 32
        assert replication["peer0"].startswith("region=2,name=us,state=in_sync,lag_effects=0,")
        assert "unstable_because_of" in replication
        crdt = info(client, "crdt")
        assert crdt["crdt_replica_id"] == "1"
        assert crdt["crdt_guid"] == replication["cluster_id"]
        assert crdt["crdt_replica_2"] == (
            "name=us,state=in_sync,shards=1,max_ops_lag=0,min_ops_lag=0"
        )
        everything = client.call("INFO", "everything")[1]
        assert b"# Active-Active\r\n" in everything
        assert b"# CRDT\r\n" in everything


def test_features_and_stability(cluster: World) -> None:
    eu, _ = cluster.clients
    features = eu.execute_command("AB.REGION", "FEATURES")
    assert features["held-back-by"] == []
    assert [row["name"] for row in features["regions"]] == ["eu", "us"]
    eu.xadd("s", {"f": "v"})
    with cluster.connect(0) as client:
        wait_until(
            lambda: info(client, "active-active")["unstable_effects"] == "0", "all is on all disks"
        )
        assert info(client, "active-active")["unstable_seconds"] == "0.0"


# -- breaking -----------------------------------------------------------------------------------


def test_a_paused_link_parts_regions_and_a_resumed_one_brings_them_together(
    cluster: World,
) -> None:
    eu, us = cluster.clients
    assert eu.execute_command("AB.LINK", "us", "PAUSE") == "OK"
    assert cluster.peer(0, "us")["fault"] == "pause"
    for n in range(100):
        eu.xadd("s", {"eu": n})
        us.xadd("s", {"us": n})
    assert cluster.peer(0, "us")["lag-effects"] >= 100
    # Longer than silence is borne: both give the link up, and must not find another way.
    wait_until(lambda: eu.info("replication")["peers_connected"] == 0, "the link is given up")
    wait_until(lambda: cluster.peer(1, "eu")["state"] == "unreachable", "on both sides")
    assert (eu.xlen("s"), us.xlen("s")) == (100, 100)
    until = time.monotonic() + 1.0  # they dial again meanwhile, in vain
    while time.monotonic() < until:
        assert cluster.peer(0, "us")["connects"] == 1
    assert eu.execute_command("AB.LINK", 2, "RESUME") == "OK"
    wait_until(length(eu, "s", 200), "entries of us have come")
    wait_until(length(us, "s", 200), "entries of eu have come")
    assert eu.xrange("s") == us.xrange("s")
    cluster.wait()
    assert cluster.peer(0, "us")["connects"] == 2
    assert cluster.peer(0, "us")["fault"] == ""


def test_a_short_pause_costs_no_connection(cluster: World) -> None:
    eu, us = cluster.clients
    us.execute_command("AB.LINK", "eu", "PAUSE")
    eu.xadd("s", {"f": "v"})
    us.xadd("s", {"f": "v"})
    assert eu.wait(1, 200) == 0
    assert (eu.xlen("s"), us.xlen("s")) == (1, 1)
    us.execute_command("AB.LINK", "eu", "RESUME")
    wait_until(length(us, "s", 2), "what was held back has come")
    wait_until(length(eu, "s", 2), "both ways")
    assert cluster.peer(0, "us")["connects"] == 1


def test_a_slow_link_keeps_the_order_and_loses_nothing(cluster: World) -> None:
    eu, us = cluster.clients
    eu.execute_command("AB.LINK", "us", "DELAY", "100", "50")
    assert cluster.peer(0, "us")["fault"] == "delay 100 50"
    began = time.monotonic()
    eu.xadd("s", {"f": "v"})
    assert eu.wait(1, 60_000) == 1
    assert time.monotonic() - began >= 0.1
    for n in range(200):
        eu.xadd("s", {"n": n})
    eu.execute_command("AB.LINK", "us", "DELAY", "0")
    eu.xadd("s", {"n": 200})
    wait_until(length(us, "s", 202), "all has come")
    assert eu.xrange("s") == us.xrange("s")
    assert cluster.peer(0, "us")["connects"] == 1


def test_a_lossy_and_narrow_link_gets_everything_through_in_the_end(cluster: World) -> None:
    eu, us = cluster.clients
    eu.execute_command("AB.LINK", "us", "LOSS", "5")
    eu.execute_command("AB.LINK", "us", "RATE", "200000")
    for n in range(100):
        eu.xadd("s", {"n": n})
    wait_until(
        lambda: cluster.peer(0, "us")["connects"] > 1 and us.xlen("s") == 100,
        "connections were lost, entries were not",
        40.0,
    )
    assert eu.xrange("s") == us.xrange("s")


@three
def test_others_relay_around_a_cut_link(cluster: World) -> None:
    eu, us, _ = cluster.clients
    eu.execute_command("AB.LINK", "us", "PAUSE")
    us.xadd("s", {"f": "v"})
    wait_until(length(eu, "s", 1), "it has come by another way")
    wait_until(lambda: cluster.peer(0, "us")["via"] == [3], "it is known to live")
    assert cluster.peer(0, "us")["state"] == "cut", "here"
    wait_until(lambda: cluster.peer(1, "eu")["state"] == "alive_via", "us sees no link")
    assert [2, 0] in cluster.peer(0, "ap")["relays-for"]


# -- waiting for others -------------------------------------------------------------------------


@three
def test_wait_counts_regions_that_have_applied_it(cluster: World) -> None:
    eu, us, ap = cluster.clients
    assert eu.wait(2, 1) == 2, "who has written nothing waits for nothing"
    eu.xadd("s", {"f": "v"})
    assert eu.wait(2, 60_000) == 2
    assert (us.xlen("s"), ap.xlen("s")) == (1, 1)
    for client in (us, ap):
        client.execute_command("AB.LINK", "eu", "PAUSE")
    eu.xadd("s", {"f": "v"})
    assert eu.wait(1, 100) == 0
    ap.execute_command("AB.LINK", "eu", "RESUME")
    assert eu.wait(1, 60_000) >= 1
    with cluster.connect(0) as other:
        assert other.call("WAIT", "2", "1") == (":", 2), "it did not write what is under way"


def test_wait_is_answered_in_the_pipeline_of_its_write(cluster: World) -> None:
    with cluster.connect(0) as client:
        replies = client.pipeline(
            [("XADD", "s", "*", "f", "v"), ("WAIT", "1", "60000"), ("XLEN", "s")]
        )
        assert [reply[1] for reply in replies[1:]] == [1, 1]
        assert cluster.clients[1].xlen("s") == 1


def test_wait_hears_of_others_by_itself(cluster: World) -> None:
    eu, _ = cluster.clients
    eu.config_set("appendfsync", "no")  # a sync every five seconds: one of these could see it
    with cluster.connect(0) as client:
        for _ in range(3):  # in one turn: nobody can have it already
            _, count = client.pipeline([("XADD", "s", "*", "f", "v"), ("WAIT", "1", "1000")])
            assert count == (":", 1)


def test_waitaof_counts_disks(cluster: World) -> None:
    eu, us = cluster.clients
    eu.xadd("s", {"f": "v"})
    assert eu.execute_command("WAITAOF", "1", "1", "60000") == [1, 1]
    us.execute_command("AB.LINK", "eu", "PAUSE")
    eu.xadd("s", {"f": "v"})
    assert eu.execute_command("WAITAOF", "1", "0", "60000") == [1, 0]
    assert eu.execute_command("WAITAOF", "1", "1", "50") == [1, 0]


def test_writes_are_refused_while_too_few_regions_keep_up(cluster: World) -> None:
    eu, us = cluster.clients
    eu.config_set("min-regions-to-write", 1)
    eu.config_set("min-regions-max-lag", 300)
    eu.xadd("s", {"f": "v"})
    eu.execute_command("AB.LINK", "us", "PAUSE")

    def refused() -> bool:
        try:
            eu.xadd("s", {"f": "v"})
        except redis.ResponseError as refusal:
            return str(refusal) == "NOREPLICAS Not enough good replicas to write."
        return False

    wait_until(refused, "the lag is too great")
    assert eu.xlen("s") > 0, "reads go on"
    us.xadd("other", {"f": "v"})
    eu.execute_command("AB.LINK", "us", "RESUME")
    wait_until(lambda: not refused(), "it has caught up")
    cluster.servers[1].crash()
    wait_until(refused, "it is gone")
    eu.config_set("min-regions-to-write", 0)
    assert not refused()


def test_a_region_without_memory_takes_no_more_until_there_is_some(cluster: World) -> None:
    eu, us = cluster.clients
    size = int(us.info("memory")["used_memory"])
    us.config_set("maxmemory", size // 2)
    wait_until(lambda: us.info("replication")["not_pulled_because"] == "maxmemory", "it is full")
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        us.xadd("s", {"f": "v"})
    value = os.urandom(100_000)
    for _ in range(200):  # 20 MB that cannot be compressed, of a window of 8
        eu.xadd("s", {"f": value})
    wait_until(lambda: us.xlen("s") > 20, "what may be under way arrives")
    assert us.xlen("s") < 150
    assert eu.xlen("s") == 200
    assert cluster.peer(0, "us")["state"] != "unreachable"
    us.config_set("maxmemory", 0)
    wait_until(length(us, "s", 200), "the rest has arrived")
    assert us.info("replication")["not_pulled_because"] == ""


def test_the_secret_can_be_changed_while_regions_run(
    cluster: World, caplog: pytest.LogCaptureFixture
) -> None:
    eu, us = cluster.clients
    eu.config_set("gossip-secret", "a new secret of some length")
    eu.xadd("s", {"f": "v"})
    wait_until(length(us, "s", 1), "the link that is up stays")
    eu.execute_command("AB.LINK", "us", "PAUSE")
    wait_until(lambda: eu.info("replication")["peers_connected"] == 0, "the link is given up")
    wait_until(lambda: cluster.peer(1, "eu")["state"] == "unreachable", "on both sides")
    eu.execute_command("AB.LINK", "us", "RESUME")
    wait_until(lambda: "region.refused" in caplog.messages, "the old one is refused")
    assert cluster.peer(0, "us")["state"] == "unreachable"
    us.config_set("gossip-secret", "a new secret of some length")
    cluster.wait()


# -- members ------------------------------------------------------------------------------------


@three
def test_a_region_that_is_gone_can_be_removed(cluster: World) -> None:
    eu, us, _ = cluster.clients
    cluster.servers[2].crash()
    wait_until(lambda: cluster.peer(0, "ap")["state"] == "unreachable", "it is missed")
    with pytest.raises(redis.ResponseError, match="FORCE"):
        eu.execute_command("AB.REGION", "REMOVE", "ap")
    with pytest.raises(redis.ResponseError, match="itself"):
        eu.execute_command("AB.REGION", "REMOVE", "eu")
    assert eu.execute_command("AB.REGION", "REMOVE", "ap", "FORCE") == "OK"
    for client in (eu, us):
        wait_until(
            lambda client=client: (
                [each["state"] for each in client.execute_command("AB.REGION", "LIST")][-1]
                == "removed"
            ),
            "all know that it is removed",
        )
    eu.xadd("s", {"f": "v"})
    assert eu.wait(1, 60_000) == 1
    assert eu.wait(2, 100) == 1, "it counts no more"
    with cluster.connect(0) as client:
        wait_until(
            lambda: info(client, "active-active")["unstable_effects"] == "0", "it holds back none"
        )


def test_events_are_published(cluster: World) -> None:
    eu, _ = cluster.clients
    with eu.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe("__region__")
        listener.get_message(timeout=60)
        cluster.servers[1].crash()
        message = listener.get_message(timeout=60)
        while message is None or not message["data"].startswith("unreachable "):
            message = listener.get_message(timeout=60)
        assert "region=2 name=us" in message["data"]


# -- availability -------------------------------------------------------------------------------


@pytest.fixture
def available(cluster: World) -> tuple[World, int]:
    """Two regions, and the port at which the first tells whether it can be used."""
    port = free_port()
    cluster.clients[0].config_set("availability-api", "yes", "http-port", port)
    return cluster, port


def get(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if body else None
    finally:
        connection.close()


def lag(port: int, tolerance_ms: int) -> tuple[int, Any]:
    return get(
        port,
        f"/v1/bdbs/1/availability?extend_check=lag&availability_lag_tolerance_ms={tolerance_ms}",
    )


def test_availability_is_told_by_http(available: tuple[World, int]) -> None:
    cluster, port = available
    eu, us = cluster.clients
    status, (database,) = get(port, "/v1/bdbs", Host=f"eu.example.com:{port}")
    assert (status, database["uid"], database["name"]) == (200, 1, "eu")
    assert database["endpoints"][0]["dns_name"] == "eu.example.com"
    assert database["endpoints"][0]["addr"] == ["127.0.0.1"]
    assert database["endpoints"][0]["port"] == cluster.servers[0].port
    assert get(port, "/v1/bdbs/1/availability") == (200, None)
    wait_until(lambda: lag(port, 5000) == (200, None), "both have caught up")

    us.execute_command("AB.LINK", "eu", "DELAY", "2000")
    eu.xadd("s", {"f": "v"})
    wait_until(lambda: lag(port, 100)[0] == 503, "the other region lags")
    _, problem = lag(port, 100)
    assert problem["error_code"] == "bdb_unavailable"
    assert "region 2" in problem["description"]
    assert lag(port, 60_000) == (200, None)
    assert get(port, "/v1/bdbs/1/availability") == (200, None)
    us.execute_command("AB.LINK", "eu", "RESUME")
    wait_until(lambda: lag(port, 100) == (200, None), "it has caught up")

    cluster.servers[1].crash()
    wait_until(lambda: cluster.peer(0, "us")["state"] == "unreachable", "it is gone")
    eu.xadd("s", {"f": "v"})
    assert lag(port, 100) == (200, None), "a region that is gone does not take this one along"
    eu.config_set("min-regions-to-write", 1)
    status, problem = get(port, "/v1/bdbs/1/availability")
    assert (status, problem["description"]) == (
        503,
        "NOREPLICAS Not enough good replicas to write.",
    )


def test_what_is_not_there_is_told_by_status(available: tuple[World, int]) -> None:
    _, port = available
    assert get(port, "/v1/bdbs/2/availability")[0] == 404
    assert get(port, "/v1/bdbs/1")[1]["uid"] == 1
    assert get(port, "/v1/nodes")[0] == 404
    assert get(port, "/v1/bdbs", method="POST")[0] == 405
    wrong = "/v1/bdbs/1/availability?extend_check=lag&availability_lag_tolerance_ms=soon"
    assert get(port, wrong)[0] == 400
    assert get(port, "/v1/bdbs", Host="[::1")[0] == 400


def test_the_health_check_of_an_official_client_works(available: tuple[World, int]) -> None:
    """It is part of redis-py, and asks as Jedis, Lettuce and go-redis do."""
    from redis.asyncio.multidb import healthcheck
    from redis.http.http_client import HttpError

    cluster, port = available

    class Database:
        client = cluster.clients[0]
        health_check_url = "http://localhost"

    check = healthcheck.LagAwareHealthCheck(rest_api_port=port, lag_aware_tolerance=300)

    def healthy() -> bool:
        try:
            return asyncio.run(check.check_health(Database, None))
        except HttpError:
            return False

    wait_until(healthy, "the first region is fit for use")
    cluster.clients[1].execute_command("AB.LINK", "eu", "DELAY", "3000")
    cluster.clients[0].xadd("s", {"f": "v"})
    wait_until(lambda: not healthy(), "the lag is seen")
    cluster.clients[1].execute_command("AB.LINK", "eu", "RESUME")
    wait_until(healthy, "it has recovered")


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    port = free_port()
    with AnabranchServer(extra=["--availability-api", "yes", "--http-port", str(port)]):
        assert get(port, "/v1/bdbs/1/availability") == (200, None), "also on a server of its own"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "anabranch", "serve", "--port", str(free_port())),
                *("--dir", str(tmp_path), "--availability-api", "yes", "--http-port", str(port)),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert "--http-port" in done.stderr


def test_what_a_region_cannot_do_is_refused_and_changes_nothing(cluster: World) -> None:
    eu, us = cluster.clients
    eu.xadd("s", {"f": "v"})
    refused = [
        ("DEBUG", "RELOAD"),
        ("DEBUG", "LOADAOF"),
        ("SWAPDB", 0, 1),
        ("CONFIG", "SET", "appendonly", "no"),
    ]
    for words in refused:
        with pytest.raises(redis.ResponseError):
            eu.execute_command(*words)
    wait_until(length(us, "s", 1), "the entry has arrived")
    for client in (eu, us):
        assert client.keys("*") == ["s"]


# -- stopping -----------------------------------------------------------------------------------


def test_a_stop_waits_until_the_others_have_all(cluster: World) -> None:
    eu, us = cluster.clients
    eu.execute_command("AB.LINK", "us", "DELAY", 300)
    eu.xadd("s", {"f": "v"})
    with pytest.raises(redis.ConnectionError):
        eu.execute_command("SHUTDOWN")
    wait_until(length(us, "s", 1), "us has what eu wrote last")


def test_a_stop_waits_for_a_silent_link_until_it_ends(cluster: World) -> None:
    eu, us = cluster.clients
    eu.config_set("shutdown-timeout", 1_000_000)
    gossip = ("127.0.0.1", int(eu.config_get("port")["port"]) + GOSSIP_PORT_ABOVE)
    eu.execute_command("AB.LINK", "us", "PAUSE")
    eu.xadd("s", {"f": "v"})
    with pytest.raises(redis.ConnectionError):
        eu.execute_command("SHUTDOWN")

    def is_gone() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(gossip) != 0

    wait_until(is_gone, "eu has stopped")
    assert us.xlen("s") == 0
