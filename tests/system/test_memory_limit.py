"""``maxmemory`` counts what data and buffers hold; who leaves takes everything along."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.inspection import has_proc, info, mistakes, number, rss_bytes, wait_until
from tests.support.servers import AnabranchServer
from tests.support.wire import RespClient, encode_command

STRANGERS = 2_000
MEGABYTE = 1 << 20
OOM = ("-", b"OOM command not allowed when used memory > 'maxmemory'.")

pytestmark = pytest.mark.skipif(not has_proc(), reason="looks at the process under /proc")


@pytest.fixture
def server() -> Iterator[AnabranchServer]:
    with AnabranchServer() as started:
        with started.client() as client:
            assert client.call("CONFIG", "SET", "requirepass", "secret") == ("+", b"OK")
        yield started


def login(server: AnabranchServer) -> RespClient:
    client = server.client()
    assert client.call("AUTH", "secret") == ("+", b"OK")
    return client


def test_strangers_that_come_and_go_never_make_writes_fail(server: AnabranchServer) -> None:
    with login(server) as client:
        used = number(client, "used_memory")
        assert client.call("CONFIG", "SET", "maxmemory", used + 16 * MEGABYTE) == ("+", b"OK")
        said = b"*5\r\n" + b"$15000\r\n%b\r\n" % (b"x" * 15_000) * 4  # all that a stranger may say
        for _ in range(STRANGERS // 100):
            with ExitStack() as stack:
                for _ in range(100):
                    stranger = stack.enter_context(
                        socket.create_connection(("127.0.0.1", server.port))
                    )
                    stranger.sendall(said)
                assert client.call("XADD", "s", "*", "f", "v")[0] == "$"
        wait_until(lambda: number(client, "connected_clients") == 1, "they are gone")
        wait_until(lambda: number(client, "used_memory") < used + MEGABYTE, "with all they held")
        assert client.call("XADD", "s", "*", "f", "v")[0] == "$"
    assert not mistakes(server)


def test_what_a_client_held_is_given_back(server: AnabranchServer) -> None:
    with login(server) as client:
        client.call("MEMORY", "PURGE")
        before, used = rss_bytes(server), number(client, "used_memory")
        for _ in range(5):
            with login(server) as other:
                other.send_raw(b"*2\r\n$3\r\nGET\r\n$60000000\r\n" + b"x" * 59_000_000)
                wait_until(
                    lambda: number(client, "used_memory") > used + 55 * MEGABYTE, "it is counted"
                )
            wait_until(lambda: number(client, "used_memory") < used + MEGABYTE, "it is gone")
        assert client.call("MEMORY", "PURGE") == ("+", b"OK")
        wait_until(lambda: rss_bytes(server) < before + 20 * MEGABYTE, "the system has it back")


@pytest.mark.parametrize(
    "held",
    [
        b"*2\r\n$3\r\nGET\r\n$9000000\r\n" + b"x" * 8_000_000,
        encode_command(["MULTI"]) + encode_command(["PING", "x" * 8_000_000]),
        encode_command(["BLPOP", "q", 0]) + encode_command(["PING", "x" * 8_000_000]),
    ],
    ids=["unfinished", "multi", "backlog"],
)
def test_buffers_count_while_they_are_held(server: AnabranchServer, held: bytes) -> None:
    with login(server) as client:

        def of_clients() -> int:
            return int(info(client, "memory")["mem_clients_normal"])

        wait_until(lambda: of_clients() < MEGABYTE, "clients of other tests have gone")
        limit = number(client, "used_memory") + 4 * MEGABYTE
        with login(server) as other:
            other.send_raw(held)
            wait_until(lambda: of_clients() > 7 * MEGABYTE, "all of it counts")
            assert client.call("CONFIG", "SET", "maxmemory", limit) == ("+", b"OK")
            assert client.call("XADD", "s", "*", "f", "v") == OOM
        wait_until(lambda: client.call("XADD", "s", "*", "f", "v")[0] == "$", "no more")


def test_what_a_client_does_not_read_counts(server: AnabranchServer) -> None:
    with login(server) as client, login(server) as lazy:
        client.call("SET", "big", "x" * 60_000_000)
        used = number(client, "used_memory")
        lazy.send_raw(encode_command(["GET", "big"]))
        wait_until(lambda: number(client, "used_memory") > used + 20 * MEGABYTE, "it counts")


def test_data_is_refused_at_the_limit_and_welcome_below_it(server: AnabranchServer) -> None:
    with login(server) as client:
        used = number(client, "used_memory")
        client.call("CONFIG", "SET", "maxmemory", used + 4 * MEGABYTE)
        added = 0
        while True:
            replies = client.pipeline([("XADD", "s", "*", "f", "v" * 1000)] * 100)
            added += sum(kind == "$" for kind, _ in replies)
            if OOM in replies:
                break
            assert added < 20_000, "the limit does not hold"
        assert added > 2_000
        assert client.call("XRANGE", "s", "-", "+", "COUNT", 1)[0] == "*"
        assert client.call("DEL", "s") == (":", 1)
        assert (
            client.call("XADD", "s", "*", "f", "v")[0] == "$"
        )  # at once, whatever the process's size


def test_used_memory_is_near_the_growth_of_the_process(server: AnabranchServer) -> None:
    """Nothing is gained by compressing, so all is held, beside what the process needs anyway."""
    with login(server) as client:
        before, used = rss_bytes(server), number(client, "used_memory")
        for _ in range(60):
            client.pipeline([("XADD", "s", "*", "field", os.urandom(200)) for _ in range(1000)])
        client.call("MEMORY", "PURGE")
        grown, counted = rss_bytes(server) - before, number(client, "used_memory") - used
        assert 0.4 < counted / grown < 1.6, (counted, grown)


def test_clients_that_hold_most_are_closed(server: AnabranchServer) -> None:
    with login(server) as client, login(server) as spared, login(server) as small:
        client.call("CLIENT", "NO-EVICT", "ON")
        spared.call("CLIENT", "NO-EVICT", "ON")
        spared.call("CLIENT", "SETNAME", "n" * 4 * MEGABYTE)
        small.call("CLIENT", "SETNAME", "n" * 1000)
        greedy = [login(server) for _ in range(3)]
        with ExitStack() as stack:
            for number_of, each in enumerate(greedy):
                stack.enter_context(each)
                each.call("CLIENT", "SETNAME", "n" * (3 + number_of) * MEGABYTE)
            assert client.call("CONFIG", "SET", "maxmemory-clients", "8mb") == ("+", b"OK")
            wait_until(lambda: number(client, "evicted_clients") == 2, "two go")
            wait_until(lambda: number(client, "mem_clients_normal") < 8 * MEGABYTE, "they are gone")
            assert greedy[0].call("PING") == ("+", b"PONG"), "the sum is below the limit by now"
        assert small.call("PING") == spared.call("PING") == ("+", b"PONG")
        assert client.call("CONFIG", "SET", "maxmemory", "100mb") == ("+", b"OK")
        assert client.call("CONFIG", "SET", "maxmemory-clients", "5%") == ("+", b"OK")
        with login(server) as other:
            other.send("CLIENT", "SETNAME", "n" * 2 * MEGABYTE)
            wait_until(lambda: number(client, "evicted_clients") == 3, "a share of maxmemory")
    assert "client.evicted" in server.log_text()


def test_what_clients_hold_counts_and_writes_are_refused(server: AnabranchServer) -> None:
    with login(server) as client:
        used = number(client, "used_memory")
        client.call("CONFIG", "SET", "maxmemory", used + 4 * MEGABYTE)
        with login(server) as other:
            for first in range(0, 20_000, 1000):
                keys = [f"key:{number:06}" for number in range(first, first + 1000)]
                assert other.call("WATCH", *keys) == ("+", b"OK"), "as in Redis"
            assert client.call("XADD", "s", "*", "f", "v") == OOM
            assert client.call("CLIENT", "SETNAME", "me") == ("+", b"OK"), "as in Redis"
            assert other.call("UNWATCH") == ("+", b"OK")
            assert client.call("XADD", "s", "*", "f", "v")[0] == "$"
    assert not mistakes(server)


def test_garbage_of_scripts_does_not_stay_in_the_way(server: AnabranchServer) -> None:
    """No script runs at the limit, so Lua would not collect it by itself."""
    with login(server) as client:
        client.call("EVAL", "return 1", 0)
        limit = number(client, "used_memory") + 4 * MEGABYTE
        script = "local all = {} for at = 1, 200000 do all[at] = 'text ' .. at end return #all"
        assert client.call("EVAL", script, 0) == (":", 200_000)
        assert number(client, "used_memory_lua") > 8 * MEGABYTE
        assert client.call("CONFIG", "SET", "maxmemory", limit) == ("+", b"OK")
        wait_until(lambda: client.call("XADD", "s", "*", "f", "v")[0] == "$", "it is collected")
