"""Regions as processes: one whose disk tells something else is found out, and mended for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis

from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica, epoch_of
from anabranch.oplog.recovery import recover
from anabranch.oplog.snapshot import Contents, Snapshot, snapshot_name
from anabranch.server.disk import Directory
from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer, kill_servers_in_directories, regions_in


def client_of(server: AnabranchServer) -> Any:
    return redis.Redis(port=server.port, decode_responses=True, protocol=3)


def lose_entry(directory: Path, key: bytes) -> None:
    """Have what a stopped region keeps tell of one entry less."""
    storage = Directory(directory)
    replica = Replica(2, lambda: (100, 100))
    keyspace = Keyspace(replica=replica)
    *_, report = recover(storage, keyspace)
    stream: Any = keyspace.databases[0].values[key]
    log = stream.log_of(1)
    log.remove_within(log.tail, [log.tail.first_live()])
    number = replica.vector.get(replica.own, 0) + 1
    contents = Contents(report.end, 2, epoch_of(replica.own), number)
    (directory / snapshot_name(report.end)).write_bytes(Snapshot(keyspace, contents).whole())


def test_a_disk_that_lost_an_entry_is_found_out_and_mended(tmp_path: Path) -> None:
    try:
        servers = regions_in(tmp_path, "eu", "us", extra=("--digest-interval", "1"))
        eu, us = map(client_of, servers)
        wait_until(
            lambda: [row["state"] for row in eu.execute_command("AB.PEERS")] == ["in_sync"],
            "in sync",
        )
        for key in ("a", "b"):
            for _ in range(3):
                eu.xadd(key, {"f": "v"})
        eu.wait(1, 60_000)
        assert eu.execute_command("AB.VERIFY", "us", "a", "b") == ["equal", "equal"]
        servers[1].stop()
        lose_entry(servers[1].directory / "data" / "appendonlydir", b"a")
        listener = eu.pubsub(ignore_subscribe_messages=True)
        listener.subscribe("__region__")
        servers[1].start()
        us = client_of(servers[1])
        told: list[str] = []

        def alarmed() -> bool:
            message = listener.get_message(timeout=0.2)
            if message is not None:
                told.append(message["data"])
            return any(each.startswith("divergence region=2 name=us db=0 key=a ") for each in told)

        wait_until(alarmed, "the alarm")
        assert us.xlen("a") == 2
        assert us.execute_command("AB.VERIFY", "eu", "a", "b") == ["differs", "equal"]
        assert us.execute_command("AB.VERIFY", "eu")["keys"] == [[0, "a", "differs"]]
        assert us.execute_command("AB.REGION", "REPAIR", "a", "FROM", "eu")
        assert us.xlen("a") == 3
        servers[1].kill()
        servers[1].start()
        us = client_of(servers[1])
        assert us.xlen("a") == 3
        wait_until(
            lambda: [row["differing-keys"] for row in us.execute_command("AB.PEERS")] == [0],
            "compared again",
        )
        wait_until(
            lambda: [row["differing-keys"] for row in eu.execute_command("AB.PEERS")] == [0],
            "compared again",
        )
        assert us.execute_command("AB.DIGEST", "a", "b") == eu.execute_command(
            "AB.DIGEST", "a", "b"
        )
    finally:
        kill_servers_in_directories()
