"""How many files an operation enters, and how often it goes from one file to another.

Who follows an operation in the code has to open these files and to turn so many pages. Counted are
calls of functions of ``src``, in the thread of the event loop; ``python -m tests.house.walks``
prints the way of each.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from anabranch.region.waking import Waking
from anabranch.replication.framing import FrameType as Frame
from anabranch.server.gossip import _Link
from anabranch.testing import Server
from tests.support.embedded import World, turns, until
from tests.support.servers import REPOSITORY, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["WALKS", "Walk", "walked"]

ROUNDS: Final = 12
"""A walk is the shortest of so many: the background work of a server may come in between."""

_ROOT: Final = str(REPOSITORY / "src") + "/"
_LENGTH_BYTES: Final = 4  # of a frame, before its type


class Walk(NamedTuple):
    """What one operation passes; the calls are by function."""

    files: int
    moves: int
    calls: Counter[str]


class _Tracer:
    """Counts calls; a move is a call from one of our files to another."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._moves = 0
        self._calls: Counter[str] = Counter()

    def look(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if not _is_ours(code):
            return
        self._files.add(code.co_filename)
        caller = frame.f_back
        while caller is not None and not _is_ours(caller.f_code):
            caller = caller.f_back
        if caller is None or caller.f_code.co_filename != code.co_filename:
            self._moves += 1
            self._calls[f"{code.co_filename.removeprefix(_ROOT)}: {code.co_qualname}"] += 1

    def walk(self) -> Walk:
        return Walk(len(self._files), self._moves, self._calls)

    @contextmanager
    def traced(self) -> Iterator[None]:
        sys.setprofile(self.look)
        try:
            yield
        finally:
            sys.setprofile(None)


def _is_ours(code: CodeType) -> bool:
    """Whether a file of the server has it, and whether it is more than a part of an expression."""
    name = code.co_filename
    return (
        name.startswith(_ROOT)
        and "/simulator/" not in name  # a disk in memory stands for that of the system
        and "/testing/" not in name
        and not code.co_name.startswith("<")
    )


async def _add(world: World) -> list[Walk]:
    """XADD with ``appendfsync always``, from the bytes of the request to those of the reply."""
    await world.start("always")
    world.disk.let_all_sync()
    (client,) = await world.clients(1)
    walks = []
    for _ in range(ROUNDS):
        tracer = _Tracer()
        with tracer.traced():
            await client.do("XADD s * f v")
        walks.append(tracer.walk())
    return walks


async def _blocked(world: World) -> list[Walk]:
    """XREADGROUP that waits: from its bytes until it waits, and from its waking to its reply."""
    await world.start("no")
    reader, writer = await world.clients(2)
    await writer.do("XGROUP CREATE s g $ MKSTREAM")
    walks = []
    for _ in range(ROUNDS):
        tracer = _Tracer()
        serve = Waking.serve

        def served(self: Waking, serve: Any = serve, tracer: _Tracer = tracer) -> None:
            sys.setprofile(tracer.look)
            serve(self)

        with tracer.traced():
            reader.send("XREADGROUP GROUP g c BLOCK 0 STREAMS s >")
            await turns()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Waking, "serve", served)
            await writer.do("XADD s * f v")
            await reader.reply()
        sys.setprofile(None)
        walks.append(tracer.walk())
        await writer.do("XTRIM s MAXLEN 0")
    return walks


async def _remote(world: World) -> list[Walk]:
    """A batch of another region, from its bytes until it is on the disk here and reported."""
    with (
        tempfile.TemporaryDirectory() as directory,
        Server(persist=directory, cluster_create=True, **_region(1)) as other,
    ):
        gossip = await asyncio.to_thread(other.call, _gossip_port)
        await world.start("always", join=f"127.0.0.1:{gossip}", **_region(2))
        world.disk.let_all_sync()
        return await _received(world, other)


def _gossip_port(live: Any) -> int:
    return int(live.links.exchange.gossip_port)


def _region(number: int) -> dict[str, Any]:
    return {"region_id": number, "gossip_port": free_port(), "gossip_secret": "s" * 32}


async def _received(world: World, other: Server) -> list[Walk]:
    links = world.server.links
    assert links is not None
    replicator, local = links.exchange.replicator, links.exchange.local
    await until(lambda: replicator.caught_up)
    tracer = _Tracer()
    received = _Link.data_received

    def look(self: Any, data: bytes) -> None:
        if self._gossip is links.gossip and data[_LENGTH_BYTES : _LENGTH_BYTES + 1] == _BATCH:
            sys.setprofile(tracer.look)
        received(self, data)

    walks = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Link, "data_received", look)
        for _ in range(ROUNDS):
            tracer = _Tracer()
            await asyncio.to_thread(other.execute, "XADD", "s", "*", "f", "v")
            theirs, number = await asyncio.to_thread(other.call, _last)
            await until(lambda at=theirs, n=number: local.durable.get(at, 0) >= n)  # type: ignore[misc]
            await turns(2)
            sys.setprofile(None)
            walks.append(tracer.walk())
    return walks


_BATCH: Final = bytes([Frame.BATCH])


def _last(live: Any) -> tuple[int, int]:
    """The replica ID of a region, and the number of its last effect."""
    replica = live.region.replica
    return replica.own, replica.vector[replica.own]


WALKS: Final[dict[str, Callable[[World], Any]]] = {
    "XADD with appendfsync always": _add,
    "a batch of another region": _remote,
    "a blocked XREADGROUP": _blocked,
}


async def walked(name: str, directory: Path, logs: Any) -> Walk:
    """The shortest walk of an operation."""
    world = World(directory, logs)
    try:
        walks = await WALKS[name](world)
    finally:
        sys.setprofile(None)
        await world.stop()
    whole = [walk for walk in walks if walk.moves]  # a batch may come behind another frame
    return min(whole, key=lambda walk: walk.moves)


def _main() -> None:
    logging.disable()
    for name in WALKS:
        with tempfile.TemporaryDirectory() as directory:
            walk = asyncio.run(walked(name, Path(directory), None))
        lines = [f"  {count:4} {function}" for function, count in sorted(walk.calls.items())]
        sys.stdout.write("\n".join([f"{name}: {walk.files} files, {walk.moves} moves", *lines, ""]))


if __name__ == "__main__":
    _main()
