"""A TCP proxy that misbehaves on demand: cuts, delays, resets, goes silent, is narrow.

One thread with an event loop carries everything. A connection is known by who opened it, which the
first bytes tell, and by the address it was opened to; what is done to it can be changed at any
time, for what is open and for what will be.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

Identify = Callable[[bytes], str]
_CHUNK = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER that throws away what is unsent, and says so


@dataclass(frozen=True)
class Weather:
    """What is done to the connections between two sides."""

    cut: bool = False  # none is open, none can be opened
    silent: bool = False  # bytes vanish and nobody is told: half-open connections
    delay_s: float = 0.0
    bytes_per_s: float = 0.0  # 0 is no limit


FAIR = Weather()


class _Connection:
    """Two sockets, and who is at their ends."""

    def __init__(self, proxy: Proxy, target: str, peer: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.ends = frozenset({target})
        self.lost = False  # bytes have vanished: what follows could not be made sense of
        self.writers = [peer]

    def weather(self) -> Weather:
        return self.proxy.weather.get(self.ends, FAIR)

    def reset(self) -> None:
        for writer in self.writers:
            sock = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


class Proxy:
    """Stands in front of several servers; use as a context manager."""

    def __init__(self, identify: Identify) -> None:
        """`identify` names whoever sent these first bytes."""
        self.identify = identify
        self.weather: dict[frozenset[str], Weather] = {}
        self.carried = 0  # bytes
        self._open: set[_Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._targets: dict[str, tuple[str, int]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- from other threads -------------------------------------------------------------------

    def stand_before(self, name: str, listen: tuple[str, int], target: tuple[str, int]) -> None:
        """Listen there, and connect whoever comes with the target, which has this name."""
        self.lead(name, target)

        async def listen_() -> None:
            server = await asyncio.start_server(
                lambda reader, writer: self._carry(name, reader, writer), *listen
            )
            self._servers.append(server)

        self._do(listen_())

    def lead(self, name: str, target: tuple[str, int]) -> None:
        """Connect whoever comes from now on with another target; what is open stays."""
        self._targets[name] = target

    def set(self, one: str, other: str, weather: Weather) -> None:
        """Change what is done between two sides."""
        ends = frozenset({one, other})

        async def change() -> None:
            self.weather[ends] = weather
            for each in list(self._open):
                if each.ends == ends and (weather.cut or (each.lost and not weather.silent)):
                    each.reset()

        self._do(change())

    def reset(self, one: str, other: str) -> None:
        """Break what is open now; it may be opened again."""
        ends = frozenset({one, other})

        async def break_() -> None:
            for each in list(self._open):
                if each.ends == ends:
                    each.reset()

        self._do(break_())

    def clear(self) -> None:
        """Do nothing any more."""
        for ends in list(self.weather):
            self.set(*ends, FAIR)

    def _do(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)  # type: ignore[arg-type]

    # -- in the loop --------------------------------------------------------------------------

    async def _shut_down(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for each in list(self._open):
            each.reset()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Until one side ends; what is on its way to the other then is lost."""
        connection = _Connection(self, name, writer)
        with suppress(OSError):
            first = await reader.read(_CHUNK)
            connection.ends = frozenset({name, self.identify(first)})
            if first and not connection.weather().cut:
                far_reader, far_writer = await asyncio.open_connection(*self._targets[name])
                connection.writers.append(far_writer)
                self._open.add(connection)
                try:
                    async with asyncio.TaskGroup() as tasks:
                        self._one_way(tasks, connection, reader, far_writer, first)
                        self._one_way(tasks, connection, far_reader, writer, b"")
                except* OSError:
                    pass
        self._open.discard(connection)
        connection.reset()

    def _one_way(
        self,
        tasks: asyncio.TaskGroup,
        connection: _Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        data: bytes,
    ) -> None:
        """In order, each piece late by the delay of its moment."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

        async def read(data: bytes) -> None:
            while data := data or await reader.read(_CHUNK):
                weather = connection.weather()
                if weather.silent:
                    connection.lost = True
                else:
                    if weather.bytes_per_s:
                        await asyncio.sleep(len(data) / weather.bytes_per_s)
                    await pieces.put((loop.time() + weather.delay_s, data))
                data = b""
            raise ConnectionResetError

        async def write() -> None:
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                writer.write(piece)
                await writer.drain()
                self.carried += len(piece)

        tasks.create_task(read(data))
        tasks.create_task(write())
