"""The parts of a region: data, users, connections, statistics, and how they are changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.config.settings import Settings
from anabranch.effects.applier import Applier
from anabranch.engine.acl.rules import AclRegistry
from anabranch.engine.channels import Channels, KeyspaceEvents
from anabranch.engine.context import Context
from anabranch.engine.dispatch import Dispatcher
from anabranch.engine.host import Host, HostClock
from anabranch.engine.leases import Leases
from anabranch.engine.redaction import hidden, redacted
from anabranch.engine.served_command import ServedCommand
from anabranch.engine.services import Services
from anabranch.engine.session import Session
from anabranch.engine.spec import Command
from anabranch.errors import CommandError
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica, replica_id_of
from anabranch.metrics.holdings import Holdings
from anabranch.metrics.latency import LatencyMonitor
from anabranch.metrics.slowlog import SlowLog
from anabranch.metrics.stats import Rates, Stats
from anabranch.scheduling import CpuTime, Scheduler


class RegionState:
    """The parts of a region; :class:`anabranch.region.region.Region` connects them."""

    services: Services
    context: Context

    def __init__(
        self,
        settings: Settings,
        clock: HostClock,
        host: Host,
        commands: Sequence[Command],
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.host = host
        self.holdings = Holdings()
        self.machine_bytes = 0
        """The memory of the machine, or of the container; 0: not known."""
        self.replica = Replica(
            replica_id_of(settings.region_id, 0),
            lambda: (settings.stream_idmp_duration, settings.stream_idmp_maxsize),
        )
        self.keyspace = Keyspace(settings.databases, self.replica)
        self.keyspace.block_cache.configure(
            settings.stream_compression_cache, settings.stream_compression_level
        )
        self.stats = Stats()
        self.stats.started_ms = clock.now_us() // 1000
        self.acl = AclRegistry(settings.requirepass, commands)
        self.channels = Channels()
        self.sessions: dict[int, Session] = {}
        self.leases = Leases()
        self.scheduler = Scheduler(clock.ticks_ns)
        self.give_up: Callable[[], None] | None = None
        """Goes no further with the transaction that takes several slices, if one is under way."""
        self.dispatcher = Dispatcher(
            commands,
            acl=self.acl,
            channels=self.channels,
            clock=clock,
            keyspace=self.keyspace,
            settings=settings,
            stats=self.stats,
        )
        self.dispatcher.used_memory = self._used_memory
        self.slowlog = SlowLog()
        self.cpu = CpuTime(clock.cpu_ns)
        self.latency = LatencyMonitor()
        self.rates = Rates()
        self.nobody = Session(0, None, "", "", self.holdings)
        self.events = KeyspaceEvents(self.channels, lambda: self.dispatcher.withheld)
        self.effects = Applier(self.keyspace, settings, self.stats, self.events, self.nobody)
        mode = self.effects.mode
        self.dispatcher.reserved_percent = lambda: mode.reserved_percent(settings)
        self.dispatcher.limit_names(mode.added_bytes_max)

    def _measured(self) -> dict[str, Callable[[], int]]:
        """The holders of this region that do not report changes."""
        keyspace = self.keyspace
        return {
            "users": lambda: self.acl.used_bytes,
            "logs": lambda: self.slowlog.used_bytes + self.acl.log.used_bytes,
            "scripts": self._script_bytes,
            "settings": self._setting_bytes,
            "deadlines": lambda: sum([each.deadlines.used_bytes for each in keyspace.databases]),
            "scheduled": lambda: sum([each.timetables.used_bytes for each in keyspace.databases]),
            "tombstones": lambda: keyspace.tombstone_bytes,
            "followed": lambda: sum([each.following.used_bytes for each in keyspace.databases]),
            "positions": lambda: keyspace.last_positions_bytes,
        }

    def _script_bytes(self) -> int:
        libraries = self.keyspace.libraries.values()
        return self.services.scripts.used_bytes + sum([each.used_bytes for each in libraries])

    def _setting_bytes(self) -> int:
        """The memory of texts that CONFIG SET gave, of which some may have any length; policies."""
        texts = sum([len(value) for value in vars(self.settings).values() if type(value) is str])
        return texts + sum([each.policies.used_bytes for each in self.keyspace.databases])

    def _used_memory(self) -> int:
        """What data and everything else hold; ``maxmemory`` compares with this.

        This is not the size of the process, which does not shrink when data is deleted.
        """
        return self.keyspace.account.used_bytes + self.holdings.used_bytes

    # -- accounting for requests --------------------------------------------------------------

    def say(self, session: Session, entry: ServedCommand | None, *parts: bytes) -> None:
        """Reply to a connection, unless it has switched replies off.

        CLIENT REPLY SKIP suppresses its own reply and that of the next request. Whatever was asked
        may have given credit back to a subscription.
        """
        if session.subscribed is not None:
            self.services.blocked.look_again(session.subscribed)
        if session.reply_skip:
            if entry is None or entry.command.full_name != "client|reply":
                session.reply_skip = False
                session.refresh()
        elif session.reply_mode == "on":
            session.outbox += parts

    def failed(self, entry: ServedCommand, args: list[bytes], problem: Exception) -> bytes:
        """The error reply of a command that raised something, for its client and the statistics."""
        if not isinstance(problem, CommandError):  # a bug of ours: answer, log, live on
            return self.mistake(entry, args, problem)
        entry.failed += 1
        return self.dispatcher.failed(problem)

    def mistake(self, entry: ServedCommand | None, args: list[bytes], mistake: Exception) -> bytes:
        """A command failed because of a bug: log it; the client gets an error reply."""
        name = entry.command.full_name if entry is not None else "?"
        self.host.log(
            "error", "command.internal_error", command=name, error=repr(mistake), exc=mistake
        )
        if entry is not None:
            entry.failed += 1
        return self.dispatcher.failed(CommandError("ERR internal error"))

    def slow(
        self,
        session: Session,
        entry: ServedCommand,
        args: list[bytes],
        spent_ns: int,
        cpu_ns: int | None = None,
    ) -> None:
        """Put a slow request into the slow log, unless its command is excluded from that log.

        ``cpu_ns`` is its processor time; without it the time since the last mark.
        """
        command = entry.command
        now_s = self.context.now_ms // 1000
        if spent_ns >= self.latency.threshold_ns:
            event = "fast-command" if "fast" in command.flags else "command"
            self.latency.record(event, now_s, spent_ns // 1_000_000)
        if spent_ns >= self.slowlog.threshold_ns and not command.skips_slowlog:
            if self.settings.hide_user_data_from_log:
                shown = hidden(command, args)
            else:
                shown = redacted(args)
            if cpu_ns is None:
                cpu_ns = self.cpu.since()
                if not (self.context.in_exec or self.context.in_script):
                    self.cpu.mark(self.clock.ticks_ns())
            entry.note_slow(spent_ns)
            self.slowlog.record(now_s, (spent_ns, min(cpu_ns, spent_ns)), shown, session)
