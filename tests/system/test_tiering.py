"""Streams that are larger than memory: written, read, moved to a region, recovered, damaged."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from tests.support.inspection import has_proc, wait_until
from tests.support.servers import (
    AnabranchServer,
    free_port,
    kill_servers_in_directories,
    server_in,
)

MAXMEMORY = 4 << 20
VALUE_BYTES = 2000
CACHE = 256 << 10
ENTRIES = 4 * MAXMEMORY // VALUE_BYTES
TIERING = (
    *("--maxmemory", str(MAXMEMORY), "--stream-tiering", "yes"),
    *("--stream-compression-cache", str(CACHE), "--save", ""),
)


def value(number: int) -> bytes:
    return random.Random(number).randbytes(VALUE_BYTES)


def write(client: redis.Redis, first: int, last: int) -> None:
    for low in range(first, last, 50):
        with client.pipeline(transaction=False) as pipe:
            for number in range(low, min(low + 50, last)):
                pipe.xadd("s", {"n": number, "v": value(number)}, id=f"{number + 1}-0")
            pipe.execute()


def check(client: redis.Redis, first: int, last: int) -> None:
    """All entries are there from both ends, each with its own value."""
    begin, expected = "-", first
    while found := client.xrange("s", begin, "+", 500):
        for entry_id, fields in found:
            assert entry_id == b"%d-0" % (expected + 1)
            assert fields[b"v"] == value(expected)
            expected += 1
        begin = f"({found[-1][0].decode()}"
    assert expected == last
    newest = client.xrevrange("s", count=3)
    assert [fields[b"n"] for _, fields in newest] == [b"%d" % (last - 1 - at) for at in range(3)]


def memory(client: redis.Redis) -> dict[str, int]:
    return client.info("memory")


def kept_in_bounds(client: redis.Redis) -> None:
    """What is used is measured some times a second: a fast writer is ahead of that."""
    wait_until(lambda: memory(client)["used_memory"] <= MAXMEMORY, "blocks move")
    assert memory(client)["stream_offloaded_bytes"] > 2 * MAXMEMORY


@pytest.fixture
def server() -> Iterator[AnabranchServer]:
    with AnabranchServer(extra=TIERING) as server:
        yield server


def test_a_stream_four_times_as_large_as_memory(server: AnabranchServer) -> None:
    client = redis.Redis(port=server.port)
    client.xgroup_create("s", "g", "0", mkstream=True)
    write(client, 0, ENTRIES)
    kept_in_bounds(client)
    check(client, 0, ENTRIES)

    taken = []
    while found := client.xreadgroup("g", "c", {"s": ">"}, count=1000, noack=True):
        ((_, entries),) = found
        taken += [int(fields[b"n"]) for _, fields in entries]
    assert taken == list(range(ENTRIES))
    assert client.xdel("s", "1-0", "2-0", f"{ENTRIES // 2}-0") == 3
    assert client.xlen("s") == ENTRIES - 3
    assert client.xtrim("s", minid="1001-0", approximate=False) == 998
    client.xadd("s", {"n": ENTRIES // 2 - 1}, id=f"{ENTRIES + 1}-0")
    assert client.xrange("s", count=1)[0][0] == b"1001-0"
    kept_in_bounds(client)

    assert client.execute_command("FLUSHALL") is True
    # The cache lets go of what it has opened after some rounds.
    wait_until(lambda: memory(client)["stream_offloaded_bytes"] < CACHE, "its room is free")
    client.close()


def test_a_kill_and_a_snapshot_lose_nothing(server: AnabranchServer) -> None:
    with redis.Redis(port=server.port) as client:
        write(client, 0, ENTRIES // 2)
        client.save()
        write(client, ENTRIES // 2, ENTRIES)
    server.kill()
    server.start()
    with redis.Redis(port=server.port) as client:
        kept_in_bounds(client)
        check(client, 0, ENTRIES)
        write(client, ENTRIES, ENTRIES + 200)
        check(client, 0, ENTRIES + 200)


@pytest.mark.long
def test_kills_at_any_moment_lose_nothing_that_was_answered() -> None:
    chance = random.Random(7)
    answered = 0
    always = ("--appendfsync", "always", "--stream-node-max-bytes", "20000")
    with AnabranchServer(extra=(*TIERING, *always)) as server:
        for turn in range(8):
            with redis.Redis(port=server.port, retry=None) as client:
                there = client.xlen("s")
                assert there >= answered
                if there:
                    check(client, 0, there)
                killer = threading.Timer(chance.uniform(0.2, 3.0), server.kill)
                killer.start()
                if turn % 2:
                    client.bgsave()
                answered = there
                with suppress(redis.exceptions.ConnectionError):
                    while True:
                        write(client, answered, answered + 50)
                        answered += 50
                killer.join()
            server.start()
        with redis.Redis(port=server.port) as client:
            assert client.xlen("s") >= answered > ENTRIES
            check(client, 0, client.xlen("s"))


def test_without_tiering_writes_are_refused_and_it_may_be_turned_on() -> None:
    with AnabranchServer(extra=("--maxmemory", str(MAXMEMORY), "--save", "")) as server:
        client = redis.Redis(port=server.port)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            write(client, 0, ENTRIES)
        written = client.xlen("s")
        assert written < ENTRIES // 2
        client.config_set("stream-tiering", "yes")
        write(client, written, ENTRIES // 2)
        check(client, 0, ENTRIES // 2)
        client.close()


def test_a_new_region_gets_it_whole_and_both_write(tmp_path: Path) -> None:
    gossip = [free_port(), free_port()]
    entries = [("--cluster-create", "yes"), ("--join", f"127.0.0.1:{gossip[0]}")]
    for name in ("eu", "us"):
        (tmp_path / name).mkdir()
    try:
        eu, us = (
            server_in(
                tmp_path / name,
                *("--region-id", str(number + 1), "--region-name", name),
                *("--gossip-port", str(gossip[number]), *entries[number], *TIERING),
                *("--xadd-id-uniqueness-mode", "liberal"),
            )
            for number, name in enumerate(("eu", "us"))
        )
        eu.start().wait_for_writes()
        with redis.Redis(port=eu.port) as client:
            write(client, 0, ENTRIES)
        us.start().wait_for_writes()
        with redis.Redis(port=us.port) as client:
            wait_until(lambda: client.xlen("s") == ENTRIES, "the full sync is joined", 60)
            kept_in_bounds(client)
            check(client, 0, ENTRIES)
            write(client, ENTRIES, ENTRIES + 200)
        with redis.Redis(port=eu.port) as client:
            wait_until(lambda: client.xlen("s") == ENTRIES + 200, "its entries came back")
            check(client, 0, ENTRIES + 200)
            kept_in_bounds(client)
    finally:
        kill_servers_in_directories()


@pytest.mark.skipif(not has_proc(), reason="/proc leads to the file")
def test_a_block_that_cannot_be_read_ends_the_process_and_the_next_one_has_it(
    server: AnabranchServer,
) -> None:
    assert server.process is not None
    with redis.Redis(port=server.port, retry=None) as client:
        write(client, 0, ENTRIES)
        descriptors = Path(f"/proc/{server.process.pid}/fd")
        (file,) = [path for path in descriptors.iterdir() if "(deleted)" in os.readlink(path)]
        os.truncate(file, 1000)
        with pytest.raises(redis.exceptions.ConnectionError):
            check(client, 0, ENTRIES)
    assert server.process.wait(60) == 1
    assert "tiering.block_lost" in server.log_text()
    server.start()
    with redis.Redis(port=server.port) as client:
        check(client, 0, ENTRIES)
