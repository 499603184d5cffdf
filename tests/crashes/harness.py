"""A whole server on a disk in memory, in an event loop whose time and thread pool are ours.

Nothing waits for real time, and a seed decides everything: when a slice of time is over, how long a
sync takes, when the disk fails.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from anabranch.config.settings import Settings
from anabranch.server.admission import ConnectionKind
from anabranch.server.app import Server, Surroundings
from anabranch.server.clock import RealClock
from anabranch.server.connection import ClientConnection
from anabranch.server.driver import LoopDriver
from anabranch.server.gossip import SocketTransport
from anabranch.server.region_links import RegionLinks
from anabranch.simulator.disk import MemoryPlace, MemoryStorage
from anabranch.simulator.driver import SimulatedWorker
from tests.support.wings import WINGS

__all__ = ["VirtualLoop", "Wire", "World"]

TICKS_NS = (200, 1_000, 20_000, 400_000)
SYNCS_S = (0.0, 0.001, 0.02, 0.3, 3.0)


class _Selector(selectors.SelectSelector):
    """Lets time pass instead of waiting."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        assert ready or timeout is not None, "nothing will ever happen"
        if not ready and timeout:
            self.loop.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own."""

    def __init__(self, now_s: float) -> None:
        selector = _Selector()
        selector.loop = self
        self.now_s = now_s
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s


class _Clock:
    """The time of the loop; work takes as long as chance will have it."""

    def __init__(self, loop: VirtualLoop, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self._ticks = 0

    def now_us(self) -> int:
        return 1_700_000_000_000_000 + int(self._loop.now_s * 1_000_000)

    def cpu_ns(self) -> int:
        """Nothing else works on this processor."""
        return self._ticks

    def ticks_ns(self) -> int:
        self._ticks += self._chance.choice(TICKS_NS)
        return self._ticks

    def sleep(self, seconds: float) -> None:
        self._loop.now_s += seconds


class _Driver(LoopDriver):
    """Time of the loop, and work that takes as long as chance will have it."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    def worker(self, name: str) -> SimulatedWorker:
        return SimulatedWorker(lambda over: self.call_later(self._chance.choice(SYNCS_S), over))


class Wire(asyncio.Transport):
    """The client's end of a connection: told what the server writes, as it writes it."""

    def __init__(self, world: World, number: int, told: Callable[[bytes], None]) -> None:
        super().__init__()
        self._world = world
        self._address = ("127.0.0.1", number)
        self._told = told
        self.protocol: ClientConnection
        self.is_closed = False
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not (self.is_closed or self._world.has_ended):
            self._told(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._address if name in ("peername", "sockname") else default


class World:
    """A server on a disk, for one life of it."""

    def __init__(
        self, disk: MemoryStorage, chance: random.Random, settings: Mapping[str, Any]
    ) -> None:
        self.disk = disk
        self._chance = chance
        self._settings = settings
        self._connected = 0
        self.has_ended = False
        """It has crashed: whatever it does in this turn of the event loop reaches nobody."""
        self.server: Server

    async def start(self) -> None:
        """Recover what the disk holds; in the virtual loop."""
        loop = cast("VirtualLoop", asyncio.get_running_loop())
        self.server = server = Server(
            Settings(port=0, **self._settings),
            WINGS,
            surroundings=Surroundings(
                clock=cast("RealClock", _Clock(loop, self._chance)),
                place=MemoryPlace(self.disk),
                driver=_Driver(self._chance),
            ),
        )
        server.listeners.bind = lambda: None  # type: ignore[method-assign]
        server.listeners.open = lambda: None  # type: ignore[method-assign]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RegionLinks, "bind", lambda _: None)
            patch.setattr(SocketTransport, "open", lambda *_: None)
            await server.start()

    def connect(self, told: Callable[[bytes], None]) -> Wire:
        """A client comes."""
        self._connected += 1
        wire = Wire(self, self._connected, told)
        place = self.server.admission.admit(ConnectionKind.CLIENT, "127.0.0.1")
        assert place is not None
        wire.protocol = ClientConnection(self.server.clients, self.server.node, place)
        wire.protocol.connection_made(wire)
        return wire
