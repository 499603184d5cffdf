"""What holds for a listening socket holds for the connections that it accepts."""

from __future__ import annotations

import asyncio
import socket

import pytest

from anabranch.config.settings import Settings
from anabranch.server.admission import Admission
from anabranch.server.driver import loop_factory
from anabranch.server.listener import Listeners
from tests.support.servers import free_port


class Accepted(asyncio.Protocol):
    """Says how often the kernel asks whether the other side is there."""

    def __init__(self, found: asyncio.Queue[tuple[bool, int]]) -> None:
        self._found = found

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        sock = transport.get_extra_info("socket")
        is_on = bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        idle_s = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        self._found.put_nowait((is_on, idle_s))
        transport.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="this system sets no idle time")
def test_accepted_connections_are_probed_as_their_listener_says() -> None:
    settings = Settings()
    settings.port = free_port()
    settings.bind = "127.0.0.1"
    settings.tcp_keepalive = 120

    async def run() -> list[tuple[bool, int]]:
        found: asyncio.Queue[tuple[bool, int]] = asyncio.Queue()
        listeners = Listeners(settings, Admission(), lambda _place: Accepted(found))
        listeners.bind()
        listeners.open()
        seen = []
        for seconds in (120, 0, 2_000_000_000, 60):
            settings.tcp_keepalive = seconds
            listeners.keep_alive_changed()
            _, writer = await asyncio.open_connection("127.0.0.1", settings.port)
            async with asyncio.timeout(60):
                seen.append(await found.get())
            writer.close()
        listeners.close()
        return seen

    with asyncio.Runner(loop_factory=loop_factory()[0]) as runner:
        (first, off, longest, last) = runner.run(run())
    assert first == (True, 120)
    assert not off[0]
    assert longest == (True, 32_767), "Linux takes no more"
    assert last == (True, 60)
