"""Ten thousand idle connections and a thousand blocked readers at once; and one too many."""

from __future__ import annotations

import os
import resource
import selectors
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from benchmarks.versus_redis.canary import cpu_clock
from tests.support.inspection import (
    has_proc,
    mistakes,
    number,
    open_files,
    rss_bytes,
    wait_until,
)
from tests.support.servers import AnabranchServer
from tests.support.wire import ConnectionLost, Reply, RespClient, encode_command, parse_reply

IDLE = int(os.environ.get("ANABRANCH_IDLE", "10000"))
PER_ADDRESS = 20_000  # the system gives fewer than 28,232 ports to one address
READERS = 500
GROUP_READERS = 500
FILES = 200  # of the test process itself, generously
TOO_MANY = b"ERR max number of clients reached"

pytestmark = pytest.mark.skipif(not has_proc(), reason="looks at the process under /proc")


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    """As many open files for the test and what it starts as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def possible(wanted: int) -> int:
    """How many connections the limit on open files leaves room for."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, hard - FILES - READERS - GROUP_READERS)


@contextmanager
def connected(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Connections that do nothing."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                socket.create_connection(
                    ("127.0.0.1", port), 60, (f"127.0.0.{1 + index // PER_ADDRESS}", 0)
                )
            )
            for index in range(count)
        ]


def replies(sockets: Sequence[socket.socket], seconds: float) -> list[Reply]:
    """One reply from each, all of them within some seconds."""
    deadline = time.monotonic() + seconds
    found: dict[socket.socket, Reply] = {}
    with selectors.DefaultSelector() as selector:
        for each in sockets:
            selector.register(each, selectors.EVENT_READ)
        while len(found) < len(sockets):
            left = deadline - time.monotonic()
            assert left > 0, f"only {len(found)} of {len(sockets)} were answered"
            for key, _ in selector.select(left):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                # Replies here are far smaller than what one packet holds.
                found[sock], _ = parse_reply(sock.recv(65536))
                selector.unregister(sock)
    return [found[each] for each in sockets]


def ping_cpu_ms(server: AnabranchServer, client: RespClient) -> float:
    """What a PING costs the server, in the median: what else the machine does is not in it."""
    assert server.process is not None
    clock = cpu_clock(server.process.pid)
    times = []
    for _ in range(100):
        before = time.clock_gettime(clock)
        assert client.call("PING") == ("+", b"PONG")
        times.append(time.clock_gettime(clock) - before)
    return statistics.median(times) * 1000


def entry(entry_id: Reply, field: str, value: str) -> Reply:
    return ("*", [entry_id, ("*", [("$", field.encode()), ("$", value.encode())])])


def timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def test_ten_thousand_idle_and_a_thousand_blocked(capsys: pytest.CaptureFixture[str]) -> None:
    idle = possible(IDLE)
    limit = str(idle + READERS + GROUP_READERS + 10)
    with AnabranchServer(extra=["--maxclients", limit]) as server, server.client() as client:
        assert client.call("XGROUP", "CREATE", "work", "g", "$", "MKSTREAM") == ("+", b"OK")
        files, memory = open_files(server), rss_bytes(server)
        with connected(server.port, idle):
            wait_until(lambda: number(client, "connected_clients") == idle + 1, "all connected")
            each = (rss_bytes(server) - memory) / idle
            quick_ms = ping_cpu_ms(server, client)
            with (
                connected(server.port, READERS) as readers,
                connected(server.port, GROUP_READERS) as group_readers,
            ):
                for sock in readers:
                    sock.sendall(encode_command(("XREAD", "BLOCK", 0, "STREAMS", "news", "$")))
                for index, sock in enumerate(group_readers):
                    read = ("XREADGROUP", "GROUP", "g", f"c{index}", "COUNT", 1, "BLOCK", 0)
                    sock.sendall(encode_command((*read, "STREAMS", "work", ">")))
                    # One at a time, since who waits longer is served first.
                    waiting = READERS + index + 1
                    wait_until(
                        lambda wanted=waiting: number(client, "blocked_clients") == wanted,
                        "blocked",
                    )
                news, news_seconds = served(client, readers, [("XADD", "news", "*", "f", "extra!")])
                (added,) = news[0]
                expected = ("*", [("*", [("$", b"news"), ("*", [entry(added, "f", "extra!")])])])
                assert news[1] == [expected] * READERS
                work, work_seconds = served(
                    client,
                    group_readers,
                    [("XADD", "work", "*", "task", index) for index in range(GROUP_READERS)],
                )
                for index, (added, reply) in enumerate(zip(*work, strict=True)):
                    one = entry(added, "task", str(index))
                    assert reply == ("*", [("*", [("$", b"work"), ("*", [one])])])
                assert number(client, "blocked_clients") == 0
                pending = client.call("XPENDING", "work", "g")[1]
                assert pending[0] == (":", GROUP_READERS)
                assert len(pending[3][1]) == GROUP_READERS
                busy_ms = ping_cpu_ms(server, client)
        wait_until(lambda: number(client, "connected_clients") == 1, "all gone")
        wait_until(lambda: open_files(server) == files, "their files are closed")
        assert not mistakes(server)
    with capsys.disabled():
        print(  # noqa: T201 - figures for whoever runs it
            f"\n{idle} idle connections: {each / 1024:.1f} KiB each; PING {quick_ms:.2f} ms, "
            f"with readers {busy_ms:.2f} ms, both of CPU; {READERS} XREAD woken in "
            f"{news_seconds:.3f} s, {GROUP_READERS} XREADGROUP in {work_seconds:.3f} s"
        )
    assert each < 16 * 1024
    assert quick_ms < 20
    assert busy_ms < 20


def served(
    client: RespClient, sockets: Sequence[socket.socket], commands: list[tuple[object, ...]]
) -> tuple[tuple[list[Reply], list[Reply]], float]:
    """What the commands answer, what the waiting get, and how long that took."""
    started = time.perf_counter()
    added = client.pipeline(commands)
    received = replies(sockets, 60)
    return (added, received), time.perf_counter() - started


def test_one_client_too_many_is_told_so() -> None:
    with AnabranchServer(extra=["--maxclients", "3"]) as server, server.client() as client:
        with connected(server.port, 2):
            wait_until(lambda: number(client, "connected_clients") == 3, "three clients")
            rejected = number(client, "rejected_connections")
            with server.client() as refused:
                assert refused.read_reply() == ("-", TOO_MANY)
                with pytest.raises(ConnectionLost):
                    refused.read_reply()
            assert number(client, "rejected_connections") == rejected + 1
            assert number(client, "connected_clients") == 3
        wait_until(lambda: number(client, "connected_clients") == 1, "room again")
        with server.client() as welcome:
            assert welcome.call("PING") == ("+", b"PONG")


def test_refused_clients_leave_nothing_behind() -> None:
    with AnabranchServer(extra=["--maxclients", "1"]) as server, server.client() as client:
        client.call("PING")  # it is accepted, and counts
        files = open_files(server)
        for _ in range(500):
            with server.client() as refused:
                assert refused.read_reply() == ("-", TOO_MANY)
        wait_until(lambda: open_files(server) == files, "their files are closed")
        assert number(client, "connected_clients") == 1
        assert number(client, "rejected_connections") == 500


def test_the_limit_can_be_raised_while_clients_wait_outside() -> None:
    with AnabranchServer(extra=["--maxclients", "1"]) as server, server.client() as client:
        with server.client() as refused:
            assert refused.read_reply() == ("-", TOO_MANY)
        assert client.call("CONFIG", "SET", "maxclients", 2) == ("+", b"OK")
        with server.client() as welcome:
            assert welcome.call("PING") == ("+", b"PONG")
