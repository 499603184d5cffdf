"""Reads of a group that get nothing: what they write to the log, and what a crash forgets."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.servers import AnabranchServer, RedisServer, ServerProcess, redis_server_path
from tests.support.wire import RespClient

READS = 1000
KEYS = ("s", "t", "u")

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")

EMPTY = (
    "XREADGROUP GROUP g c STREAMS s >",
    "XREADGROUP GROUP g c COUNT 5 STREAMS s t u > > >",
    "XREADGROUP GROUP g c NOACK STREAMS s >",
    "XREADGROUP GROUP g c STREAMS s 0",
    "XREADGROUP GROUP g c BLOCK 1 STREAMS s t u > > >",
    "XAUTOCLAIM s g c 0 0",
    "XCLAIM s g c 0 1-1",
)
"""Nothing is new, nothing pending; the fifth waits until its time is over."""


def written(server: ServerProcess) -> int:
    """The effects in the log, or its bytes.

    Without those that say how far it was synced: the server writes one by itself a second later.
    """
    if isinstance(server, RedisServer):
        return sum(path.stat().st_size for path in server.directory.glob("**/*.aof"))
    (directory,) = server.directory.glob("**/appendonlydir")
    command = [sys.executable, "-m", "anabranch", "inspect", str(directory), "--dump"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return sum('"kind": "Synced"' not in line for line in done.stdout.splitlines())


def consumers(client: RespClient, key: str) -> dict[bytes, dict[bytes, int]]:
    """XINFO CONSUMERS, by name."""
    found = {}
    for _, row in client.call("XINFO", "CONSUMERS", key, "g")[1]:
        values = [value for _, value in row]
        fields = dict(zip(values[::2], values[1::2], strict=True))
        found[fields.pop(b"name")] = fields
    return found


def create(client: RespClient) -> None:
    """Make the groups, and their consumer."""
    for key in KEYS:
        client.call("XGROUP", "CREATE", key, "g", "0", "MKSTREAM")
        client.call("XGROUP", "CREATECONSUMER", key, "g", "c")


@pytest.mark.parametrize("kind", [AnabranchServer, RedisServer])
def test_a_read_that_gets_nothing_writes_nothing(
    tmp_path: Path, kind: type[AnabranchServer | RedisServer]
) -> None:
    if kind is RedisServer and redis_server_path() is None:
        pytest.skip("redis-server is not installed")
    with kind(tmp_path, extra=ALWAYS) as server, server.client() as client:
        create(client)
        before = written(server)
        for at in range(READS):
            assert client.call(*EMPTY[at % len(EMPTY)].split())[0] != "-"
        assert written(server) == before
        client.call("XADD", "s", "1-1", "f", "v")
        assert written(server) > before


def test_a_crash_forgets_when_a_consumer_was_last_seen_and_nothing_else(tmp_path: Path) -> None:
    server = AnabranchServer(tmp_path, extra=ALWAYS).start()
    with server.client() as client:
        create(client)
        client.call("XADD", "s", "1-1", "f", "v")
        client.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
        delivered = written(server)
        for at in range(READS):
            client.call(*EMPTY[at % 3].split())
        assert written(server) == delivered
        assert client.call("XREADGROUP", "GROUP", "g", "new", "STREAMS", *KEYS, *">>>") == (
            "*",
            None,
        )
        assert written(server) > delivered, "a consumer that is made is a change"
        before = {key: consumers(client, key) for key in KEYS}
    server.kill()
    server.start()
    with server.client() as client:
        for key in KEYS:
            found = consumers(client, key)
            assert found.keys() == {b"c", b"new"}
            for name, fields in found.items():
                assert fields.pop(b"idle") >= before[key][name].pop(b"idle")
                assert (fields.pop(b"inactive") < 0) is (before[key][name].pop(b"inactive") < 0)
                assert fields == before[key][name]
        began = time.monotonic()
        client.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", *KEYS, *">>>")
        idle_ms = consumers(client, "t")[b"c"][b"idle"]
        assert idle_ms <= (time.monotonic() - began) * 1000 + 1
    server.stop()
