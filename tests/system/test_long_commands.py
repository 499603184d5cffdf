"""Others are served while one client's long command runs.

What is counted are the pings that are answered before the long command is: without slices the
server has answered one or two, those that came before it began.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks.versus_redis.canary import Sighting
from tests.support.servers import AnabranchServer, regions_in
from tests.support.wire import Argument, encode_command
from tests.system.test_fairness import WAIT_MS, best, canary_of

pytestmark = pytest.mark.usefixtures("compiled_form")

ENTRIES = 100_000
REGIONAL_ENTRIES = 60_000
PIPELINE = 1000
NAMES = 25_000
KEYS = 10_000
PINGS_MIN = 5
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[AnabranchServer]:
    """A server with a stream whose entries are all pending."""
    with AnabranchServer() as server:
        fill(server, ENTRIES, pending=ENTRIES)
        yield server


def fill(server: AnabranchServer, entries: int, pending: int) -> None:
    """Make the stream."""
    with server.client() as client:
        client.timeout = TIMEOUT_S
        for first in range(0, entries, PIPELINE):
            client.pipeline(
                [("XADD", "s", f"{n + 1}-1", "n", n) for n in range(first, first + PIPELINE)]
            )
        assert client.call("XLEN", "s") == (":", entries)
        client.call("XGROUP", "CREATE", "s", "g", 0)
        read = "XREADGROUP", "GROUP", "g", "c", "COUNT", min(pending, PIPELINE), "STREAMS", "s", ">"
        for _ in range(0, pending, PIPELINE):
            client.call(*read)


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
    [("DUMP", "s"), ("XPENDING", "s", "g", "-", "+", ENTRIES), ("AB.DIGEST", "s"), ("SAVE",)],
    ids=lambda words: words[0],
)
def test_a_long_reading_command_keeps_nobody_waiting(
    server: AnabranchServer, words: tuple[Argument, ...]
) -> None:
    pings, reply = pings_during(server, *words)
    assert pings >= PINGS_MIN
    assert reply[:1] in (b"$", b"*", b"+")


def test_restore_and_delete_keep_nobody_waiting(server: AnabranchServer) -> None:
    with server.client() as client:
        client.timeout = TIMEOUT_S
        _, payload = client.call("DUMP", "s")
        pings, reply = pings_during(server, "RESTORE", "t", 0, payload)
        assert pings >= PINGS_MIN
        assert reply == b"+OK\r\n"
        assert client.call("DUMP", "t") == ("$", payload)
        assert client.call("DEL", "t") == (":", 1)


def test_a_stream_is_written_again_in_a_region_while_others_are_served(tmp_path: Path) -> None:
    """The bound is in CPU time of the server, as in test_fairness.py."""
    (region,) = regions_in(tmp_path, "eu", extra=("--xadd-id-uniqueness-mode", "liberal"))
    fill(region, REGIONAL_ENTRIES, pending=1)
    with region.client() as client, canary_of(region) as canary:
        client.timeout = TIMEOUT_S
        _, payload = client.call("DUMP", "s")

        def sight(*commands: tuple[Argument, ...]) -> Sighting:
            client.pipeline([("DEL", "t"), *commands[:-1]])
            canary.look()
            assert client.call(*commands[-1]) in ((":", 1), ("+", b"OK"))
            return canary.look()

        copy = "COPY", "s", "t"
        assert best(partial(sight, copy)) < WAIT_MS
        assert best(partial(sight, copy, ("RENAME", "t", "u"))) < WAIT_MS
        assert best(partial(sight, ("RESTORE", "t", 0, payload))) < WAIT_MS
        for key in ("t", "u"):
            assert client.call("XLEN", key) == (":", REGIONAL_ENTRIES)
            for some in [("XRANGE", "-", "+"), ("XREVRANGE", "+", "-")]:
                words = some[0], key, *some[1:], "COUNT", PIPELINE
                assert client.call(*words) == client.call(words[0], "s", *words[2:])


def test_a_client_that_sends_no_more_gets_its_long_reply(server: AnabranchServer) -> None:
    with server.client() as client:
        client.timeout = TIMEOUT_S
        _, payload = client.call("DUMP", "s")
    with connect(server) as sock:
        sock.sendall(encode_command(("DUMP", "s")) + encode_command(("ECHO", "end")))
        sock.shutdown(socket.SHUT_WR)
        reply = b"".join(iter(lambda: sock.recv(1 << 20), b""))
    assert reply == b"$%d\r\n%b\r\n$3\r\nend\r\n" % (len(payload), payload)


def test_a_client_that_goes_ends_its_long_command(server: AnabranchServer) -> None:
    with server.client() as client:
        client.timeout = TIMEOUT_S
        for _ in range(5):
            with connect(server) as sock:
                sock.sendall(encode_command(("DUMP", "s")))
        assert client.call("XACK", "s", "g", "1-1") == (":", 1)
        assert client.call("XLEN", "s") == (":", ENTRIES)


def test_a_delete_of_many_entries_keeps_nobody_waiting(server: AnabranchServer) -> None:
    """One entry in ten of all nodes; the bound is in CPU time of the server.

    What is at once, and grows with the IDs, takes half of the bound.
    """
    ids = [f"{n + 1}-1" for n in range(0, ENTRIES, 10)]
    with server.client() as client, canary_of(server) as canary:
        client.timeout = TIMEOUT_S

        def sight(*words: Argument) -> Sighting:
            client.call("COPY", "s", "t", "REPLACE")
            canary.look()
            kind, reply = client.call(*words, *ids)
            assert reply == len(ids) if kind == ":" else reply.count((":", 1)) == len(ids)
            return canary.look()

        assert best(partial(sight, "XDEL", "t")) < WAIT_MS
        assert best(partial(sight, "XDELEX", "t", "IDS", len(ids))) < WAIT_MS
        assert client.call("DEL", "t") == (":", 1)


@pytest.mark.parametrize(
    "words",
    [("XREAD", "STREAMS"), ("PUBSUB", "NUMSUB"), ("CONFIG", "GET"), ("COMMAND", "INFO")],
    ids=lambda words: words[0],
)
def test_a_command_with_many_names_keeps_nobody_waiting(
    server: AnabranchServer, words: tuple[str, str]
) -> None:
    names = [f"name:{n}" for n in range(NAMES)]
    ids = ["0-1"] * NAMES if words[0] == "XREAD" else []
    with server.client() as client, canary_of(server) as canary:
        client.timeout = TIMEOUT_S

        def sight() -> Sighting:
            canary.look()
            assert client.call(*words, *names, *ids)[0] == "*"
            return canary.look()

        assert best(sight) < WAIT_MS


def test_commands_that_make_or_delete_many_keys_keep_nobody_waiting(
    server: AnabranchServer,
) -> None:
    keys = [f"key:{n}" for n in range(KEYS)]
    pairs = [word for key in keys for word in (key, "v")]
    mset, delete, scan = ("MSET", *pairs), ("DEL", *keys), ("SCAN", 0)
    with server.client() as client, canary_of(server) as canary:
        client.timeout = TIMEOUT_S
        client.call("SELECT", 1)

        def sight(before: tuple[Argument, ...], *commands: tuple[Argument, ...]) -> Sighting:
            client.call(*before)
            canary.look()
            client.pipeline(commands)
            return canary.look()

        assert best(partial(sight, delete, mset, scan)) < WAIT_MS
        assert best(partial(sight, mset, delete, scan)) < WAIT_MS
        assert client.call("DBSIZE") == (":", 0)
