"""A client that has sent its last byte gets all replies: over TCP and TLS, with every policy."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest

from benchmarks.versus_redis.floods import certificate_options
from tests.support.inspection import mistakes, number, wait_until
from tests.support.servers import AnabranchServer, free_port
from tests.support.wire import encode_command

READ_BYTES = 1 << 16
TIMEOUT_S = 60.0


def started(work: Callable[..., None], *arguments: object) -> threading.Thread:
    """In a thread: the server may answer the first request before it has read the last."""
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    return thread


class TlsHalves:
    """A TLS client that closes its direction (close_notify) and goes on reading."""

    def __init__(self, sock: socket.socket, version: ssl.TLSVersion) -> None:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = version
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        while not self._did(self._tls.do_handshake):
            self._pass_on()
            self._incoming.write(sock.recv(READ_BYTES))
        self._pass_on()

    @staticmethod
    def _did(step: Callable[[], object]) -> bool:
        try:
            step()
        except ssl.SSLWantReadError:
            return False
        return True

    def _pass_on(self) -> None:
        self._sock.sendall(self._outgoing.read())

    def send_and_close(self, data: bytes) -> threading.Thread:
        """All of it and the end arrive together, as far as the system lets them."""
        self._tls.write(data)
        self._did(self._tls.unwrap)
        return started(self._sock.sendall, self._outgoing.read())

    def read(self) -> bytes:
        """Read some; nothing is the end."""
        while True:
            try:
                return self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                more = self._sock.recv(READ_BYTES)
                assert more, "closed without close_notify"
                self._incoming.write(more)
            except ssl.SSLZeroReturnError:
                return b""


class Halves:
    """The same over TCP."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send_and_close(self, data: bytes) -> threading.Thread:
        def send() -> None:
            self._sock.sendall(data)
            self._sock.shutdown(socket.SHUT_WR)

        return started(send)

    def read(self) -> bytes:
        return self._sock.recv(READ_BYTES)


@pytest.fixture(scope="module", params=["everysec", "always"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AnabranchServer]:
    """One that also listens with TLS; what the disk has to do before a reply goes out differs."""
    options = certificate_options(tmp_path_factory.mktemp("tls"), free_port())
    with AnabranchServer(extra=[*options, "--appendfsync", request.param]) as server:
        yield server
        assert not mistakes(server)


def answers(server: AnabranchServer, kind: str, data: bytes) -> bytes:
    """What comes back for all of this, up to the end."""
    port = server.port if kind == "TCP" else int(server.extra[1])
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as sock:
        client = Halves(sock) if kind == "TCP" else TlsHalves(sock, ssl.TLSVersion[kind])
        sender = client.send_and_close(data)
        read = []
        while more := client.read():
            read.append(more)
        sender.join()
        return b"".join(read)


@pytest.mark.parametrize("kind", ["TCP", "TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("count", [1, 300, 20_000])
def test_all_is_answered(server: AnabranchServer, kind: str, count: int) -> None:
    with server.client() as other:
        data = encode_command(("XADD", "s", "*", "f", "v")) * count
        assert answers(server, kind, data).count(b"$") == count
        assert other.call("XLEN", "s") == (":", count)
        wait_until(lambda: number(other, "connected_clients") == 1, "it is gone")
        other.call("DEL", "s")


@pytest.mark.parametrize("kind", ["TCP", "TLSv1_3"])
def test_what_blocks_is_dropped(server: AnabranchServer, kind: str) -> None:
    with server.client() as other:
        data = encode_command(("BLPOP", "l", "0")) + encode_command(("PING",))
        assert answers(server, kind, data) == b""
        wait_until(lambda: number(other, "connected_clients") == 1, "it is gone")
