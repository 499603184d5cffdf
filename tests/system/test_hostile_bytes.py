"""100 000 hostile byte sequences, and the server neither falls, hangs, leaks nor starves others.

The sequences are the same for the same seed. ``ANABRANCH_HOSTILE_SEQUENCES`` asks for another
number, ``ANABRANCH_HOSTILE_SEED`` for others; a failure tells the bytes that did it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.canary import Canary
from tests.support.hostile import Attack, HostileSource
from tests.support.inspection import (
    has_proc,
    info,
    mistakes,
    open_files,
    rss_bytes,
    wait_until,
)
from tests.support.servers import AnabranchServer
from tests.support.storm import Storm
from tests.support.wire import RespClient

SEQUENCES = int(os.environ.get("ANABRANCH_HOSTILE_SEQUENCES", "60000"))
SEED = int(os.environ.get("ANABRANCH_HOSTILE_SEED", "20"))
CANARY_SECONDS = 2.0  # of the CPU of the server, which answers in milliseconds
GROWTH_BYTES = 64 << 20

pytestmark = pytest.mark.skipif(not has_proc(), reason="looks at the process under /proc")


@contextmanager
def serving(*extra: str) -> Iterator[AnabranchServer]:
    """A server with a Unix socket as well."""
    server = AnabranchServer()
    server.extra = ["--unixsocket", str(server.directory / "socket"), *extra]
    with server:
        yield server


def valid_payloads(client: RespClient) -> list[bytes]:
    """DUMPs of streams with everything a stream can have, to be corrupted."""
    assert client.call("XADD", "full", "1-1", "f", "v") == ("$", b"1-1")
    requests: list[tuple[str | int | bytes, ...]] = [
        *(("XADD", "full", f"2-{n}", "temperature", n, "unit", "C") for n in range(1, 5)),
        *(("XADD", "full", f"3-{n}", "other", b"\0\xff" * n) for n in range(1, 20)),
        ("XADD", "full", "IDMP", "producer", "one", "*", "f", "v"),
        ("XADD", "full", "IDMPAUTO", "producer", "*", "f", "w"),
        ("XGROUP", "CREATE", "full", "g1", 0),
        ("XGROUP", "CREATE", "full", "g2", "2-2", "ENTRIESREAD", 3),
        ("XREADGROUP", "GROUP", "g1", "c1", "COUNT", 4, "STREAMS", "full", ">"),
        ("XREADGROUP", "GROUP", "g1", "c2", "COUNT", 3, "STREAMS", "full", ">"),
        ("XGROUP", "CREATECONSUMER", "full", "g2", "idle"),
        ("XNACK", "full", "g1", "FAIL", "IDS", 1, "2-1"),
        ("XDEL", "full", "1-1", "3-3"),
        ("XADD", "small", "5-5", "f", "v"),
        ("XGROUP", "CREATE", "empty", "g", "$", "MKSTREAM"),
        ("LPUSH", "list", "a", "b"),
        ("SADD", "set", "1", "2"),
        ("SET", "string", "text"),
    ]
    for kind, value in client.pipeline(requests):
        assert kind != "-", value
    keys = ("full", "full", "full", "small", "empty", "list", "set", "string")
    return [client.call("DUMP", key)[1] for key in keys]


def counts(client: RespClient) -> dict[str, int]:
    """What must be as before when all hostile clients are gone."""
    fields = info(client, "clients", "stats")
    names = (
        "connected_clients blocked_clients pubsub_clients watching_clients total_watched_keys "
        "total_blocking_keys total_blocking_keys_on_nokey pubsub_channels pubsub_patterns"
    ).split()
    return {name: int(fields[name]) for name in names}


def calm(server: AnabranchServer, client: RespClient) -> int:
    """Memory in use when all data is gone."""
    for request in (("FLUSHALL",), ("SLOWLOG", "RESET"), ("ACL", "LOG", "RESET")):
        assert client.call(*request) == ("+", b"OK")
    return rss_bytes(server)


def test_hostile_bytes_harm_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    with serving("--enable-debug-command", "yes") as server, server.client() as client:
        names = [name for _, name in client.call("COMMAND", "LIST")[1]]
        source = HostileSource(SEED, names, valid_payloads(client))
        attacks = iter(source.attack, None)
        before = counts(client)
        files = open_files(server)
        storm = Storm(server.port, server.directory / "socket")
        with Canary(server) as canary:
            storm.run(attacks, SEQUENCES // 5)
            settled = calm(server, client)
            storm.run(attacks, SEQUENCES - SEQUENCES // 5)
        assert server.alive(), server.log_tail()
        canary.check(CANARY_SECONDS)
        wait_until(lambda: counts(client) == before, "all hostile clients are gone")
        wait_until(lambda: open_files(server) == files, "their files are closed")
        grown = calm(server, client) - settled
        with capsys.disabled():
            print(  # noqa: T201 - figures for whoever runs it
                f"\n{storm.sequences.total()} hostile sequences, {storm.connections} connections, "
                f"{storm.replies.total()} replies; {canary.round_trips} round trips of another "
                f"client, the slowest {canary.worst_seconds * 1000:.0f} ms; memory grew by "
                f"{grown / (1 << 20):.1f} MB"
            )
        assert grown < GROWTH_BYTES
        assert not mistakes(server)


def test_strangers_with_hostile_bytes_harm_nobody() -> None:
    with serving() as server, server.client() as client:
        names = [name for _, name in client.call("COMMAND", "LIST")[1]]
        source = HostileSource(SEED + 1, names, valid_payloads(client))
        assert client.call("CONFIG", "SET", "requirepass", "secret") == ("+", b"OK")
        before = counts(client)
        files = open_files(server)
        digest = client.call("DBSIZE")
        storm = Storm(server.port, server.directory / "socket")
        storm.run(iter(lambda: uncounted(source.attack()), None), SEQUENCES // 10)
        assert server.alive(), server.log_tail()
        wait_until(lambda: counts(client) == before, "all hostile clients are gone")
        wait_until(lambda: open_files(server) == files, "their files are closed")
        assert client.call("DBSIZE") == digest
        assert not mistakes(server)


def uncounted(attack: Attack) -> Attack:
    """A stranger is cut off where the request is too large, so there may be fewer replies."""
    attack.replies = None
    return attack


# -- single ones, by name -------------------------------------------------------------------------


PROTOCOL_ERRORS = [
    (b"*1000000000\r\n", b""),
    (b"*2147483648\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
    (b"*1\r\n$536870913\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
    (b"*1\r\n$-1\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
    (b"*-1\r\n*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"),
    (b"*0\r\n*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"),
    (b"*1\r\n$4\r\nPING\r\n$0\r\n\r\n", b"+PONG\r\n-ERR unknown command '$0'\r\n"),
    (b"*1\r\n*1\r\n$4\r\nPING\r\n", b"-ERR Protocol error: expected '$', got '*'\r\n"),
    (b"*1\r\n:5\r\n", b"-ERR Protocol error: expected '$', got ':'\r\n"),
    (b"*1\r\n+PING\r\n", b"-ERR Protocol error: expected '$', got '+'\r\n"),
    (b"*" + b"1" * 70_000, b"-ERR Protocol error: too big mbulk count string\r\n"),
    (b"*1\r\n$" + b"1" * 70_000, b"-ERR Protocol error: too big bulk count string\r\n"),
    (b"PING " + b"x" * 70_000, b"-ERR Protocol error: too big inline request\r\n"),
    (b'PING "x\r\n', b"-ERR Protocol error: unbalanced quotes in request\r\n"),
    (b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", b""),
    (b"*3\r\n$4\r\nXADD\r\n", b""),
]


@pytest.mark.parametrize(("sent", "expected"), PROTOCOL_ERRORS, ids=lambda each: repr(each[:24]))
def test_a_broken_request_is_answered_and_the_connection_closed(
    anabranch_server: AnabranchServer, sent: bytes, expected: bytes
) -> None:
    with anabranch_server.client() as client:
        client.send_raw(sent)
        client.socket.shutdown(1)
        received = b""
        while data := client.socket.recv(65536):
            received += data
        assert received == expected
