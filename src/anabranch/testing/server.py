"""One server in a thread of the test process."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import hiredis

from anabranch.config.load import load
from anabranch.config.region_settings import GOSSIP_PORT_ABOVE
from anabranch.engine.context import Context
from anabranch.errors import CommandError, ConfigError
from anabranch.node.identity import recall
from anabranch.scripting import new_machine
from anabranch.server.app import Server as LiveServer
from anabranch.server.app import Surroundings
from anabranch.server.disk import DataDirectory, Directory
from anabranch.server.listener import bind_all, bind_free_port
from anabranch.server.logs import LOGGER
from anabranch.server.stop import abandon, orderly_stop
from anabranch.server.wings import Wings
from anabranch.testing.clock import Clock
from anabranch.testing.contents import contents
from anabranch.testing.directory import OwnDirectory
from anabranch.testing.disk import Disk
from anabranch.testing.seen import Seen, our_session
from anabranch.testing.startable import Startable
from anabranch.testing.worker import LoopThread
from anabranch.web import new_web

HOST: Final = "127.0.0.1"

Word = bytes | str | int | float

RUNNING: Final[dict[int, Server]] = {}
"""All servers of this process that run, by their ports."""

# A program that does not configure logging shall not see events on stderr.
LOGGER.addHandler(logging.NullHandler())


class CommandFailedError(Exception):
    """A command of the test kit got an error as its reply."""


class Server(Startable):
    """A stream server; use it in ``with`` or ``async with``, or call `start` and `close`.

    ``persist`` is the directory of its data, or True for one that is deleted at the end; without it
    data lives in memory. ``settings`` are directives of the configuration with underscores:
    ``Server(maxmemory="10mb", stream_idmp_duration=5)``. ``seed`` decides what is chosen by chance.
    """

    def __init__(
        self,
        *,
        persist: str | Path | bool = False,
        seed: int | None = None,
        unix: bool = False,
        clock: Clock | None = None,
        worker: LoopThread | None = None,
        **settings: Any,
    ) -> None:
        """Nothing is started yet."""
        self.seed = secrets.randbelow(1 << 32) if seed is None else seed
        self.clock = clock or Clock()
        self._has_own_clock = clock is None
        self.disk = Disk(self._write_again)
        self.host = HOST
        self.port = 0
        self.unix_path = ""
        self._login = ""  # of the default user, as an address has it
        self._given = settings
        self._keeps = bool(persist)
        self._kept_in = None if isinstance(persist, bool) else Path(persist).absolute()
        self._unix = unix
        self._shared = worker
        self._worker: LoopThread | None = None
        self._live: LiveServer | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._own: OwnDirectory | None = None
        self._seen = Seen()
        self.clock.on_change(self._look_at_time)

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start; returns itself. A server that was stopped starts with what it had kept."""
        if self._live is not None:
            raise RuntimeError("the server is running")
        is_first = self._own is None
        self._worker = self._shared or LoopThread()
        try:
            self._worker.run(self._begin(self._worker.loop_name))
        except BaseException:
            self._end_worker()
            if is_first:  # a later one leaves the data for another attempt
                self.close()
            raise
        return self

    async def _begin(self, loop_name: str) -> None:
        loaded = load(self._words())
        settings = loaded.settings
        recall(loaded, Directory(Path(settings.dir) / settings.appenddirname))
        live = LiveServer(
            settings,
            Wings(new_web, new_machine),
            loop_name=loop_name,
            surroundings=Surroundings(
                clock=self.clock,
                chance=random.Random(self.seed),  # noqa: S311 - a test wants to be repeated
                place=DataDirectory(settings, self.disk.open_directory),
            ),
        )
        self._seen.watch(live)
        try:
            await live.start()
        except BaseException:
            live.close()
            raise
        self._live = live
        self.port = settings.port
        password = quote(settings.requirepass, safe="")
        self._login = f":{password}@" if password else ""
        RUNNING[self.port] = self
        self._stopping = asyncio.get_running_loop().create_task(self._stop_when_asked(live))

    def _words(self) -> list[str]:
        """The settings as words of a command line."""
        own = self._own = self._own or OwnDirectory()
        directory = self._kept_in or own.path
        directory.mkdir(parents=True, exist_ok=True)
        given: dict[str, object] = {
            "bind": HOST,
            "port": self.port,
            "appendonly": "yes" if self._keeps else "no",
            "appendfsync": "no",
            "enable-debug-command": "yes",
            "dir": directory,
            "appenddirname": "data",
        }
        if "region_id" in self._given:
            given["port"] = self.port or _free_port(with_gossip=True)
        elif self._unix:
            given["port"] = self.port or _free_port()  # with a socket, 0 means no port
        if self._unix:
            given["unixsocket"] = self.unix_path = str(own.path / "socket")
        given |= {name.replace("_", "-"): value for name, value in self._given.items()}
        return [f"--{name}={_text(value)}" for name, value in given.items()]

    async def _stop_when_asked(self, live: LiveServer) -> None:
        """SHUTDOWN ends a server as it ends a process."""
        patient = await live.stop_requested()
        self._live = None
        try:
            await orderly_stop(live, patient=patient)
        finally:
            live.close()
            _take_apart(live)

    def stop(self) -> None:
        """Stop in good order; its data can be used again.

        Nothing happens if it is not running, or in a process that was forked from its own.
        """
        worker, live, stopping = self._worker, self._live, self._stopping
        if worker is None or worker.is_elsewhere:
            return
        try:
            if live is not None:
                worker.call(lambda: live.request_stop("testing", patient=False))
            if stopping is not None:
                worker.run(_ended(stopping))
        finally:
            self._end_worker()

    def crash(self) -> None:
        """End as by ``kill -9``: what was not written to the log is lost, connections break."""
        worker, live = self._worker, self._live
        if worker is None or live is None:
            raise RuntimeError("the server is not running")
        worker.run(self._crash(live))
        self._end_worker()

    async def _crash(self, live: LiveServer) -> None:
        self._live = None
        if self._stopping is not None:
            self._stopping.cancel()
        abandon(live)
        _take_apart(live)
        await asyncio.sleep(0)  # the transports close

    def restart(self) -> Self:
        """Start again at the same address, after `crash` or `stop`, or stop first."""
        self.stop()
        return self.start()

    def _end_worker(self) -> None:
        RUNNING.pop(self.port, None)
        worker, self._worker = self._worker, None
        self._live = self._stopping = None
        if worker is not None and worker is not self._shared:
            worker.close()

    def close(self) -> None:
        """Stop, and delete the directory that was made for it."""
        self.stop()
        self.unix_path = ""
        if self._own is not None:
            self._own.remove()
            self._own = None

    # -- where it is --------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """For any client library: ``redis://127.0.0.1:port``, with ``:password@`` if it has one."""
        return f"redis://{self._login}{self.host}:{self.port}"

    @property
    def unix_url(self) -> str:
        """The same for the Unix socket, which it has if ``unix=True`` was given."""
        return f"unix://{self._login}{self.unix_path}"

    @property
    def is_running(self) -> bool:
        """Whether it takes connections."""
        return self._live is not None

    # -- acting -------------------------------------------------------------------------------

    def execute(self, *words: Word) -> Any:
        """The reply to one command, with bytes as bytes; it needs no connection and no password.

        Raises `CommandFailedError` for an error, also for a command that would wait.
        """
        return self.call(lambda live: _execute(live, words))

    def call(self, function: Callable[[LiveServer], Any]) -> Any:
        """Call a function with the live server in the thread in which it lives."""
        worker, live = self._worker, self._live
        if worker is None or live is None:
            raise RuntimeError("the server is not running: call start()")
        return worker.call(function, live)

    def flush(self) -> None:
        """Delete all data; end a CLIENT PAUSE and what `fail_next` and `Disk.full` have set up.

        A clock of its own follows the system's clock again.
        """
        self.disk.free()
        if self._has_own_clock:
            self.clock.reset()

        def end_faults(live: LiveServer) -> None:
            for entry in live.region.dispatcher.all_entries():
                entry.function = entry.command.function
            _execute(live, ("CLIENT", "UNPAUSE"))

        self.call(end_faults)  # in a turn of its own: what the pause held back runs before the next
        self.execute("FLUSHALL")
        self._seen.clear()

    def fail_next(self, command: str, error: str, times: int = 1) -> None:
        """Answer the next calls of a command with an error, instead of running it.

        `command` is a name, or a name and a sub-command (``XGROUP CREATE``); an error begins with
        its code: ``ERR``, ``LOADING``, ``OOM``.
        """

        def arm(live: LiveServer) -> None:
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

        self.call(arm)

    def _write_again(self) -> None:
        with suppress(RuntimeError):  # it is not running
            self.call(lambda live: live.node.durability.try_again())

    def _look_at_time(self) -> None:
        with suppress(RuntimeError):  # it is not running
            self.call(lambda live: live.node.on_timer())

    # -- looking inside -----------------------------------------------------------------------

    @property
    def commands(self) -> list[str]:
        """The newest commands of all clients, oldest first, as MONITOR shows them.

        Long arguments are shortened.
        """
        return self._seen.lines()

    def statistics(self) -> dict[str, int | float | str]:
        """The fields of ``INFO everything``."""
        text = bytes(self.execute("INFO", "everything")).decode()
        found: dict[str, int | float | str] = {}
        for line in text.splitlines():
            name, colon, value = line.partition(":")
            if colon:
                found[name] = _number(value)
        return found

    def dump(self) -> dict[str, Any]:
        """All data, readable: key to value; see `anabranch.testing.contents`."""
        found: dict[str, Any] = self.call(
            lambda live: contents(
                lambda *words, database=0: _execute(live, words, database=database)
            )
        )
        return found

    def __repr__(self) -> str:
        """Where it is, and how to repeat it."""
        state = self.url if self.is_running else "not running"
        return f"<anabranch.testing.Server {state}, seed {self.seed}>"


def _take_apart(live: LiveServer) -> None:
    """Free the data. Consumers and their pending entries refer to each other, unseen by `gc`."""
    keyspace = live.region.keyspace
    for database in keyspace.databases:
        keyspace.deferred_free.defer(database.clear())
    keyspace.deferred_free.sweep(lambda: False)


async def _ended(task: asyncio.Task[None]) -> None:
    with suppress(asyncio.CancelledError):
        await task


def _free_port(*, with_gossip: bool = False) -> int:
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


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _execute(live: LiveServer, words: tuple[Word, ...], *, database: int = 0) -> Any:
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
        reader = hiredis.Reader()
        reader.feed(b"".join(session.outbox))
        reply = reader.gets() if session.outbox else CommandFailedError("it would wait")
    finally:
        region.close_session(session)
        live.node.end_turn()
    if isinstance(reply, Exception):
        raise CommandFailedError(f"{' '.join(map(str, words))}: {reply}")
    return reply


def _bytes(word: Word) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()
