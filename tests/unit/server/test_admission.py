"""Places for connections: who gets one, and that each is given back, however it ends."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from anabranch.config.settings import Settings
from anabranch.server.admission import Admission, ConnectionKind, spare_files
from anabranch.server.app import Server
from anabranch.server.driver import loop_factory
from anabranch.server.stop import orderly_stop
from tests.support import region_certificates
from tests.support.servers import free_port
from tests.support.wings import WINGS

SECONDS = 60.0


def admission(files: int) -> Admission:
    made = Admission()
    made.share_out(files)
    return made


def test_shares_of_the_descriptors() -> None:
    assert [spare_files(files) for files in (80, 96, 300, 576, 1024, 1 << 20)] == [
        *(64, 64, 100, 192, 192, 192)
    ]
    made = admission(1024)
    assert made.limit(ConnectionKind.CLIENT) == 1024 - 192 + 16
    assert made.limit(ConnectionKind.HANDSHAKE) == 208
    assert made.limit(ConnectionKind.STRANGER) == made.limit(ConnectionKind.HTTP) == 32


def test_one_address_does_not_get_all_places() -> None:
    made = admission(1024)
    for kind, most in ((ConnectionKind.STRANGER, 8), (ConnectionKind.HTTP, 16)):
        places = [made.admit(kind, "10.0.0.1") for _ in range(20)]
        assert sum(place is not None for place in places) == most
        assert made.admit(kind, "10.0.0.2") is not None
        for place in places:
            if place is not None:
                place.leave()
        assert made.admit(kind, "10.0.0.1") is not None


def test_clients_of_one_address_may_have_all_places() -> None:
    made = admission(100)
    places = [made.admit(ConnectionKind.CLIENT, "10.0.0.1") for _ in range(100)]
    assert sum(place is not None for place in places) == made.limit(ConnectionKind.CLIENT)
    assert made.admit(ConnectionKind.HANDSHAKE, "10.0.0.2") is None, (
        "handshakes take places of clients"
    )
    assert made.admit(ConnectionKind.HTTP, "10.0.0.2") is not None


def test_a_place_changes_its_kind_and_is_left_once() -> None:
    made = admission(1024)
    place = made.admit(ConnectionKind.STRANGER, "10.0.0.1")
    assert place is not None
    place.become(ConnectionKind.PEER)
    assert (made.held[ConnectionKind.STRANGER], made.held[ConnectionKind.PEER]) == (0, 1)
    place.leave()
    place.leave()
    place.become(ConnectionKind.STRANGER)
    assert not +made.held
    assert not made._by_address


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    factory, name = loop_factory()
    if request.param == "asyncio":
        return asyncio.new_event_loop
    if name != "uvloop":
        pytest.skip("no uvloop here")
    return factory


def hello(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 60)
    sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    return sock


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_every_way_to_end_gives_the_place_back(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    authority = trustme.CA()
    region_certificates.write(tmp_path, authority, authority, "localhost")
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    settings = Settings(
        port=free_port(),
        tls_port=free_port(),
        http_port=free_port(),
        availability_api=True,
        tls_cert_file=str(tmp_path / "cert.pem"),
        tls_key_file=str(tmp_path / "key.pem"),
        tls_auth_clients="no",
        handshake_timeout=1,
        appendonly=False,
    )

    def strangers() -> None:
        """Everything that may come, each ending in another way."""
        left: list[socket.socket] = []
        for port in (settings.port, settings.tls_port, settings.http_port):
            reset(socket.create_connection(("127.0.0.1", port), 60))
            socket.create_connection(("127.0.0.1", port), 60).close()
            left.append(socket.create_connection(("127.0.0.1", port), 60))
            noise = socket.create_connection(("127.0.0.1", port), 60)
            noise.sendall(b"\xff" * 1000)
            noise.close()
        reset(hello(settings.tls_port))
        hello(settings.tls_port).close()
        left.append(hello(settings.tls_port))
        for end in (socket.socket.close, reset):
            raw = socket.create_connection(("localhost", settings.tls_port), 60)
            end(context.wrap_socket(raw, server_hostname="localhost"))
        raw = socket.create_connection(("127.0.0.1", settings.tls_port), 60)
        with raw, suppress(OSError):  # it is not trusted
            ssl.create_default_context().wrap_socket(raw, server_hostname="localhost")
        with socket.create_connection(("127.0.0.1", settings.http_port), 60) as http:
            http.sendall(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert http.recv(100).startswith(b"HTTP/1.1 404")
        half = socket.create_connection(("127.0.0.1", settings.http_port), 60)
        half.sendall(b"GET /")
        left.append(half)
        for sock in left[1:]:  # of these the server gets tired
            sock.settimeout(5)
            with suppress(OSError):
                assert sock.recv(1) == b""
            sock.close()
        left[0].close()

    async def visit() -> None:
        server = Server(settings, WINGS)
        await server.start()
        try:
            for _ in range(3):
                await asyncio.to_thread(strangers)
            async with asyncio.timeout(SECONDS):
                while +server.admission.held:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.01)
            assert not server.admission._by_address
            assert not server.connections
        finally:
            await orderly_stop(server, patient=False)
            server.persistence.close()

    run: Callable[[], Awaitable[None]] = visit
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())  # type: ignore[arg-type]
