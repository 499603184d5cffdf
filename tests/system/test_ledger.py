"""What bulk producers wrote, by sockets: it is shown, comes of age, and stays dropped."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer, regions_in, server_in

ROW = b"*2\r\n$1\r\nf\r\n$1\r\nv\r\n"
PAYLOAD = struct.pack("<2I", 1, len(ROW)) + ROW


@contextmanager
def talking(server: AnabranchServer) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port, protocol=2, decode_responses=True) as client:
        yield client


def bring(client: redis.Redis, *pids: str) -> None:
    for pid in pids:
        words = ("AB.IMPORT", "s", "PRODUCER", pid, "BATCH", 1, "EXPECT", 0)
        assert client.execute_command(*words, PAYLOAD)[:2] == [1, 1]


def records(client: redis.Redis) -> int:
    """As redis-py shows a field that it does not know; from one moment, as they may go."""
    transaction = client.pipeline()
    transaction.xinfo_stream("s").xinfo_stream("s", full=True).execute_command("AB.LEDGER", "s")
    short, full, rows = transaction.execute()
    found: int = short.get("ledger-records", 0)
    assert (full.get("ledger-records", 0), len(rows)) == (found, found)
    return found


def test_records_come_of_age_while_the_server_runs_and_are_not_back_after_a_start(
    tmp_path: Path,
) -> None:
    server = server_in(tmp_path).start()
    with talking(server) as client:
        assert client.config_get("ledger-retention") == {"ledger-retention": "2592000"}
        bring(client, "p", "q")
        assert records(client) == 2
        client.config_set("ledger-retention", 1)
        wait_until(lambda: not records(client), "the records are dropped")
        client.config_set("ledger-retention", 0)
        bring(client, "r")
    server.kill()
    server.start()
    with talking(server) as client:
        assert records(client) == 1
        assert client.xlen("s") == 3


def test_the_shortest_retention_of_all_regions_counts(tmp_path: Path) -> None:
    eu, us = regions_in(tmp_path, "eu", "us", extra=("--ledger-retention", "0"))
    with talking(eu) as here, talking(us) as there:
        bring(here, "p")
        wait_until(lambda: there.exists("s") and records(there) == 1, "it has arrived")
        there.config_set("ledger-retention", 1)
        wait_until(lambda: not records(here), "it is dropped everywhere")
        assert records(there) == 0
