"""A whole server in the event loop of the test, on a disk in memory.

The disk syncs when the test lets it, and fails when told to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hiredis
import pytest

from anabranch.config.settings import Settings
from anabranch.server.app import Server, Surroundings
from anabranch.server.stop import orderly_stop
from anabranch.simulator.disk import MemoryPlace, MemoryStorage
from tests.support.gated_storage import GatedStorage
from tests.support.logged_server import recovered
from tests.support.recorder import everything_in
from tests.support.wings import WINGS
from tests.support.wire import encode_command

__all__ = ["Client", "World", "turns", "until"]

SECONDS = 60.0


class Client:
    """One connection to the server in the same event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._replies = hiredis.Reader()

    def send(self, *lines: str) -> None:
        """Send lines in one packet."""
        self._writer.write(b"".join(encode_command(line.split()) for line in lines))

    async def reply(self) -> Any:
        """The next reply; an error is returned, the end of the connection raises EOFError."""
        async with asyncio.timeout(SECONDS):
            while (reply := self._replies.gets()) is False:
                data = await self._reader.read(1 << 16)
                if not data:
                    raise EOFError
                self._replies.feed(data)
        return reply

    async def do(self, line: str) -> Any:
        """Send a line; its reply."""
        self.send(line)
        return await self.reply()

    async def has_nothing(self) -> bool:
        """Whether no reply has come, although everybody had time to give one."""
        await turns()
        return not (self._reader._buffer or self._replies.has_data())  # type: ignore[attr-defined]

    async def is_closed(self) -> bool:
        """Whether the server ends the connection without another word."""
        try:
            reply = await self.reply()
        except (EOFError, ConnectionResetError):
            return True
        raise AssertionError(f"a reply: {reply!r}")

    def close(self) -> None:
        self._writer.close()


async def turns(count: int = 20) -> None:
    """Let the event loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(it_is_so: Callable[[], object]) -> None:
    """Let the event loop go round until it is so."""
    async with asyncio.timeout(SECONDS):
        while not it_is_so():  # noqa: ASYNC110 - what it asks knows no events
            await asyncio.sleep(0.001)


class World:
    """A server, its disk, and what it writes to its log."""

    def __init__(self, directory: Path, logs: pytest.LogCaptureFixture) -> None:
        self._path = str(directory / "socket")
        self._clients: list[Client] = []
        self._logs = logs
        self.disk = GatedStorage()
        self.server: Server

    async def start(self, appendfsync: str = "always", **settings: Any) -> None:
        """Start on the present disk."""
        self.server = Server(
            Settings(
                port=0,
                unixsocket=self._path,
                appendfsync=appendfsync,
                enable_debug_command="yes",
                **settings,
            ),
            WINGS,
            surroundings=Surroundings(place=MemoryPlace(self.disk)),
        )
        await self.server.start()

    async def stop(self) -> None:
        self.disk.faults.clear()
        self.disk.let_all_sync()
        for client in self._clients:
            client.close()
        await orderly_stop(self.server, patient=False)
        self.server.persistence.close()
        await turns()

    async def client(self) -> Client:
        client = Client(*await asyncio.open_unix_connection(self._path))
        self._clients.append(client)
        return client

    async def clients(self, count: int) -> list[Client]:
        return [await self.client() for _ in range(count)]

    async def sync_begins(self) -> None:
        """Wait until a sync has come to the gate."""
        await until(lambda: self.disk.syncing.acquire(blocking=False))

    def events(self) -> list[str]:
        """What the operator's log says."""
        return [record.getMessage() for record in self._logs.records]

    def keys_on_disk(self) -> set[bytes]:
        """The keys that a start after a kill would find in database 0."""
        keyspace, _ = recovered(MemoryStorage(self.disk.files()))
        return set(keyspace.databases[0].values)

    def check_recovery(self) -> None:
        """What is on the disk is all there is."""
        keyspace, _ = recovered(MemoryStorage(self.disk.files()))
        assert everything_in(keyspace) == everything_in(self.server.region.keyspace)
