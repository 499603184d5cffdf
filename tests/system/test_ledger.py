"""What bulk producers wrote, by sockets: it is shown, comes of age, and stays dropped."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from anabranch.testing import Cluster, Server
from tests.support.inspection import wait_until

ROW = b"*2\r\n$1\r\nf\r\n$1\r\nv\r\n"
PAYLOAD = struct.pack("<2I", 1, len(ROW)) + ROW


@contextmanager
def talking(server: Server) -> Iterator[redis.Redis]:
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


def test_records_come_of_age_while_the_server_runs_and_are_not_back_after_a_start() -> None:
    with Server(persist=True) as server, talking(server) as client:
        assert client.config_get("ledger-retention") == {"ledger-retention": "2592000"}
        bring(client, "p", "q")
        server.clock.advance(2592000 - 60)
        assert records(client) == 2
        bring(client, "r")
        server.clock.advance(60 + 1)
        wait_until(lambda: records(client) == 1, "the records of p and q are dropped")
        server.crash()
        server.restart()
        assert records(client) == 1
        assert client.xlen("s") == 3


def test_the_shortest_retention_of_all_regions_counts() -> None:
    with (
        Cluster("eu", "us", ledger_retention=0) as cluster,
        talking(cluster.eu) as here,
        talking(cluster.us) as there,
    ):
        bring(here, "p")
        cluster.settle()
        assert records(there) == 1
        there.config_set("ledger-retention", 60)
        cluster.clock.advance(60 + 1)
        wait_until(lambda: not records(here), "it is dropped everywhere")
        wait_until(lambda: not records(there), "it is dropped there, too")
