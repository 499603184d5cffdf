"""Others are served while one client's long command runs.

What is counted are the pings that are answered before the long command is: without slices the
server has answered one or two, those that came before it began.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from tests.support.servers import AnabranchServer
from tests.support.wire import Argument, encode_command

ENTRIES = 100_000
PIPELINE = 1000
PINGS_MIN = 5
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[AnabranchServer]:
    """A server with a stream whose entries are all pending."""
    with AnabranchServer() as server, server.client() as client:
        for first in range(0, ENTRIES, PIPELINE):
            client.pipeline(
                [("XADD", "s", f"{n + 1}-1", "n", n) for n in range(first, first + PIPELINE)]
            )
        client.call("XGROUP", "CREATE", "s", "g", 0)
        client.call("XREADGROUP", "GROUP", "g", "c", "COUNT", ENTRIES, "STREAMS", "s", ">")
        yield server


def connect(server: AnabranchServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S)


def pings_during(server: AnabranchServer, *words: Argument) -> tuple[int, bytes]:
    """How many pings of another client are answered before a command is; how its reply begins."""
    with connect(server) as long, connect(server) as other:
        long.sendall(encode_command(words))
        pings = 0
        while not select.select([long], [], [], 0)[0]:
            other.sendall(b"PING\r\n")
            assert other.recv(64) == b"+PONG\r\n"
            pings += 1
        return pings, long.recv(64)


@pytest.mark.parametrize(
    "words",
    [("DUMP", "s"), ("XPENDING", "s", "g", "-", "+", ENTRIES), ("AB.DIGEST", "s")],
    ids=lambda words: words[0],
)
def test_a_long_reading_command_keeps_nobody_waiting(
    server: AnabranchServer, words: tuple[Argument, ...]
) -> None:
    pings, reply = pings_during(server, *words)
    assert pings >= PINGS_MIN
    assert reply[:1] in (b"$", b"*")


def test_restore_and_delete_keep_nobody_waiting(server: AnabranchServer) -> None:
    with server.client() as client:
        _, payload = client.call("DUMP", "s")
        pings, reply = pings_during(server, "RESTORE", "t", 0, payload)
        assert pings >= PINGS_MIN
        assert reply == b"+OK\r\n"
        assert client.call("DUMP", "t") == ("$", payload)
        assert client.call("DEL", "t") == (":", 1)


def test_a_client_that_sends_no_more_gets_its_long_reply(server: AnabranchServer) -> None:
    with server.client() as client:
        _, payload = client.call("DUMP", "s")
    with connect(server) as sock:
        sock.sendall(encode_command(("DUMP", "s")) + encode_command(("ECHO", "end")))
        sock.shutdown(socket.SHUT_WR)
        reply = b"".join(iter(lambda: sock.recv(1 << 20), b""))
    assert reply == b"$%d\r\n%b\r\n$3\r\nend\r\n" % (len(payload), payload)


def test_a_client_that_goes_ends_its_long_command(server: AnabranchServer) -> None:
    with server.client() as client:
        for _ in range(5):
            with connect(server) as sock:
                sock.sendall(encode_command(("DUMP", "s")))
        assert client.call("XACK", "s", "g", "1-1") == (":", 1)
        assert client.call("XLEN", "s") == (":", ENTRIES)
