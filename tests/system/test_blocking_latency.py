"""Blocked clients are served at once or let go on time; clients that do not read harm nobody."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import hiredis
import pytest

from tests.support.canary import Canary
from tests.support.inspection import has_proc, mistakes, number, rss_bytes, wait_until
from tests.support.servers import AnabranchServer
from tests.support.wire import Argument, ConnectionLost, RespClient, encode_command

LATE_SECONDS = 0.150  # how much later than its bound a timeout may end
PROMPT_SECONDS = 0.050  # median from XADD to the reply of a reader
TRIES = 40
"""A busy machine may keep whoever measures waiting: what is in time once is not late by itself."""
CANARY_SECONDS = 1.0  # of the CPU of the server


def blocked(client: RespClient, count: int = 1) -> None:
    """Wait until so many clients are blocked."""
    wait_until(lambda: number(client, "blocked_clients") == count, f"{count} blocked")


def check_late(measured: Callable[[], float], limit: float = LATE_SECONDS) -> None:
    """Fail if what is measured, in seconds, is early once, or late each time."""
    late = float("inf")
    for _ in range(TRIES):
        late = min(late, seen := measured())
        assert seen >= 0
        if late < limit:
            return
    raise AssertionError(f"{late:.3f} s late in the best of {TRIES} tries")


# -- being served ---------------------------------------------------------------------------------


@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize(
    "read",
    [
        ("XREAD", "BLOCK", 0, "STREAMS", "s", "$"),
        ("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">"),
    ],
    ids=["XREAD", "XREADGROUP"],
)
def test_a_blocked_reader_is_served_promptly(
    anabranch_server: AnabranchServer, read: tuple[Argument, ...], resp: int
) -> None:
    def median(writer: RespClient, reader: RespClient) -> float:
        waits = []
        writer.call("FLUSHALL")
        writer.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
        for index in range(50):
            reader.send(*read)
            blocked(writer)
            started = time.perf_counter()
            added = writer.call("XADD", "s", "*", "f", index)
            kind, streams = reader.read_reply()
            waits.append(time.perf_counter() - started)
            assert kind == ("%" if resp == 3 else "*")
            name, entries = streams[0] if resp == 3 else streams[0][1]
            assert name == ("$", b"s")
            field = ("*", [("$", b"f"), ("$", str(index).encode())])
            assert entries == ("*", [("*", [added, field])])
        return statistics.median(waits)

    with anabranch_server.client() as writer, anabranch_server.client(resp=resp) as reader:
        check_late(partial(median, writer, reader), PROMPT_SECONDS)


def test_what_was_sent_behind_a_blocked_command_follows_in_order(
    anabranch_server: AnabranchServer,
) -> None:
    with anabranch_server.client() as writer, anabranch_server.client() as reader:
        writer.call("FLUSHALL")
        reader.send("XREAD", "BLOCK", 0, "STREAMS", "s", "$")
        reader.send("ECHO", "behind")
        reader.send("XREAD", "BLOCK", 0, "STREAMS", "s", "$")
        reader.send("ECHO", "further behind")
        blocked(writer)
        writer.call("XADD", "s", "1-1", "f", "v")
        assert reader.read_reply()[0] == "*"
        assert reader.read_reply() == ("$", b"behind")
        blocked(writer)
        writer.call("XADD", "s", "1-2", "f", "v")
        assert reader.read_reply()[0] == "*"
        assert reader.read_reply() == ("$", b"further behind")


# -- being let go ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0.001, 0.05, 0.3])
def test_a_timeout_ends_on_time(anabranch_server: AnabranchServer, bound: float) -> None:
    with anabranch_server.client() as client:
        client.call("FLUSHALL")
        client.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
        read = ("XREADGROUP", "GROUP", "g", "c", "BLOCK", int(bound * 1000), "STREAMS", "s", ">")

        def late(*request: Argument) -> float:
            started = time.monotonic()
            assert client.call(*request) == ("*", None)
            return time.monotonic() - started - bound

        for request in (read, ("BLPOP", "none", bound)):
            check_late(partial(late, *request))


def test_a_timeout_ends_on_time_although_the_reader_was_woken_in_vain(
    anabranch_server: AnabranchServer,
) -> None:
    bound = 0.6
    with anabranch_server.client() as client, anabranch_server.client() as reader:
        client.call("FLUSHALL")
        client.call("XADD", "s", "1-1", "f", "v")
        client.call("XGROUP", "CREATE", "s", "g", "$")

        def late() -> float:
            started = time.monotonic()
            reader.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", 600, "STREAMS", "s", ">")
            woken = 0
            while number(client, "blocked_clients") or time.monotonic() - started < bound / 2:
                # Added and gone before anybody can look: the reader must keep its first deadline.
                replies = client.pipeline(
                    [
                        *(("MULTI",), ("XADD", "s", "*", "f", "v")),
                        *(("XTRIM", "s", "MAXLEN", 0), ("EXEC",)),
                    ]
                )
                assert replies[-1][0] == "*", replies
                woken += 1
            assert reader.read_reply() == ("*", None)
            return time.monotonic() - started - bound if woken > 3 else float("inf")

        check_late(late)


def test_many_timeouts_end_on_time_together() -> None:
    with AnabranchServer() as server, server.client() as client, ExitStack() as stack:
        readers = [stack.enter_context(server.client()) for _ in range(200)]

        def late() -> float:
            started = []
            for index, reader in enumerate(readers):
                started.append(time.monotonic())
                reader.send("XREAD", "BLOCK", 400 + index, "STREAMS", "s", "$")
            together = 0
            while together < len(readers) and time.monotonic() - started[0] < 0.4:
                together = number(client, "blocked_clients")
            for index, reader in enumerate(readers):
                assert reader.read_reply() == ("*", None)
                waited = time.monotonic() - started[index]
                # Read in turn, so the first may have been here for a while when we look.
                assert waited >= (400 + index) / 1000
            assert number(client, "blocked_clients") == 0
            waited = time.monotonic() - started[-1] - (400 + index) / 1000
            return waited if together == len(readers) else float("inf")

        check_late(late)


def test_a_reader_that_hangs_up_is_forgotten(anabranch_server: AnabranchServer) -> None:
    with anabranch_server.client() as client:
        client.call("FLUSHALL")
        client.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
        for _ in range(20):
            with anabranch_server.client() as reader:
                reader.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">")
                blocked(client)
            blocked(client, 0)
        assert number(client, "total_blocking_keys") == 0
        client.call("XADD", "s", "1-1", "f", "v")
        assert client.call("XPENDING", "s", "g")[1][0] == (":", 0)


# -- clients that do not read ---------------------------------------------------------------------

SENT_BYTES_MAX = 256 << 20


def sent_until_refused(sock: socket.socket, request: bytes) -> int:
    """Send a request again and again until nobody takes it; how many bytes that were."""
    sent = 0
    try:
        while sent < SENT_BYTES_MAX:
            sent += sock.send(request[sent % len(request) :])
    except TimeoutError:
        pass
    return sent


def read_to_the_end(client: RespClient) -> None:
    """Read replies until there is none."""
    while True:
        client.read_reply()


@pytest.mark.skipif(not has_proc(), reason="looks at the process under /proc")
def test_a_client_that_does_not_read_its_replies_is_not_read_from() -> None:
    """It may fill buffers of the system and ours up to a bound; what it sent is not lost."""
    size = 64 * 1024
    request = encode_command(("ECHO", b"x" * size))
    with AnabranchServer() as server, server.client() as client:
        before = rss_bytes(server)
        with Canary(server) as canary, server.client() as lazy:
            lazy.socket.settimeout(0.3)
            sent = sent_until_refused(lazy.socket, request)
            assert sent < SENT_BYTES_MAX, "the server took all of it"
            assert rss_bytes(server) - before < 32 << 20
            assert number(client, "connected_clients") == 3
            lazy.timeout = 60.0
            whole, part = divmod(sent, len(request))
            for _ in range(whole):
                assert lazy.read_reply() == ("$", b"x" * size)
            lazy.send_raw(request[part:] if part else b"")
            if part:
                assert lazy.read_reply() == ("$", b"x" * size)
            assert lazy.call("PING") == ("+", b"PONG")
        canary.check(CANARY_SECONDS)
        assert not mistakes(server)


@pytest.mark.skipif(not has_proc(), reason="looks at the process under /proc")
def test_one_burst_of_large_reads_is_worked_off_as_it_is_read() -> None:
    """Two thousand replies of half a megabyte: made slice by slice, all of them delivered."""
    count, size = 2000, 500_000
    with AnabranchServer() as server, server.client() as client:
        client.call("XADD", "s", "1-1", "f", b"x" * size)
        before = rss_bytes(server)
        with Canary(server) as canary, server.client() as lazy:
            lazy.send_raw(encode_command(["XRANGE", "s", "-", "+"]) * count)
            lazy.send_raw(encode_command(["PING"]))
            wait_until(lambda: number(client, "total_net_output_bytes") > 4 * size, "replies")
            lazy.timeout = 60.0
            reader = hiredis.Reader()
            replies = 0
            while replies <= count:
                reader.feed(lazy.socket.recv(1 << 20))
                while (reply := reader.gets()) is not False:
                    assert reply == (
                        b"PONG" if replies == count else [[b"1-1", [b"f", b"x" * size]]]
                    )
                    replies += 1
            assert rss_bytes(server) - before < 64 << 20
        canary.check(CANARY_SECONDS)
        assert not mistakes(server)


@pytest.mark.skipif(not has_proc(), reason="looks at the process under /proc")
def test_a_subscriber_that_does_not_read_is_closed_at_its_limit() -> None:
    limit = "pubsub 4mb 2mb 1"
    with AnabranchServer(extra=["--client-output-buffer-limit", limit]) as server:
        with server.client() as client, server.client() as lazy, server.client() as eager:
            for subscriber in (lazy, eager):
                subscriber.call("SUBSCRIBE", "news")
            before = rss_bytes(server)
            message = b"x" * 100_000
            heard = 0
            with Canary(server) as canary:
                for _ in range(2000):
                    kind, receivers = client.call("PUBLISH", "news", message)
                    assert kind == ":"
                    assert eager.read_reply()[1][2] == ("$", message)
                    heard += 1
                    if receivers == 1:
                        break
            assert heard < 2000, "the lazy subscriber was kept"
            assert rss_bytes(server) - before < 32 << 20
            with pytest.raises((ConnectionLost, ConnectionError)):
                read_to_the_end(lazy)
            assert client.call("PUBSUB", "NUMSUB", "news")[1][1] == (":", 1)
            canary.check(CANARY_SECONDS)
        assert "client.output_limit" in server.log_text()
        assert not mistakes(server)


def test_a_subscriber_above_its_soft_limit_is_closed_after_a_while() -> None:
    limit = "pubsub 0 1mb 3"
    with AnabranchServer(extra=["--client-output-buffer-limit", limit]) as server:
        with server.client() as client, server.client() as lazy:
            lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.call("SUBSCRIBE", "news")
            started = time.monotonic()
            client.pipeline([("PUBLISH", "news", b"x" * 100_000)] * 150)
            assert number(client, "pubsub_clients") == 1
            wait_until(lambda: number(client, "pubsub_clients") == 0, "closed")
            assert time.monotonic() - started > 2.9
        assert not mistakes(server)
