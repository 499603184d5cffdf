"""A region in this process that real ones have taken in: it can send them whatever a test wants."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Self

import msgspec

from anabranch.replication.interface import ReplicationConfig
from anabranch.replication.replicator import Replicator
from anabranch.replication.sealing import stretched
from anabranch.server.gossip import SocketTransport, bound
from tests.support.counted_region import CountedRegion
from tests.support.replication_world import World
from tests.support.servers import free_port

TICK_S = 0.05
ENTER_S = 60.0
SENT_AT_ONCE = 200


class KnownPeer:
    """Use as an asynchronous context manager: entered, it is a member and caught up."""

    def __init__(self, number: int, member_port: int, secret: str) -> None:
        """`member_port`: where a member listens for regions."""
        self._port = free_port()
        self._config = ReplicationConfig(
            name=f"peer{number}",
            host="127.0.0.1",
            port=self._port,
            run_id="one",
            wall_ms=lambda: int(time.time() * 1000),
            join=[("127.0.0.1", member_port)],
            secret=stretched(secret),
        )
        self._local = CountedRegion(World(), number)

    async def __aenter__(self) -> Self:
        self._gossip = SocketTransport(asyncio.get_running_loop())
        self._replicator = Replicator(
            self._local, self._gossip, self._config, random.SystemRandom()
        )
        self._gossip.open(self._replicator, bound("127.0.0.1", self._port))
        self._ticking = asyncio.create_task(self._tick())
        async with asyncio.timeout(ENTER_S):
            await _until(lambda: self._replicator.caught_up)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ticking.cancel()
        self._gossip.shut_down()

    async def _tick(self) -> None:
        while True:
            now_ms = self._gossip.now_ms()
            self._replicator.tick(now_ms)
            self._replicator.appended(now_ms)
            self._local.sync()
            await asyncio.sleep(TICK_S)

    async def flood(self, region: int, make: Callable[[int], msgspec.Struct], count: int) -> None:
        """Send so many frames to a region, and return when it has echoed a row sent after them.

        ``make`` gets the replica ID of that region.
        """
        links = self._replicator.links
        async with asyncio.timeout(ENTER_S):
            await _until(lambda: links.session_of(region) is not None)
            session = links.session_of(region)
            assert session is not None
            for sent in range(count):
                links.send(session, make(session.replica_id))  # type: ignore[arg-type]
                if sent % SENT_AT_ONCE == 0:
                    await asyncio.sleep(0)
            sent_ms = self._gossip.now_ms()
            await _until(lambda: session.row_sent_ms > sent_ms)
            stamp = session.row_sent_ms
            await _until(lambda: not session.unechoed or session.unechoed[0] > stamp)
            assert links.session_of(region) is session, "the link was lost"


async def _until(it_is_so: Callable[[], bool]) -> None:
    while not it_is_so():  # noqa: ASYNC110 - nobody tells of it
        await asyncio.sleep(TICK_S)
