"""A server: one region, its listeners, its timers.

``Server`` lives inside a running event loop and can be embedded; ``run_server`` is the whole
process: logs, working directory, limits, signals, the ready line, an orderly stop.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, cast

from anabranch.commands.server import config as config_commands
from anabranch.engine.acl.rules import UNCHANGED
from anabranch.errors import AnabranchError, ConfigError
from anabranch.node.identity import recall
from anabranch.node.node import Node
from anabranch.server import process
from anabranch.server.admission import Admission, ConnectionKind
from anabranch.server.block_file import DiskBlockFile
from anabranch.server.clients import Clients
from anabranch.server.clock import RealClock
from anabranch.server.connection import TLS_BYTES, ClientConnection
from anabranch.server.disk import DataDirectory, Directory
from anabranch.server.driver import LoopDriver, loop_factory
from anabranch.server.host import ServerHost
from anabranch.server.http import HttpServer
from anabranch.server.listener import Listeners, warn_of_clients, warn_of_gossip
from anabranch.server.logs import announce, close_logs, emit, emit_sparingly, open_logs
from anabranch.server.memory import Heap, calm_collector, keep_freed_memory
from anabranch.server.stop import install_signal_handlers, orderly_stop
from anabranch.version import __version__

if TYPE_CHECKING:
    from anabranch.config.load import Loaded
    from anabranch.config.settings import Settings
    from anabranch.node.driver import Driver, ProcessDirectory
    from anabranch.region.region import Region
    from anabranch.server.admission import Place as Seat
    from anabranch.server.region_links import RegionLinks
    from anabranch.server.wings import Wings

HZ_MAX: Final = 500
"""The greatest rate of background turns; more would cost time without use."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Clock, randomness, disk and threads of a server: those of the system unless given."""

    clock: RealClock | None = None
    chance: random.Random | None = None
    place: ProcessDirectory | None = None
    driver: Driver | None = None


_SYSTEM: Final = Surroundings()


class Server:
    """One region served over sockets."""

    def __init__(
        self,
        settings: Settings,
        wings: Wings,
        *,
        loaded: Loaded | None = None,
        loop_name: str = "asyncio",
        surroundings: Surroundings = _SYSTEM,
    ) -> None:
        """``loaded`` says which files the settings are from."""
        self.settings = settings
        self.wings = wings
        self.config_file = None if loaded is None else loaded.file
        self.included_users = frozenset() if loaded is None else loaded.included_users
        self.loop_name = loop_name
        self.clock = surroundings.clock or RealClock()
        self.host = ServerHost(self, surroundings.chance or random.SystemRandom())
        driver = surroundings.driver or LoopDriver()
        place = surroundings.place or DataDirectory(settings)
        self.node = Node(settings, self.clock, self.host, driver, place)
        self.region = self.node.region
        self.admission = Admission()
        self.clients = Clients(settings, self.node)
        self.connections = self.clients.connections
        self.persistence = self.node.persistence
        self.durability = self.node.durability
        self.links: RegionLinks | None = None
        if self.region.replica.is_regional:
            from anabranch.server import region_links  # noqa: PLC0415 - most servers are alone

            self.links = region_links.RegionLinks(
                self.region,
                self.durability,
                driver,
                self.admission,
                self.host.run_id,
            )
            self.node.take_part(self.links.exchange)
        self.listeners = Listeners(settings, self.admission, self._new_connection)
        self.http = HttpServer(settings, self.admission, self.node, wings)
        self.heap = Heap()
        self._stop_requested: asyncio.Future[bool] | None = None
        self._cron: asyncio.TimerHandle | None = None
        held = self.admission.held
        self.region.machine_bytes = process.memory_bytes()
        self.region.holdings.measured["handshakes"] = lambda: (
            held[ConnectionKind.HANDSHAKE] * TLS_BYTES
        )
        self.region.holdings.measured["lua"] = self.host.machine_bytes
        self.region.holdings.measured["unwritten"] = self.durability.unwritten_bytes
        self.block_file: DiskBlockFile | None = None
        self.region.tiering.open_file = self._open_block_file
        self.crash: Callable[[str], None] = self.request_stop
        """Ends the server when its memory is not as it should be; called with the reason."""
        self.ready: Callable[[], None] = lambda: None
        """Called in the turn in which the data are complete, before a client can see that."""

    # -- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and recover the data: see :meth:`listen` and :meth:`load`."""
        self.listen()
        await self.load()

    def listen(self) -> None:
        """Take the ports and the directory, listen, start the timers.

        Clients get LOADING for what needs the data, until :meth:`load` has ended. Raises
        :class:`ConfigError`.
        """
        self._stop_requested = asyncio.get_running_loop().create_future()
        self.region.scheduler.drive(self._ask_for_turn)
        config_commands.apply_all(self.region.context)
        self.listeners.bind()
        if self.links is not None:
            self.links.bind()
        load_users(self.region, self.settings)
        self.persistence.begin()
        self.listeners.open()
        self.http.open()
        self._tick()

    async def load(self) -> bool:
        """Recover the data while clients are answered, then link to other regions.

        Returns False if the server was asked to stop before the end. Raises :class:`LogError` and
        :class:`ConfigError`.
        """
        assert self._stop_requested is not None
        scheduler = self.region.scheduler
        steps = self.persistence.load()
        is_over = scheduler.is_over
        finished = asyncio.get_running_loop().create_future()

        def go_on() -> bool:
            try:
                for _ in steps:
                    if is_over():
                        return True
                self._loaded()
            except Exception as problem:  # of the files or of the configuration: see above
                self.region.begin_loading()  # if it had ended: nobody is served without a log
                finished.set_exception(problem)
            else:
                finished.set_result(None)
            return False

        scheduler.schedule(go_on)
        await asyncio.wait([finished, self._stop_requested], return_when=asyncio.FIRST_COMPLETED)
        scheduler.remove(go_on)
        if not finished.done():
            steps.close()
            return False
        finished.result()
        return True

    def _loaded(self) -> None:
        """The data are complete: take over what depends on them, in the same turn."""
        load_kept_users(self.region, self.settings)
        self.clients.users_known()
        if self.links is not None:
            self.links.start()
        self.ready()
        self.node.end_turn()

    def request_stop(self, reason: str, *, patient: bool = True) -> None:
        """Begin to stop; a second request changes nothing."""
        if self._stop_requested is not None and not self._stop_requested.done():
            emit("info", "server.stopping", reason=reason, clients=len(self.connections))
            self._stop_requested.set_result(patient)

    async def stop_requested(self) -> bool:
        """Wait for the request to stop; False if clients must be disconnected at once."""
        assert self._stop_requested is not None
        return await self._stop_requested

    def close(self) -> None:
        """Free what the end of the process would free, after any kind of stop."""
        self.listeners.close()
        if self.links is not None:
            self.links.release()
        self.region.abandon_exclusive()
        self.persistence.close()
        self.host.free_machine()
        self.region.keyspace.block_cache.close()
        if self.block_file is not None:
            self.block_file.close()

    def _new_connection(self, place: Seat) -> asyncio.Protocol:
        return cast("asyncio.Protocol", ClientConnection(self.clients, self.node, place))

    def _open_block_file(self) -> DiskBlockFile:
        self.block_file = DiskBlockFile(self.settings.dir, self._lost_a_block)
        return self.block_file

    def _lost_a_block(self, reason: str) -> None:
        """Go no further with data in memory that are incomplete: the log has all of them."""
        emit("error", "tiering.block_lost", reason=reason)
        self.crash(reason)

    def stop_timers(self) -> None:
        """Stop background work: the tick and the timer of blocked commands."""
        if self._cron is not None:
            self._cron.cancel()
        self.node.stop_timer()

    # -- turns and time -----------------------------------------------------------------------

    def _ask_for_turn(self) -> None:
        asyncio.get_running_loop().call_soon(self.node.run_turn)

    def _tick(self) -> None:
        """Background work, ``hz`` times a second."""
        settings = self.settings
        loop = asyncio.get_running_loop()
        self._cron = loop.call_later(1 / min(max(settings.hz, 1), HZ_MAX), self._tick)
        self.node.tick()
        self.region.sample_rates(self.clock.now_us() // 1000)
        self._sample_memory()
        self.clients.close_overdue()
        self.heap.tick(self.region.keyspace.block_cache.saved)
        self.http.ticked()

    # -- memory -------------------------------------------------------------------------------

    def _sample_memory(self) -> None:
        region = self.region
        self.clients.measure_output()
        region.holdings.measure()
        self.clients.evict()
        if region.dispatcher.is_over_maxmemory() and not region.scheduler.is_exclusive:
            self.host.collect_script_garbage()
        stats = region.stats
        used = region.dispatcher.used_memory()
        if used > stats.used_memory_peak:
            stats.used_memory_peak = used
            stats.used_memory_peak_ms = region.clock.now_us() // 1000


def load_users(region: Region, settings: Settings) -> None:
    """Users of the configuration and of the ``aclfile``, before the data are recovered.

    A mistake refuses to start.
    """
    try:
        if settings.aclfile:
            try:
                region.acl.load(region.host.read_acl_file(), settings.aclfile)
            except AnabranchError as problem:
                reason = str(problem).removeprefix("ERR ").removesuffix(f" {UNCHANGED}")
                raise ConfigError(f"aclfile: {reason}") from None
        for number, words in enumerate(settings.user, 1):
            try:
                region.acl.load_user(words)
            except AnabranchError as problem:
                raise ConfigError(f"user line {number}: {problem}") from None
    except AnabranchError as problem:
        raise ConfigError(str(problem).removeprefix("ERR ")) from None


def load_kept_users(region: Region, settings: Settings) -> None:
    """Users that commands had set, after the recovery; a mistake refuses to start."""
    if not settings.aclfile:
        region.acl.load_kept(region.keyspace.users.values(), settings)


# -- the process --------------------------------------------------------------------------------


def run_server(loaded: Loaded, wings: Wings) -> int:
    """Serve until a request to stop; returns the exit code. Raises ConfigError."""
    settings = loaded.settings
    process.enter_directory(settings.dir)
    settings.dir = str(Path.cwd())
    recall(loaded, Directory(Path(settings.dir) / settings.appenddirname))
    open_logs(settings)
    try:
        _announce(loaded)
        keep_freed_memory()
        calm_collector()
        factory, name = loop_factory()
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(_serve(loaded, wings, name))
    finally:
        close_logs()


def _announce(loaded: Loaded) -> None:
    """Log warnings about the configuration and the system."""
    settings = loaded.settings
    for note in loaded.notes:
        emit("warning", "config.note", note=note)
    idle = loaded.without_effect
    if idle:
        emit("warning", "config.no_effect", count=len(idle), directives=" ".join(idle))
    if settings.maxmemory_policy != "noeviction":
        emit("warning", "maxmemory_policy.no_effect", policy=settings.maxmemory_policy)
    strange = process.files_of_redis(settings.appenddirname)
    if strange:
        emit("warning", "recovery.files_of_redis", files=strange, advice="anabranch import")
    fitting = process.raise_file_limit(settings.maxclients)
    if fitting < settings.maxclients:
        emit("warning", "maxclients.lowered", wanted=settings.maxclients, possible=fitting)
        settings.maxclients = fitting
    warn_of_clients(settings)
    warn_of_gossip(settings)


async def _serve(loaded: Loaded, wings: Wings, loop_name: str) -> int:
    settings = loaded.settings
    asyncio.get_running_loop().set_exception_handler(_loop_mistake)
    server = Server(
        settings,
        wings,
        loaded=loaded,
        loop_name=loop_name,
    )
    try:
        server.crash = _crash
        server.listen()
        install_signal_handlers(server, settings.pidfile)
        if settings.pidfile:
            process.write_pid_file(settings.pidfile)
        server.ready = partial(_ready, server)
        await server.load()
        patient = await server.stop_requested()
        process.notify_systemd(settings.supervised, "STOPPING=1", os.environ)
        await orderly_stop(server, patient=patient)
    finally:
        server.close()
        process.remove_pid_file(settings.pidfile)
    emit("info", "server.stopped")
    return 0


def _crash(_reason: str) -> NoReturn:
    """End the process at once, as a crash would; the next start recovers what was acknowledged."""
    close_logs()
    os._exit(1)


def _loop_mistake(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    exc = context.get("exception")
    emit_sparingly(
        "error",
        "server.internal_error",
        what=context.get("message"),
        exc=exc if isinstance(exc, BaseException) else None,
    )


def _kept(server: Server) -> str:
    settings = server.settings
    if not server.persistence.is_logging:
        return f"dir {settings.dir}, data lives in memory only (appendonly no)"
    return f"data in {settings.dir}/{settings.appenddirname}, appendfsync {settings.appendfsync}"


def _role(server: Server) -> str:
    links = server.links
    if links is None:
        return "standalone"
    return f"region {server.region.replica.region}, gossip port {links.exchange.gossip_port},"


def _ready(server: Server) -> None:
    """The line that reports readiness, for operators and scripts.

    Libraries that start a Redis for tests wait for its first words.
    """
    settings = server.settings
    line = (
        f"Ready to accept connections: anabranch {__version__}, {_role(server)} on "
        f"{', '.join(server.listeners.addresses)} (pid {os.getpid()}), {_kept(server)}"
    )
    facts: dict[str, object] = {
        "message": line,
        "version": __version__,
        "pid": os.getpid(),
        "addresses": server.listeners.addresses,
        "region": settings.region_id,
    }
    note = process.interpreted_note()
    if note:
        facts["note"] = note
    is_for_people = settings.log_format == "auto" and sys.stdout.isatty()
    if settings.logfile or not is_for_people:
        announce("server.ready", **facts)
    if settings.logfile or is_for_people:
        # Scripts wait for it on standard output, wherever the log goes.
        is_json = settings.log_format in {"auto", "json"} and not is_for_people
        text = json.dumps({"event": "server.ready", **facts}) if is_json else line
        if note and not is_json:
            text = f"{text}\nNote: {note}"
        with suppress(OSError):  # nobody need read it
            os.write(sys.stdout.fileno(), f"{text}\n".encode("utf-8", "backslashreplace"))
    process.notify_systemd(settings.supervised, "READY=1", os.environ)
