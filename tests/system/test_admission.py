"""Strangers on every listener at once shut nobody out: one budget, deadlines, a reserve."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trustme

from anabranch.server.admission import FILES_MIN
from tests.support import region_certificates
from tests.support.inspection import has_proc, mistakes, open_files, wait_until
from tests.support.servers import AnabranchServer, free_port
from tests.support.wire import ConnectionLost

FILES = 200
"""Descriptors that the server may have."""

pytestmark = pytest.mark.skipif(not has_proc(), reason="looks at the process under /proc")


class NarrowServer(AnabranchServer):
    """A region with TLS and the availability API, and few descriptors."""

    def __init__(self, directory: Path, extra: list[str], files: int) -> None:
        super().__init__(directory, extra)
        self.files = files
        self.tls_port, self.gossip_port, self.http_port = free_port(), free_port(), free_port()

    def command(self) -> list[str]:
        ports = (
            *("--tls-port", str(self.tls_port), "--gossip-port", str(self.gossip_port)),
            *("--http-port", str(self.http_port), "--availability-api", "yes"),
        )
        limited = f'ulimit -n {self.files}; exec "$@"'
        return ["sh", "-c", limited, "sh", *super().command(), *ports]


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[NarrowServer]:
    authority = trustme.CA()
    (tmp_path / "data").mkdir()
    region_certificates.write(tmp_path / "data", authority, authority, "localhost")
    tls = ("--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem", "--tls-auth-clients", "no")
    region = ("--region-id", "1", "--cluster-create", "yes", "--handshake-timeout", "2")
    with NarrowServer(tmp_path, [*tls, *region], getattr(request, "param", FILES)) as started:
        started.wait_for_writes()
        yield started


def knock(stack: ExitStack, port: int, count: int, sent: bytes = b"") -> list[socket.socket]:
    """Connections that say this and wait."""
    made = []
    for _ in range(count):
        sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
        made.append(sock)
        if sent:
            sock.sendall(sent)
    return made


def is_closed(sock: socket.socket) -> bool:
    """Whether the server has ended a connection."""
    sock.settimeout(0.001)
    try:
        while sock.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def unknown_frame() -> bytes:
    return struct.pack("<IB", 5, 250) + b"what"


def tls_ping(server: NarrowServer) -> bytes:
    context = ssl.create_default_context(cafile=str(server.directory / "data" / "ca.pem"))
    with (
        socket.create_connection(("localhost", server.tls_port), 60) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as secure,
    ):
        secure.sendall(b"PING\r\n")
        return secure.recv(100)


def availability(server: NarrowServer) -> bytes:
    with socket.create_connection(("127.0.0.1", server.http_port), 60) as sock:
        sock.sendall(b"GET /v1/bdbs HTTP/1.1\r\nHost: x\r\n\r\n")
        return sock.recv(1000)


def test_strangers_on_every_listener_shut_nobody_out(server: NarrowServer) -> None:
    with server.client() as client, ExitStack() as stack:
        assert client.call("PING") == ("+", b"PONG"), "the server has its descriptor"
        before = open_files(server)
        half_open = knock(stack, server.tls_port, 250)
        silent = knock(stack, server.gossip_port, 250)
        slow = knock(stack, server.http_port, 250, b"GET /")
        assert open_files(server) < FILES - 20, "the server's own share is gone"
        # Clients come in, the data is written, snapshots too.
        with server.client() as other:
            assert other.call("XADD", "s", "*", "f", "v")[0] == "$"
        assert client.call("SAVE") == ("+", b"OK")
        assert client.call("BGSAVE")[0] == "+"
        wait_until(
            lambda: all(map(is_closed, half_open + silent + slow)), "who does not greet must go"
        )
        wait_until(lambda: open_files(server) <= before + 1, "their descriptors are free")
        assert tls_ping(server) == b"+PONG\r\n"
        assert availability(server).startswith(b"HTTP/1.1 200 ")
    lines = server.log_text().count("listener.full")
    assert 1 <= lines < 30, "one line a second for each listener"
    assert not mistakes(server)


def test_a_gossip_link_that_never_greets_is_closed_whatever_it_sends(server: NarrowServer) -> None:
    with socket.create_connection(("127.0.0.1", server.gossip_port), 60) as sock:
        frames = 0

        def goes_on() -> bool:
            nonlocal frames
            try:
                sock.sendall(unknown_frame())
            except OSError:
                return True
            frames += 1
            return is_closed(sock)

        wait_until(goes_on, "it is still there")
    assert not mistakes(server)


def test_clients_that_fill_every_place_leave_the_server_its_own(server: NarrowServer) -> None:
    with server.client() as client, ExitStack() as stack:
        knock(stack, server.port, 400)
        assert client.call("XADD", "s", "*", "f", "v")[0] == "$"
        assert client.call("SAVE") == ("+", b"OK")
        assert availability(server).startswith(b"HTTP/1.1 200 ")
        with server.client(timeout=10) as late, suppress(ConnectionLost, OSError):
            assert late.call("PING") == ("-", b"ERR max number of clients reached")
        assert open_files(server) < FILES - 20
    wait_until(lambda: open_files(server) < 60, "their descriptors are free")
    with server.client() as welcome:
        assert welcome.call("PING") == ("+", b"PONG")
    assert not mistakes(server)


@pytest.mark.parametrize("server", [FILES_MIN], indirect=True)
def test_the_fewest_descriptors_with_which_it_starts_are_enough(server: NarrowServer) -> None:
    with server.client() as client, ExitStack() as stack:
        assert client.call("CONFIG", "SET", "oplog-segment-bytes", "4096") == ("+", b"OK")
        for port in (server.port, server.tls_port, server.gossip_port, server.http_port):
            knock(stack, port, FILES_MIN)
        for _ in range(30):
            assert client.call("XADD", "s", "*", "f", os.urandom(500))[0] == "$"
        assert client.call("SAVE") == ("+", b"OK")
        assert client.call("WAITAOF", 1, 0, 0) == ("*", [(":", 1), (":", 0)])
    assert "accept_failed" not in server.log_text()
    assert not mistakes(server)


def test_a_region_is_let_in_while_strangers_besiege_the_gossip_port(
    server: NarrowServer, tmp_path: Path
) -> None:
    (tmp_path / "second").mkdir()
    known = f"127.0.0.1:{server.gossip_port}"
    second = AnabranchServer(
        tmp_path / "second",
        ("--region-id", "2", "--gossip-port", str(free_port()), "--join", known),
    )
    with ExitStack() as stack:
        knock(stack, server.gossip_port, 100)
        with second:
            second.wait_for_writes()
            with second.client() as client:
                assert client.call("XADD", "s", "*", "f", "v")[0] == "$"
            with server.client() as client:
                wait_until(lambda: client.call("XLEN", "s") == (":", 1), "it arrives")


def test_without_any_descriptor_the_port_opens_again(tmp_path: Path) -> None:
    """The limit is taken away under the running server, as an operator might do."""
    with AnabranchServer(tmp_path) as server, server.client() as client, ExitStack() as stack:
        client.call("PING")
        assert server.process is not None
        pid = str(server.process.pid)
        files = open_files(server)
        limit = ["prlimit", "--pid", pid, f"--nofile={files}:"]
        try:
            subprocess.run(limit, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("needs prlimit")
        waiting = knock(stack, server.port, 20, b"PING\r\n")
        wait_until(lambda: "listener.accept_failed" in server.log_text(), "it notices")
        assert client.call("PING") == ("+", b"PONG")
        subprocess.run(
            ["prlimit", "--pid", pid, f"--nofile={files + 100}:"], check=True, capture_output=True
        )
        for sock in waiting:
            sock.settimeout(60)
            assert sock.recv(100) == b"+PONG\r\n"
        assert server.log_text().count("listener.accept_failed") < 10
        assert not mistakes(server)


def test_who_does_not_log_in_has_to_go(tmp_path: Path) -> None:
    with AnabranchServer(tmp_path) as server, server.client() as client, ExitStack() as stack:
        assert client.call("CONFIG", "SET", "requirepass", "pw", "auth-timeout", 1) == ("+", b"OK")
        knows = stack.enter_context(server.client())
        assert knows.call("AUTH", "pw") == ("+", b"OK")
        guesses = stack.enter_context(server.client())
        assert guesses.call("AUTH", "guess")[0] == "-"
        strangers = [*knock(stack, server.port, 20, b"PING\r\n"), guesses.socket]
        wait_until(lambda: all(map(is_closed, strangers)), "they must go")
        for friend in (client, knows):
            assert friend.call("PING") == ("+", b"PONG")
