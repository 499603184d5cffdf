"""One server in a thread of the test process."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

from anabranch.testing.clock import Clock
from anabranch.testing.contents import contents
from anabranch.testing.disk import Disk
from anabranch.testing.seen import Seen
from anabranch.testing.startable import HOST, CommandFailedError, OwnDirectory, Startable, Word
from anabranch.testing.worker import LoopThread

if TYPE_CHECKING:
    from anabranch.server.app import Server as LiveServer

__all__ = ["RUNNING", "CommandFailedError", "Server"]

RUNNING: Final[dict[int, Server]] = {}
"""All servers of this process that run, by their ports."""

# A program that does not configure logging shall not see events on stderr.
logging.getLogger("anabranch").addHandler(logging.NullHandler())


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
        live = _living().new_live(self._words(), loop_name, self.clock, self.seed, self.disk)
        settings = live.settings
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
            given["port"] = self.port or _living().free_port(with_gossip=True)
        elif self._unix:
            given["port"] = self.port or _living().free_port()  # with a socket, 0 means no port
        if self._unix:
            given["unixsocket"] = self.unix_path = str(own.path / "socket")
        given |= {name.replace("_", "-"): value for name, value in self._given.items()}
        return [f"--{name}={_text(value)}" for name, value in given.items()]

    async def _stop_when_asked(self, live: LiveServer) -> None:
        """SHUTDOWN ends a server as it ends a process."""
        patient = await live.stop_requested()
        self._live = None
        await _living().stop(live, patient=patient)

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
        await _living().crash(live)

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
        """``unix://`` and the path of its Unix socket, which it has if ``unix=True`` was given."""
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
        return self.call(lambda live: _living().execute(live, words))

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
            _living().execute(live, ("CLIENT", "UNPAUSE"))

        self.call(end_faults)  # in a turn of its own: what the pause held back runs before the next
        self.execute("FLUSHALL")
        self._seen.clear()

    def fail_next(self, command: str, error: str, times: int = 1) -> None:
        """Answer the next calls of a command with an error, instead of running it.

        `command` is a name, or a name and a sub-command (``XGROUP CREATE``); an error begins with
        its code: ``ERR``, ``LOADING``, ``OOM``.
        """
        self.call(lambda live: _living().arm(live, command, error, times))

    def kill_worker(self, key: Word, group: Word, consumer: Word) -> int:
        """Break the connections of a worker, as when its process dies; returns how many there were.

        Those are meant that have used the name of the consumer on a group with a ``lease`` or a
        ``consumer-ttl``: of other groups the server does not know whose connections are whose. A
        client that is still there sees a lost connection.
        """
        cut: set[int] = self.call(lambda live: _living().kill_worker(live, key, group, consumer))
        while self.call(lambda live: cut & live.region.sessions.keys()):
            pass  # the event loop tells of the end of a connection in a later turn
        return len(cut)

    def _write_again(self) -> None:
        with suppress(RuntimeError):  # it is not running
            self.call(lambda live: live.node.durability.try_again())

    def _look_at_time(self) -> None:
        with suppress(RuntimeError):  # it is not running
            self.call(_living().look_at_time)

    # -- looking inside -----------------------------------------------------------------------

    @property
    def commands(self) -> list[str]:
        """The newest commands of all clients, oldest first, as MONITOR shows them.

        Long arguments are shortened.
        """
        return self._seen.lines()

    @property
    def seen_count(self) -> int:
        """How many commands clients have sent since the start."""
        return self._seen.count

    def commands_since(self, count: int) -> list[str]:
        """`commands` without those among the first ``count`` ones that clients sent."""
        return self._seen.lines(count)

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
                lambda *words, database=0: _living().execute(live, words, database=database)
            )
        )
        return found

    def __repr__(self) -> str:
        """Where it is, and how to repeat it."""
        state = self.url if self.is_running else "not running"
        return f"<anabranch.testing.Server {state}, seed {self.seed}>"


def _living() -> ModuleType:
    """What a started server needs; who only imports the kit does not wait for it."""
    from anabranch.testing import living  # noqa: PLC0415

    return living


async def _ended(task: asyncio.Task[None]) -> None:
    with suppress(asyncio.CancelledError):
        await task


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
