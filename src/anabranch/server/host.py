"""The ``Host`` of a server: what the process does for commands."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.config.load import read_text
from anabranch.config.runtime import rewritten
from anabranch.errors import CommandError, ConfigError
from anabranch.server import process
from anabranch.server.listener import warn_of_gossip
from anabranch.server.logs import emit, emit_sparingly, set_levels

if TYPE_CHECKING:
    from anabranch.config.settings import Settings
    from anabranch.engine.script_machine import ScriptMachine
    from anabranch.engine.session import Session
    from anabranch.node.exchange import Exchange
    from anabranch.node.node import Node
    from anabranch.node.persistence import Persistence
    from anabranch.server.admission import Admission
    from anabranch.server.clients import Clients
    from anabranch.server.clock import RealClock
    from anabranch.server.http import HttpServer
    from anabranch.server.listener import Listeners
    from anabranch.server.memory import Heap
    from anabranch.server.region_links import RegionLinks
    from anabranch.server.wings import Wings

GARBAGE_BYTES: Final = 1 << 20
"""What scripts must have left behind before it is worth a collection."""


_OF_REGIONS = frozenset(
    "digest-interval gossip-announce gossip-hold-bytes gossip-secret gossip-window join "
    "max-clock-skew-ms region-cache-bytes region-expire-after".split()
)
"""Settings that concern the links between regions."""


class Parts(Protocol):
    """The parts of the process, for the ``Host`` and for its end."""

    settings: Settings
    config_file: Path | None
    included_users: frozenset[bytes]
    loop_name: str
    wings: Wings
    clock: RealClock
    node: Node
    clients: Clients
    admission: Admission
    listeners: Listeners
    http: HttpServer
    heap: Heap
    links: RegionLinks | None

    def request_stop(self, reason: str, *, patient: bool = True) -> None:
        """Begin to stop; a second request changes nothing."""

    def stop_timers(self) -> None:
        """Stop background work, which would start new writes."""

    def close(self) -> None:
        """Free files, ports and what else the process holds."""


class ServerHost:
    """The ``Host`` of one server."""

    def __init__(self, server: Parts, chance: random.Random) -> None:
        self._server = server
        self._random = chance
        self._machine: ScriptMachine | None = None
        self._collected_bytes = 0
        """Of Lua, after the latest collection."""
        self.run_id = chance.randbytes(20).hex()
        self.startup_rss_bytes = process.rss_bytes()

    @property
    def persistence(self) -> Persistence:
        """Log and snapshots, as commands use them."""
        return self._server.node.persistence

    @property
    def regions(self) -> Exchange | None:
        """The other regions; None without regions, and while the data are being loaded."""
        links = self._server.links
        return None if links is None or self.persistence.is_loading else links.exchange

    # -- chance, time, memory, logs -----------------------------------------------------------

    def random_bytes(self, count: int) -> bytes:
        """Unpredictable bytes, unless a test has set the seed."""
        return self._random.randbytes(count)

    def random_below(self, bound: int) -> int:
        """A number from 0 up to ``bound``, ``bound`` excluded."""
        return self._random.randrange(bound)

    def next_by_cron(self, line: bytes, zone: bytes, after_ms: int) -> int | None:
        """The first time of a cron line after another one (:mod:`anabranch.server.cron`)."""
        from anabranch.server.cron import next_by_cron  # noqa: PLC0415 - most servers need none

        return next_by_cron(line, zone, after_ms)

    def script_machine(self) -> ScriptMachine:
        """The machine that runs Lua; CommandError if the extra is not installed."""
        if self._machine is None:
            self._machine = self._server.wings.scripts(self._server.settings.script_memory_limit)
        return self._machine

    def machine_bytes(self) -> int:
        """The memory of the machine that runs Lua; 0 before the first script."""
        return self._machine.used_bytes if self._machine is not None else 0

    def collect_script_garbage(self) -> None:
        """Memory is short: free what scripts have left behind since the last time.

        Lua does so only while scripts run, and they may be refused now.
        """
        if self.machine_bytes() > self._collected_bytes + GARBAGE_BYTES:
            assert self._machine is not None
            self._machine.collect()
            self._collected_bytes = self.machine_bytes()

    def give_back_memory(self) -> None:
        """Return unused memory to the system (MEMORY PURGE)."""
        self._server.heap.give_back()

    def free_machine(self) -> None:
        """The server ends: it runs no script any more."""
        if self._machine is not None:
            self._machine.close()
            self._machine = None

    def sleep(self, seconds: float) -> None:
        """Block the whole process for this time."""
        self._server.clock.sleep(seconds)

    def log(self, level: str, event: str, **fields: object) -> None:
        """An operator's log line; ``exc`` is shown as a traceback."""
        exc = fields.pop("exc", None)
        if self._server.settings.hide_user_data_from_log and "error" in fields:
            fields["error"] = type(exc).__name__
        mistake = exc if isinstance(exc, BaseException) else None
        if mistake is not None:  # one kind may occur once for each request
            about = f"{fields.get('command', '')} {type(mistake).__name__}"
            emit_sparingly(level, event, about=about, exc=mistake, **fields)
        else:
            emit(level, event, exc=None, **fields)

    # -- connections and the process ----------------------------------------------------------

    def close(self, session: Session) -> None:
        """Close once the outbox is written, at the end of this turn."""
        session.closing = True
        self._server.node.region.channels.pending[session] = None

    def shutdown(self, *, save: bool | None, now: bool, force: bool) -> None:
        """Begin an orderly stop; CommandError if it must save and cannot."""
        try:
            self._server.node.persistence.save_for_stop(asked=save)
        except CommandError:
            if not force:
                raise CommandError("ERR Errors trying to SHUTDOWN. Check logs.") from None
        self._server.request_stop("SHUTDOWN", patient=not now)

    def process_info(self) -> dict[str, object]:
        """Facts of the process for INFO, by field name."""
        server = self._server
        return {
            **process.process_facts(),
            **process.volume_facts(server.settings.dir),
            "run_id": self.run_id,
            "startup_rss_bytes": self.startup_rss_bytes,
            "client_buffer_bytes": server.node.region.holdings.client_bytes,
            "script_machine_bytes": self.machine_bytes(),
            "supervised": process.is_supervised(server.settings.supervised, os.environ),
            "loop": server.loop_name,
            "event_loop_tasks": len(asyncio.all_tasks()),
            "tcp_port": server.settings.port or server.settings.tls_port,
            "config_file": str(server.config_file or ""),
        }

    # -- files --------------------------------------------------------------------------------

    def rewrite_config(self, users: list[list[bytes]]) -> None:
        """Write the present settings into the configuration file."""
        path = self._server.config_file
        if path is None:
            raise ConfigError("The server is running without a config file")
        # An included file stays as it is, and a user may have one line only.
        included = self._server.included_users
        as_configured = self._server.node.region.acl.configured
        for words in users:
            if words[1] in included and b" ".join(words) != as_configured[words[1]]:
                name = words[1].decode("utf-8", "backslashreplace")
                raise ConfigError(
                    f"Rewriting config file: user '{name}' has changed since the start, and its "
                    "line is in an included file: change it there, or use aclfile"
                )
        users = [words for words in users if words[1] not in included]
        try:
            text = read_text(path) if path.exists() else ""
            _replace(path, rewritten(text, self._server.settings, users))
        except OSError as problem:
            emit_sparingly("warning", "config.rewrite_failed", path=path, reason=problem.strerror)
            raise ConfigError(f"Rewriting config file: {problem.strerror}") from None
        emit("info", "config.rewritten", path=path)

    def read_acl_file(self) -> str:
        """The text of the ``aclfile``."""
        path = self._server.settings.aclfile
        try:
            return read_text(Path(path))
        except OSError as problem:
            raise CommandError(
                f"ERR Error loading ACLs, opening file '{path}': {problem.strerror}"
            ) from None

    def write_acl_file(self, text: str) -> None:
        """Replace the ``aclfile`` atomically."""
        try:
            _replace(Path(self._server.settings.aclfile), text)
        except OSError as problem:
            emit_sparingly("warning", "acl.save_failed", reason=problem.strerror)
            raise CommandError(
                "ERR There was an error trying to save the ACLs. "
                "Please check the server logs for more information"
            ) from None

    # -- settings -----------------------------------------------------------------------------

    def apply_setting(self, name: str) -> None:
        """Apply a changed setting outside the core; ConfigError if that is impossible."""
        server = self._server
        settings, regions = server.settings, self.regions
        if name in {"loglevel", "log-format", "log-timestamp-format"}:
            set_levels(settings)
        elif name in {"port", "tls-port", "bind"}:
            self._move(name)
        elif name.startswith("tls-"):
            self._reload_tls()
        elif name == "maxclients":
            fitting = process.raise_file_limit(settings.maxclients)
            server.admission.limit_changed()
            if fitting < settings.maxclients:
                raise ConfigError(
                    "The operating system is not able to handle the specified number of "
                    f"clients, try with {fitting}"
                )
        elif name == "tcp-keepalive":
            server.listeners.keep_alive_changed()
        elif name == "proto-max-bulk-len":
            for connection in list(server.clients.connections):
                connection.limits_changed()
        elif name == "appendonly":
            server.node.persistence.switch(on=settings.appendonly)
        elif name in {"min-regions-to-write", "min-regions-max-lag"} and regions is not None:
            regions.gate.judge_regions()
        elif name in _OF_REGIONS and regions is not None:
            regions.settings_changed()
            if name == "gossip-secret":
                warn_of_gossip(settings)
        elif name == "mark-retention" and regions is not None:
            regions.retention_changed()
        elif name == "gossip-bind" and server.links is not None and regions is not None:
            server.links.listen_anew()
            warn_of_gossip(settings)
        elif name in {"availability-api", "http-port", "http-bind"}:
            server.http.switch()
        elif name in {"oplog-max-bytes", "oplog-max-age"}:
            server.node.persistence.retire()
        elif name == "oplog-segment-bytes":
            server.node.persistence.segments_changed()
        elif name == "appendfsync" and regions is not None:
            try:
                regions.policy_changed()
            except OSError as problem:
                raise ConfigError(f"it could not be noted on the disk: {problem}") from None
        elif name == "dir" and server.node.persistence.is_open:
            raise ConfigError("the log or a snapshot is in the present directory")
        elif name == "dir":
            process.enter_directory(settings.dir)
            settings.dir = str(Path.cwd())
        elif name == "maxmemory-policy" and settings.maxmemory_policy != "noeviction":
            emit("warning", "maxmemory_policy.no_effect", policy=settings.maxmemory_policy)

    def _reload_tls(self) -> None:
        links = self._server.links
        self._server.listeners.reload_tls()
        if links is not None and not self.persistence.is_loading:
            try:
                links.reload_certificates()
            except ConfigError as problem:
                emit_sparingly("warning", "tls.refused", reason=str(problem))
                raise ConfigError(
                    "Unable to update TLS configuration. Check server logs."
                ) from None

    def _move(self, name: str) -> None:
        listeners = self._server.listeners
        settings = self._server.settings
        try:
            if name != "tls-port":
                listeners.move("tcp", settings.port)
            if name != "port":
                listeners.move("tls", settings.tls_port)
        except ConfigError as problem:
            emit_sparingly("warning", "listener.refused", reason=str(problem))
            raise ConfigError(
                "Failed to bind to specified addresses."
                if name == "bind"
                else "Unable to listen on this port. Check server logs."
            ) from None


def _replace(path: Path, text: str) -> None:
    """Write a file atomically: readers, and a crash, see the old text or the new one.

    Of a symbolic link its target is written.
    """
    import tempfile  # noqa: PLC0415 - few servers replace a file

    path = path.resolve()
    handle, temporary = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            os.chmod(temporary, path.stat().st_mode & 0o777)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
