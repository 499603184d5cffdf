"""Regions as processes: where the log of one has rotted, the others lack nothing all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis

from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer, kill_servers_in_directories, regions_in

ENTRIES = 300


def client_of(server: AnabranchServer) -> Any:
    return redis.Redis(port=server.port, decode_responses=True, protocol=3)


def turn_bit_over(directory: Path, value: bytes) -> None:
    """In the newest file of the log, within the value of an entry."""
    log = max((directory / "data" / "appendonlydir").glob("log-*.ablog"))
    raw = log.read_bytes()
    assert raw.count(value) == 1
    log.write_bytes(raw.replace(value, bytes([value[0] ^ 1]) + value[1:]))


def test_who_lags_gets_a_state_where_the_log_has_rotted(tmp_path: Path) -> None:
    few = ("--region-cache-bytes", "1000", "--oplog-compression", "no")
    try:
        eu, us = regions_in(tmp_path, "eu", "us", extra=few)
        ahead = client_of(eu)
        wait_until(
            lambda: [row["state"] for row in ahead.execute_command("AB.PEERS")] == ["in_sync"],
            "in sync",
        )
        us.stop()
        for number in range(ENTRIES):
            ahead.xadd("s", {"n": f"number {number} of many"})
        turn_bit_over(eu.directory, b"number 150 of many")
        listener = ahead.pubsub(ignore_subscribe_messages=True)
        listener.subscribe("__region__")
        us.start()
        behind = client_of(us)
        told: list[str] = []

        def is_told() -> bool:
            message = listener.get_message(timeout=0.2)
            if message is not None:
                told.append(message["data"])
            return any(each.startswith("log_damaged ") for each in told)

        wait_until(is_told, "the damage")
        assert str(eu.directory) in told[-1]
        wait_until(lambda: behind.xlen("s") == ENTRIES, "the region behind has everything")
        assert behind.execute_command("AB.VERIFY", "eu", "s") == ["equal"]
        assert [row["full-catch-ups"] for row in behind.execute_command("AB.PEERS")] == [1]
        ahead.bgrewriteaof()
        wait_until(lambda: ahead.info("persistence")["aof_rewrite_in_progress"] == 0, "rewritten")
        eu.kill()
        eu.start()
        assert client_of(eu).xlen("s") == ENTRIES
    finally:
        kill_servers_in_directories()
