"""What a server under test needs of the server itself.

The first start imports this module: who only imports the kit, as pytest does in every run, does not
wait for the server.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.config.load import load
from anabranch.config.settings import GOSSIP_PORT_ABOVE
from anabranch.engine.leases import LeasePlace
from anabranch.errors import CommandError, ConfigError
from anabranch.node.identity import recall
from anabranch.oplog.storage import LogFile
from anabranch.resp.values import read_value
from anabranch.scripting import new_machine
from anabranch.server.app import Server as LiveServer
from anabranch.server.app import Surroundings
from anabranch.server.disk import DataDirectory, Directory
from anabranch.server.listener import bind_all, bind_free_port
from anabranch.server.stop import abandon, orderly_stop
from anabranch.server.wings import Wings
from anabranch.testing.seen import our_session
from anabranch.testing.startable import HOST, CommandFailedError, Word
from anabranch.web import new_web

if TYPE_CHECKING:
    from anabranch.engine.context import Context
    from anabranch.testing.clock import Clock
    from anabranch.testing.disk import Disk

_TURNS_MAX: Final = 1000
"""Turns after a change of the clock: some seconds, if much is due."""


class LimitedDirectory(Directory):
    """Every write asks first whether there is space; ``require_space`` raises if there is none."""

    def __init__(self, path: Path, require_space: Callable[[], None]) -> None:
        super().__init__(path)
        self._require_space = require_space

    def create(self, name: str) -> LogFile:
        """A file that can be full."""
        return _LimitedFile(super().create(name), self._require_space)

    def append(self, name: str) -> LogFile:
        """A file that is there, and can be full."""
        return _LimitedFile(super().append(name), self._require_space)


class _LimitedFile:
    def __init__(self, file: LogFile, require_space: Callable[[], None]) -> None:
        self._file = file
        self._require_space = require_space
        self.sync = file.sync
        self.truncate = file.truncate
        self.is_there = file.is_there
        self.close = file.close

    def write(self, data: bytes) -> None:
        self._require_space()
        self._file.write(data)


def new_live(words: list[str], loop_name: str, clock: Clock, seed: int, disk: Disk) -> LiveServer:
    """A server that is not started yet; ``words`` are directives as on the command line."""
    loaded = load(words)
    settings = loaded.settings
    recall(loaded, Directory(Path(settings.dir) / settings.appenddirname))
    return LiveServer(
        settings,
        Wings(new_web, new_machine),
        loop_name=loop_name,
        surroundings=Surroundings(
            clock=clock,
            chance=random.Random(seed),  # noqa: S311 - a test wants to be repeated
            place=DataDirectory(settings, lambda path: LimitedDirectory(path, disk.require_space)),
        ),
    )


async def stop(live: LiveServer, *, patient: bool) -> None:
    """End in good order, and free the data."""
    try:
        await orderly_stop(live, patient=patient)
    finally:
        live.close()
        _take_apart(live)


async def crash(live: LiveServer) -> None:
    """End as by ``kill -9``."""
    abandon(live)
    _take_apart(live)
    await asyncio.sleep(0)  # the transports close


def arm(live: LiveServer, command: str, error: str, times: int) -> None:
    """Answer the next calls of a command with an error; see ``Server.fail_next``."""
    words = [word.encode() for word in command.lower().split()]
    entry = live.region.dispatcher.find(words) if words else None
    if entry is None or entry.command.full_name != "|".join(command.lower().split()):
        raise ValueError(f"there is no command {command!r}")
    function = entry.command.function
    left = times

    def fail(ctx: Context, args: list[bytes]) -> bytes | None:
        nonlocal left
        if left <= 0:
            entry.function = function
            assert function is not None
            return function(ctx, args)
        left -= 1
        raise CommandError(error)

    entry.function = fail


def look_at_time(live: LiveServer) -> None:
    """Do all that is due, also what takes several turns of a server."""
    live.node.on_timer()
    for _ in range(_TURNS_MAX):
        if not len(live.region.scheduler):
            break
        live.node.run_turn()


def kill_worker(live: LiveServer, key: Word, group: Word, consumer: Word) -> set[int]:
    """Break the connections that hold a consumer, and return their sessions' numbers."""
    name = LeasePlace(0, _bytes(key), _bytes(group), True, _bytes(consumer))
    region = live.region
    sessions = {
        session_id
        for place, hold in region.leases.holds.items()
        if place._replace(db=0) == name
        for session_id in hold.sessions
    }
    for session_id in sessions:
        connection = region.sessions[session_id].connection
        if connection is not None:
            connection.cut_off()
    return sessions


def free_port(*, with_gossip: bool = False) -> int:
    """A free port; the port on which its region would listen for others is free, too."""
    while True:
        listening = bind_free_port(HOST, 1)
        port: int = listening[0].getsockname()[1]
        try:
            if with_gossip:
                listening += bind_all(HOST, port + GOSSIP_PORT_ABOVE)
        except ConfigError:
            continue
        finally:
            for each in listening:
                each.close()
        return port


def execute(live: LiveServer, words: tuple[Word, ...], *, database: int = 0) -> Any:
    """Run one command as a user who may do everything."""
    region = live.region
    session = our_session(live)
    try:
        session.user = region.acl.users[b"default"].changed(
            [b"on", b"+@all", b"~*", b"&*"], all_channels=True
        )
        session.db = database
        session.resp3 = True
        session.refresh()
        region.execute(session, [[_bytes(word) for word in words]])
        while session.sliced is not None:
            region.scheduler.run_turn()
        snapshots = live.node.persistence.snapshots
        if session.waiter in region.context.waits.inquiries and snapshots.in_progress:  # SAVE
            try:
                snapshots.complete()
            except OSError as problem:
                snapshots.failed(problem)
            region.waking.answer_inquiries()
        reply = (
            read_value(b"".join(session.outbox))
            if session.outbox
            else CommandFailedError("it would wait")
        )
    finally:
        region.close_session(session)
        live.node.end_turn()
    if isinstance(reply, Exception):
        raise CommandFailedError(f"{' '.join(map(str, words))}: {reply}")
    return reply


def _bytes(word: Word) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


def _take_apart(live: LiveServer) -> None:
    """Free the data. Consumers and their pending entries refer to each other, unseen by `gc`."""
    keyspace = live.region.keyspace
    for database in keyspace.databases:
        keyspace.deferred_free.defer(database.clear())
    keyspace.deferred_free.sweep(lambda: False)
