"""TLS handshakes that stop at any byte, come a byte at a time, or are damaged: they harm nobody."""

from __future__ import annotations

import random
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.versus_redis.floods import certificate_options
from tests.support.inspection import mistakes, number, open_files, wait_until
from tests.support.servers import AnabranchServer, free_port

RESET = struct.pack("ii", 1, 0)


class TlsServer(AnabranchServer):
    """With a TLS port besides."""

    def __init__(self, directory: Path) -> None:
        self.tls_port = free_port()
        super().__init__(directory, certificate_options(directory, self.tls_port))

    def answers(self) -> bool:
        """Whether a sound client is served over TLS."""
        sock = socket.create_connection(("127.0.0.1", self.tls_port), 60)
        with sock, _context().wrap_socket(sock) as tls:
            tls.sendall(b"PING\r\n")
            return tls.recv(100) == b"+PONG\r\n"


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TlsServer]:
    with TlsServer(tmp_path) as server:
        yield server
        assert mistakes(server) == []


def flights(port: int) -> list[bytes]:
    """What a client sends in a handshake and with a PING after it, each time it waits."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = _context().wrap_bio(incoming, outgoing)
    found = []
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        for step in (tls.do_handshake, lambda: tls.write(b"PING\r\n")):
            while True:
                try:
                    step()
                    break
                except ssl.SSLWantReadError:
                    found.append(outgoing.read())
                    sock.sendall(found[-1])
                    incoming.write(sock.recv(1 << 16))
        found.append(outgoing.read())
    return found


def test_they_stop_at_each_byte(server: TlsServer) -> None:
    with server.client() as client:
        hello = flights(server.tls_port)[0]
        before = open_files(server)
        for end in range(len(hello)):
            with socket.create_connection(("127.0.0.1", server.tls_port), 60) as sock:
                sock.sendall(hello[:end])
                if end % 2:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        assert client.call("PING") == ("+", b"PONG")
        assert server.answers()
        wait_until(lambda: open_files(server) <= before, "all of them are closed")
        wait_until(lambda: number(client, "connected_clients") == 1, "none is left")


def test_they_come_a_byte_at_a_time_while_others_are_served(server: TlsServer) -> None:
    slow = socket.create_connection(("127.0.0.1", server.tls_port), 60)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = _context().wrap_bio(incoming, outgoing)

    def crawl(data: bytes) -> None:
        for at in range(len(data)):
            slow.sendall(data[at : at + 1])
            if at % 100 == 0:
                assert server.answers()

    with slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                crawl(outgoing.read())
                incoming.write(slow.recv(1 << 16))
        tls.write(b"PING\r\n")
        crawl(outgoing.read())
        while True:
            try:
                assert tls.read() == b"+PONG\r\n"
                break
            except ssl.SSLWantReadError:
                incoming.write(slow.recv(1 << 16))


def test_they_are_damaged(server: TlsServer) -> None:
    rng = random.Random(3)
    with server.client() as client:
        sent = b"".join(flights(server.tls_port))
        before = open_files(server)
        for _ in range(300):
            damaged = bytearray(sent)
            for _ in range(rng.randint(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            sock = socket.create_connection(("127.0.0.1", server.tls_port), 60)
            with sock, suppress(OSError):
                sock.sendall(damaged)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 16):
                    pass
        assert client.call("PING") == ("+", b"PONG")
        assert server.answers()
        wait_until(lambda: open_files(server) <= before, "all of them are closed")
