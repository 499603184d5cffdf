"""Settings of regions while they run, and what becomes of marks and of the log that is kept."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest
import redis

from anabranch.config.settings import GOSSIP_PORT_ABOVE
from anabranch.testing import Cluster
from tests.support.inspection import info, wait_until
from tests.support.servers import free_port
from tests.support.wire import RespClient

FILLER = "x" * 1000


class Pair:
    """Two regions of a cluster, and how to ask them."""

    def __init__(self, cluster: Cluster) -> None:
        self.eu, self.us = (
            redis.Redis(port=region.port, decode_responses=True, protocol=3) for region in cluster
        )
        self.ports = [region.port for region in cluster]

    def peer(self) -> dict[str, Any]:
        """What eu says of us."""
        (row,) = self.eu.execute_command("AB.PEERS")
        return dict(row)

    def fact(self, at: int, name: str) -> str:
        with RespClient(self.ports[at]) as client:
            return info(client, "active-active")[name]

    def in_sync(self) -> bool:
        row = self.peer()
        return row["state"] == "in_sync" and row["lag-effects"] == row["receive-lag-effects"] == 0

    def wait(self) -> None:
        wait_until(self.in_sync, "both are in sync")

    def part(self) -> None:
        self.eu.execute_command("AB.LINK", "us", "PAUSE")
        wait_until(lambda: self.fact(0, "peers_connected") == "0", "the link is given up")


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Cluster("eu", "us", appendfsync="everysec") as cluster:
        made = Pair(cluster)
        with made.eu, made.us:
            made.wait()
            yield made


# -- listening elsewhere ------------------------------------------------------------------------


def test_the_availability_api_is_switched_while_the_server_runs(pair: Pair) -> None:
    port = free_port()

    def status() -> int:
        with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("GET", "/v1/bdbs/1/availability")
            return connection.getresponse().status

    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            status()
        pair.eu.config_set("http-port", port)
        assert status() == 404
        pair.eu.config_set("availability-api", "yes")
        assert status() == 200
        pair.eu.config_set("availability-api", "no", "http-port", 0)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(redis.ResponseError, match="already in use"):
            pair.eu.config_set("http-port", port)
    assert pair.eu.config_get("http-port") == {"http-port": "0"}


def test_a_region_is_found_at_another_address(pair: Pair) -> None:
    with pytest.raises(redis.ResponseError, match="cannot listen"):
        pair.eu.config_set("gossip-bind", "192.0.2.1")
    pair.eu.config_set("gossip-bind", "127.0.3.1", "gossip-announce", "127.0.3.1")
    port = pair.ports[0] + GOSSIP_PORT_ABOVE
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=60)
    with socket.create_connection(("127.0.3.1", port), timeout=60):
        pass
    assert pair.in_sync(), "connections stay"
    assert pair.peer()["connects"] == 1
    pair.part()
    pair.eu.execute_command("AB.LINK", "us", "RESUME")
    pair.wait()
    (eu,) = pair.us.execute_command("AB.PEERS")
    assert eu["connects"] == 2


def test_what_else_changes_at_any_time(pair: Pair) -> None:
    pair.eu.config_set("oplog-segment-bytes", 4096, "region-cache-bytes", 1000)
    pair.eu.config_set("gossip-window", "100kb", "join", "127.0.0.1:9")
    with pytest.raises(redis.ResponseError, match="host:port"):
        pair.eu.config_set("join", "nowhere")
    before = int(pair.eu.info("persistence")["oplog_segments"])
    for _ in range(20):
        pair.eu.xadd("s", {"f": FILLER.encode().hex()})
        pair.eu.xadd("t", {"f": FILLER.encode().hex()})
    assert int(pair.eu.info("persistence")["oplog_segments"]) > before
    wait_until(lambda: pair.us.xlen("t") == 20, "all has arrived")


# -- bytes --------------------------------------------------------------------------------------


def test_bytes_are_counted_as_sent_and_as_they_were(pair: Pair) -> None:
    pair.eu.xadd("s", {"f": 100 * FILLER})
    wait_until(lambda: pair.us.xlen("s") == 1, "it has arrived")
    row = pair.peer()
    assert 99_000 < row["sent-raw-bytes"] - row["sent-bytes"] < 101_000
    assert row["received-raw-bytes"] == row["received-bytes"]
    (row,) = pair.us.execute_command("AB.PEERS")
    assert 99_000 < row["received-raw-bytes"] - row["received-bytes"] < 101_000


# -- tombstones -----------------------------------------------------------------------------------


def test_who_holds_back_marks_is_named_and_too_many_are_told_of(pair: Pair) -> None:
    assert pair.fact(0, "oldest_mark_held_back_by") == ""
    pair.eu.config_set("max-unstable-marks", 2)
    listener = pair.eu.pubsub()
    listener.subscribe("__region__")
    pair.part()
    for key in ("a", "b", "c"):
        pair.eu.xadd(key, {"f": "v"})
        pair.eu.delete(key)
    told = iter(listener.listen())
    heard = next(each["data"] for each in told if "marks" in str(each["data"]))
    assert heard.startswith("many_marks marks=3 held_back_by=")
    assert pair.fact(0, "unstable_marks") == "3"
    wait_until(lambda: pair.fact(0, "oldest_mark_held_back_by") == "2", "here it is on the disk")
    wait_until(lambda: float(pair.fact(0, "oldest_mark_seconds")) > 0.2, "they wait")
    assert pair.eu.execute_command("AB.INFO", "a")["held-back-by"] == [2]
    pair.eu.execute_command("AB.LINK", "us", "RESUME")
    heard = next(each["data"] for each in told if "marks" in str(each["data"]))
    assert heard.startswith("fewer_marks marks=")
    wait_until(lambda: pair.fact(0, "unstable_marks") == "0", "all have them")
    assert pair.fact(0, "oldest_mark_seconds") == "0.0"
    listener.close()


def test_marks_are_kept_for_ever_if_that_is_wanted(pair: Pair) -> None:
    pair.eu.config_set("mark-retention", "forever")
    pair.eu.xadd("s", {"f": "v"})
    pair.eu.delete("s")
    wait_until(lambda: pair.us.execute_command("AB.INFO")["vector"], "it has arrived")
    wait_until(lambda: pair.fact(0, "unstable_effects") == "0", "all is on all disks")
    assert (pair.fact(0, "marked_keys"), pair.fact(0, "unstable_marks")) == ("1", "0")
    wait_until(lambda: pair.fact(1, "marked_keys") == "0", "the other one forgets")
    pair.eu.config_set("mark-retention", "stable")
    assert pair.fact(0, "marked_keys") == "0"


# -- the log ------------------------------------------------------------------------------------


def _fall_behind(pair: Pair) -> None:
    """Write what us lacks, and have eu take a snapshot of it."""
    pair.part()
    for number in range(300):
        pair.eu.xadd("s", {"n": number, "f": FILLER.encode().hex()[:800]})
    before = pair.eu.info("persistence")["rdb_saves"]
    pair.eu.execute_command("BGREWRITEAOF")
    wait_until(lambda: pair.eu.info("persistence")["rdb_saves"] > before, "a snapshot")


@pytest.mark.parametrize("max_age_s", [1, 0])
def test_what_is_too_old_is_not_kept_for_who_is_away(pair: Pair, max_age_s: int) -> None:
    pair.part()
    pair.eu.xadd("s", {"n": -1})
    pair.eu.config_set("oplog-max-age", 1000, "region-cache-bytes", 0)
    before = pair.eu.info("persistence")["rdb_saves"]
    pair.eu.execute_command("BGREWRITEAOF")
    wait_until(lambda: pair.eu.info("persistence")["rdb_saves"] > before, "a snapshot")
    wait_until(lambda: pair.peer()["lag-ms"] > 1100, "it is old enough")
    pair.eu.config_set("oplog-max-age", max_age_s)
    pair.eu.xadd("s", {"n": 0})
    pair.eu.execute_command("AB.LINK", "us", "RESUME")
    wait_until(lambda: pair.us.xlen("s") == 2, "it has caught up")
    (row,) = pair.us.execute_command("AB.PEERS")
    assert row["full-catch-ups"] == max_age_s


def test_a_region_may_take_no_writes_while_a_state_is_coming(pair: Pair) -> None:
    pair.us.config_set("serve-while-joining", "no")
    pair.eu.config_set("oplog-max-bytes", 1, "region-cache-bytes", 0)
    _fall_behind(pair)
    pair.us.xadd("t", {"f": "v"})
    with pair.eu.pipeline() as slowly:  # in one turn: the state would come at once between the two
        slowly.execute_command("AB.LINK", "us", "RESUME")
        slowly.execute_command("AB.LINK", "us", "RATE", "500")
        slowly.execute()

    def is_refused() -> bool:
        try:
            pair.us.xadd("t", {"f": "v"})
        except redis.exceptions.ReadOnlyError as problem:
            return "the whole state of another one" in str(problem)
        return False

    wait_until(is_refused, "it is joining")
    assert pair.us.xlen("t") > 0, "it is read"
    pair.us.config_set("serve-while-joining", "yes")
    wait_until(lambda: not is_refused(), "it takes writes all the same")
    assert pair.fact(1, "joining_from") == "1"
    pair.us.config_set("serve-while-joining", "no")
    wait_until(is_refused, "it does not any more")
    pair.eu.execute_command("AB.LINK", "us", "RESUME")
    wait_until(lambda: pair.us.xlen("s") == 300, "the state is joined")
    wait_until(lambda: not is_refused(), "it takes writes again")
