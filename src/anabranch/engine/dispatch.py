"""Runs requests: find the command, check, call, account.

``find`` maps the raw name to a :class:`ServedCommand`. While a session is *plain* and the server
*unguarded* (no MONITOR, no pause, no memory limit) a request goes directly to its
function; otherwise :meth:`Dispatcher.guarded` makes the checks in Redis's order: authentication,
ACL, memory, subscriber mode, pause, MULTI queueing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from anabranch.config.settings import Settings
from anabranch.effects.codec import BODY_BYTES_MAX
from anabranch.engine import texts
from anabranch.engine.absent import unknown_command
from anabranch.engine.acl.rules import AclRegistry, Asked
from anabranch.engine.channels import Channels
from anabranch.engine.host import HostClock
from anabranch.engine.queueing import end_transaction, queue
from anabranch.engine.served_command import ServedCommand
from anabranch.engine.session import Session
from anabranch.engine.spec import Command
from anabranch.engine.withheld import Withheld
from anabranch.errors import CommandError
from anabranch.keyspace.keyspace import Keyspace
from anabranch.metrics.stats import Stats
from anabranch.resp.encode import error

_SUBSCRIBER_COMMANDS = frozenset(
    "ping subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe quit reset".split()
)
_NEVER_QUEUED = frozenset("multi exec discard watch quit reset".split())
_ENDS_TRANSACTION = frozenset("exec discard quit reset".split())
_PAUSE_EXEMPT = frozenset("client|unpause client|pause shutdown quit auth hello".split())
_MAY_WRITE = frozenset("eval evalsha fcall publish spublish".split())


class RunningScript(Protocol):
    """The script that runs at present."""

    name: bytes
    """Its hash, or the name of the function."""
    args: list[bytes]
    """The request that runs it."""
    started_ns: int
    is_function: bool
    """Whether FCALL runs it."""
    has_written: bool
    """Whether it has called a command that writes."""

    def kill(self) -> None:
        """End the script with an error at its next step."""


_PAYLOAD_AT: Final = {"restore": 3, "ab.import": -1}
"""Arguments with many values: these are checked one by one, and other regions get them in pieces.
"""

_REMOVING: Final = frozenset({"del", "unlink", "xgroup|destroy", "xgroup|delconsumer"})
"""Commands whose effects name what exists: earlier versions accepted longer names."""

_ITEM_BYTES: Final = 48
"""What an argument takes at most in the log beside its bytes: a row of XCLAIM."""

_LONG_BYTES: Final = 256 << 20


class RequestRefused(CommandError):
    """A request that is refused before its command runs: counts as rejected, not as a call."""


class Dispatcher:
    """The command table of one server, with its statistics."""

    def __init__(
        self,
        commands: Iterable[Command],
        *,
        acl: AclRegistry,
        channels: Channels,
        clock: HostClock,
        keyspace: Keyspace,
        settings: Settings,
        stats: Stats,
    ) -> None:
        self._acl = acl
        self._channels = channels
        self._clock = clock
        self._keyspace = keyspace
        self._settings = settings
        self._stats = stats
        self.entries: dict[bytes, ServedCommand] = {}
        self.guarded_by: set[str] = set()  # reasons why no session may skip the checks
        self.monitors: dict[Session, Callable[[Session, list[bytes]], None] | None] = {}
        self.pause_until_ms = 0
        self.pause_writes_only = False
        self.postponed: dict[Session, None] = {}
        self.answers_busy = False  # while a transaction is under way that takes long
        self.may_run: Callable[[Session, Command, list[bytes]], bool] | None = None
        """Whether a request need not wait for what takes several slices; None: all wait."""
        self.running: RunningScript | None = None
        self.used_memory: Callable[[], int] = int  # bytes, as ``maxmemory`` counts them
        self.reserved_percent: Callable[[], int] = int  # of ``maxmemory``, not for commands
        self.make_room: Callable[[], bool] = bool  # frees memory; whether enough is free then
        self.name_bytes_max = BODY_BYTES_MAX  # of an argument of a command that changes data
        self.long_bytes = _LONG_BYTES  # the sizes of shorter requests need no check
        self._write_refusals: dict[str, str] = {}  # the error for writing commands, by reason
        self.withheld: Withheld | None = None  # refuses reads while the disk does not accept writes
        for command in commands:
            self._add(command)

    def _add(self, command: Command) -> None:
        entry = ServedCommand(command)
        for sub in command.subcommands.values():
            entry.subcommands[sub.name.encode()] = ServedCommand(sub)
        name = command.name.encode()
        assert name not in self.entries, f"two rows for {command.name}"
        self.entries[name] = self.entries[name.upper()] = entry

    def all_entries(self) -> Iterator[ServedCommand]:
        """Every command and sub-command once."""
        for name, entry in self.entries.items():
            if name == entry.command.name.encode():
                yield entry
                yield from entry.subcommands.values()

    # -- finding ------------------------------------------------------------------------------

    def find(self, args: list[bytes]) -> ServedCommand | None:
        """The command or sub-command a request names, None when unknown; checks no arity.

        A container without (known) sub-command gives the container itself.
        """
        entry = self.entries.get(args[0]) or self.entries.get(args[0].lower())
        if entry is not None and entry.subcommands and len(args) > 1:
            sub = entry.subcommands.get(args[1]) or entry.subcommands.get(args[1].lower())
            return sub or entry
        return entry

    def command_of(self, args: list[bytes]) -> Command | None:
        """The row that a whole request names; None for an unknown name or sub-command."""
        entry = self.find(args)
        if entry is None or (entry.is_container and len(args) > 1):
            return None
        return entry.command

    def resolve(self, args: list[bytes]) -> ServedCommand:
        """The command that a request runs; CommandError for an unknown one or a wrong arity."""
        entry = self.find(args)
        if entry is None:
            raise unknown_command(args)
        command = entry.command
        if entry.is_container:
            if len(args) > 1:
                raise CommandError(
                    b"ERR unknown subcommand '%b'. Try %b HELP."
                    % (texts.shown(args[1])[:128], command.name.upper().encode())
                )
            if entry.function is None:
                raise texts.wrong_arity(command.full_name)
            return entry
        if not (entry.low <= len(args) <= entry.high or command.accepts(len(args))):
            raise texts.wrong_arity(command.full_name)
        return entry

    # -- gating -------------------------------------------------------------------------------

    def guarded(self, ctx: Asked, entry: ServedCommand, args: list[bytes]) -> bytes | None:
        """Run a request with all checks; returns the result of the command function.

        ``ctx`` is the argument of command functions.

        Raises :class:`CommandError` like it; ``entry.rejected`` counts refusals before the call.
        """
        session = ctx.session
        command = entry.command
        try:
            self.admit(ctx, command, args)
        except CommandError as refusal:
            raise self.refused(session, entry, refusal) from None
        if self._is_busy_for(session, entry, args) or self.pauses(session, command):
            session.backlog.appendleft(args)
            self.postponed[session] = None
            return None
        if session.transaction is not None and command.full_name not in _NEVER_QUEUED:
            return queue(session, entry, args)
        assert entry.function is not None
        try:
            return entry.function(ctx, args)
        finally:
            if self.monitors and not command.skips_monitor:
                self.feed_monitors(session, args)

    def _is_busy_for(self, session: Session, entry: ServedCommand, args: list[bytes]) -> bool:
        """Whether a request waits for a transaction of others; raises BUSY if that takes long."""
        command = entry.command
        if "exclusive" not in self.guarded_by or (
            "allow_busy" in command.flags and command.name != "watch"
        ):
            return False
        if session.transaction is not None and command.full_name not in _NEVER_QUEUED:
            return False
        if self.may_run is not None and self.may_run(session, command, args):
            return False
        if self.answers_busy:
            raise self.refused(session, entry, CommandError(self.busy_text))
        return True

    @property
    def busy_text(self) -> str:
        """The error that other clients get while a script takes long."""
        is_function = self.running is not None and self.running.is_function
        return (
            "BUSY Redis is busy running a script. You can only call "
            f"{'FUNCTION' if is_function else 'SCRIPT'} KILL or SHUTDOWN NOSAVE."
        )

    def pauses(self, session: Session, command: Command) -> bool:
        """Whether a CLIENT PAUSE holds back this command at present."""
        if not self.pause_until_ms:
            return False
        if not self.pause_writes_only:
            return command.full_name not in _PAUSE_EXEMPT
        if command.name == "exec":
            return any(_may_write(entry.command) for entry, _ in session.transaction or ())
        return _may_write(command)

    def admit(self, ctx: Asked, command: Command, args: list[bytes]) -> None:
        """Raise the reason why a request may not run now; for a blocked one, at each attempt."""
        session = ctx.session
        if session.user is None:
            if not command.is_noauth:
                self._acl.expect()
                raise CommandError("NOAUTH Authentication required.")
        elif session.transaction is not None and "no_multi" in command.flags:
            raise CommandError("ERR Command not allowed inside a transaction")
        elif not session.user.is_unrestricted and not command.is_noauth:
            self._acl.check(ctx, command, args)
        if session.is_long:
            self.check_sizes(command, args)
        refusal = self.write_refusal
        if refusal is not None and (
            command.is_write
            or (
                command.name == "exec"
                and any(each.command.is_write for each, _ in session.transaction or ())
            )
        ):
            raise CommandError(refusal)
        if self.withheld is not None and (session.transaction is None or command.name == "exec"):
            self.withheld.check(session, command, args)
        adds_data = command.is_denyoom or (  # a queue grows with each request
            session.transaction is not None and command.full_name not in _ENDS_TRANSACTION
        )
        if adds_data and self.memory_exceeded():
            raise CommandError(texts.OUT_OF_MEMORY)
        if (
            not session.resp3
            and session.subscriptions + len(session.shard_channels)
            and command.full_name not in _SUBSCRIBER_COMMANDS
        ):
            raise CommandError(
                f"ERR Can't execute '{command.full_name}': only (P|S)SUBSCRIBE / "
                "(P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
            )
        if self.is_loading and "loading" not in command.flags:
            raise CommandError(texts.LOADING)
        if session.monitoring and (_may_write(command) or "readonly" in command.flags):
            raise CommandError("ERR Replica can't interact with the keyspace")

    def admit_inside(self, ctx: Asked, command: Command, args: list[bytes]) -> None:
        """Raise the reason why EXEC or a script may not run a request: the user, or the disk."""
        user = ctx.session.user
        if user is not None and not user.is_unrestricted and not command.is_noauth:
            self._acl.check(ctx, command, args)
        if self.withheld is not None:
            self.withheld.check(ctx.session, command, args)

    @property
    def is_loading(self) -> bool:
        """Whether the data are still being recovered: most commands are refused."""
        return "loading" in self.guarded_by

    def limit_names(self, most: int) -> None:
        """Allow so many bytes in an argument of a command that changes data."""
        self.name_bytes_max = most
        self.long_bytes = min(most, _LONG_BYTES)

    def check_sizes(self, command: Command, args: list[bytes]) -> None:
        """Raise the error for arguments that the log, or other regions, would not take.

        Effects consist of arguments and of what earlier commands brought, so this is the one check
        of their sizes. The entry of an XADD and the rows of an AB.IMPORT have one of their own.
        """
        if "readonly" in command.flags:
            return
        total = sum(map(len, args)) + _ITEM_BYTES * len(args)
        if total > BODY_BYTES_MAX:
            raise CommandError(
                f"ERR the arguments are too long: they take {total} bytes of the log, which can "
                f"have {BODY_BYTES_MAX} in one piece"
            )
        if not command.is_write or command.full_name in _REMOVING:
            return
        for at, arg in enumerate(args):
            if len(arg) > self.name_bytes_max and _PAYLOAD_AT.get(command.name) not in (
                at,
                at - len(args),
            ):
                raise CommandError(
                    f"ERR an argument is too long: it has {len(arg)} bytes, and regions take "
                    f"{self.name_bytes_max}"
                )

    def memory_exceeded(self) -> bool:
        """Whether commands that add data are refused, because no room can be made for them."""
        return self.is_over_maxmemory() and not self.make_room()

    def is_over_maxmemory(self) -> bool:
        """Whether data and buffers hold more than ``maxmemory`` leaves to commands."""
        limit = self._settings.maxmemory
        limit -= limit * self.reserved_percent() // 100
        return 0 < limit < self.used_memory()

    @property
    def write_refusal(self) -> str | None:
        """The error for writing commands; None if they are allowed."""
        for refusal in self._write_refusals.values():
            return refusal
        return None

    def refuse_writes(self, reason: str, text: str) -> None:
        """Answer every writing command with this error, until :meth:`allow_writes`."""
        self._write_refusals[reason] = text
        self.guarded_by.add(reason)

    def allow_writes(self, reason: str) -> None:
        """Remove this reason to refuse writes."""
        self._write_refusals.pop(reason, None)
        self.guarded_by.discard(reason)

    def refused(
        self, session: Session, entry: ServedCommand | None, refusal: CommandError
    ) -> RequestRefused:
        """Account for a request that is refused; returns the error reply.

        An open MULTI cannot run any more; an EXEC that is refused itself ends it at once.
        """
        if entry is not None:
            entry.rejected += 1
            if entry.command.name == "exec":
                end_transaction(self._keyspace, session)
                reason = refusal.text.removeprefix(b"ERR ")
                return RequestRefused(b"EXECABORT Transaction discarded because of: " + reason)
        if session.transaction is not None:
            session.transaction_error = "previous errors."
        return RequestRefused(refusal.text)

    def unpause(self) -> None:
        """End a CLIENT PAUSE: run the requests that it held back."""
        self.pause_until_ms = 0
        self.guarded_by.discard("pause")
        self.release_postponed()

    def release_postponed(self) -> None:
        """Let those try again that were held back."""
        for session in self.postponed:
            self._channels.pending[session] = None
        self.postponed.clear()

    def monitor(
        self, session: Session, see: Callable[[Session, list[bytes]], None] | None = None
    ) -> None:
        """Add a MONITOR connection; ``see`` gets each request in place of a line for the client."""
        self.monitors[session] = see
        self.guarded_by.add("monitor")

    def stop_monitoring(self, session: Session) -> None:
        """Remove a MONITOR connection, if it is one."""
        self.monitors.pop(session, None)
        if not self.monitors:
            self.guarded_by.discard("monitor")

    def feed_monitors(self, session: Session, args: list[bytes]) -> None:
        """Show a request to every MONITOR connection."""
        line = b""
        for monitor, see in self.monitors.items():
            if see is not None:
                see(session, args)
                continue
            line = line or self._line_of(session, args)
            monitor.outbox.append(line)
            self._channels.pending[monitor] = None

    def _line_of(self, session: Session, args: list[bytes]) -> bytes:
        now_us = self._clock.now_us()
        return b"+%d.%06d [%d %b] %b\r\n" % (
            now_us // 1_000_000,
            now_us % 1_000_000,
            session.db,
            session.address.encode(),
            b" ".join(map(quoted, args)),
        )

    # -- accounting ---------------------------------------------------------------------------

    def failed(self, refusal: CommandError) -> bytes:
        """The reply for an error, which is counted in INFO errorstats."""
        line = error(refusal.text)
        self._stats.count_error(line[1:-2])
        return line


def _may_write(command: Command) -> bool:
    """Whether CLIENT PAUSE WRITE holds it back; a message counts, as it must follow the writes."""
    return command.is_write or command.full_name in _MAY_WRITE


_ESCAPES = {
    0x5C: b"\\\\",
    0x22: b'\\"',
    0x0A: b"\\n",
    0x0D: b"\\r",
    0x09: b"\\t",
    0x07: b"\\a",
    0x08: b"\\b",
}
_QUOTED = [
    _ESCAPES.get(code) or (bytes([code]) if 32 <= code < 127 else b"\\x%02x" % code)
    for code in range(256)
]


def quoted(data: bytes) -> bytes:
    r"""An argument as MONITOR prints it: in double quotes, binary as ``\xHH``."""
    return b'"' + b"".join([_QUOTED[code] for code in data]) + b'"'
