"""The commands that a script calls: which it may call, and how they run.

They run as those of a transaction do: at one moment, without waiting, each with its own effects,
which reach the log and other regions as one unit.
"""

from __future__ import annotations

from typing import Final

from anabranch.engine import texts
from anabranch.engine.absent import hint
from anabranch.engine.context import Context
from anabranch.engine.inside import Inside
from anabranch.engine.script_machine import ScriptMachine
from anabranch.engine.served_command import ServedCommand
from anabranch.engine.session import Session
from anabranch.errors import CommandError
from anabranch.resp.encode import error

_LEVELS: Final = ("debug", "verbose", "info", "warning")


_SENDING: Final = ("publish", "spublish")
"""Write nothing, but a script that only reads must not call them."""


def asks_read_only(args: list[bytes]) -> bool:
    """Whether a request runs a script by a command that must not write, as EVAL_RO."""
    return args[0].lower().endswith(b"_ro")


class Calls:
    """One run of a script. A :class:`anabranch.engine.script_machine.ScriptCalls`.

    ``args`` is the request that runs it, ``name`` its hash, or the name of the function, ``flags``
    are those of the script or function.
    """

    def __init__(
        self,
        ctx: Context,
        machine: ScriptMachine,
        name: bytes,
        args: list[bytes],
        flags: frozenset[bytes],
    ) -> None:
        self._ctx = ctx
        self.flushes = ctx.server.scripts.flushes
        self.machine = machine
        self.name = name
        self.args = args
        self.is_read_only = asks_read_only(args) or b"no-writes" in flags
        self.is_function = args[0].lower().startswith(b"fcall")
        """Whether FCALL runs it."""
        self.has_written = False
        """Whether it has called a command that writes."""
        self._ignores_memory = b"allow-oom" in flags
        self._is_memory_full = ctx.server.dispatcher.memory_exceeded()
        self.caller = ctx.session
        self.session = _session_like(ctx.session)
        self._inside = Inside(ctx)
        self.started_ns = ctx.clock.ticks_ns()

    def call(self, args: list[bytes]) -> bytes:
        """Run a command as the user of the script; refusals become error replies."""
        ctx = self._ctx
        try:
            entry = self._find(args)
            if "noscript" in entry.command.flags:
                raise CommandError("ERR This Redis command is not allowed from script")
        except CommandError as refusal:
            return error(refusal.text)
        ctx.enter(self.session, ctx.now_ms)
        reply = self._inside.run(entry, args, self._admit)
        assert self.session.waiter is None, "a command blocked inside a script"
        return reply

    def kill(self) -> None:
        """End the script with an error."""
        self.machine.kill()

    def may_call(self, args: list[bytes]) -> bool:
        """Whether the user of the script may run a request; CommandError if it is none."""
        try:
            entry = self._look_up(args)
        except CommandError:
            raise CommandError("ERR Invalid command passed to redis.acl_check_cmd()") from None
        user = self.session.user
        return user is None or user.judge(entry.command, args) is None

    def log(self, level: int, text: bytes) -> None:
        """Write a line of the script into the log of the server; ``level`` is 0 to 3."""
        self._ctx.server.host.log(
            _LEVELS[level],
            "script.log",
            script=self.name.decode("latin-1"),
            text=text.decode("utf-8", "backslashreplace"),
        )

    def set_protocol(self, *, resp3: bool) -> None:
        """Encode the replies that the script gets from now on in RESP3, or in RESP2."""
        self.session.resp3 = resp3
        self.session.refresh()

    def _find(self, args: list[bytes]) -> ServedCommand:
        entry = self._ctx.server.dispatcher.entries.get(args[0])
        if entry is not None and entry.low <= len(args) <= entry.high:
            return entry
        entry = self._look_up(args)
        if entry.function is None or not entry.command.accepts(len(args)):
            raise CommandError("ERR Wrong number of args calling Redis command from script")
        return entry

    def _look_up(self, args: list[bytes]) -> ServedCommand:
        entry = self._ctx.server.dispatcher.find(args)
        if entry is None or (entry.command.is_container and len(args) > 1):
            text = b"ERR Unknown Redis command called from script"
            sentence = hint(args[0])
            if sentence:
                text += b": '%b' %b" % (args[0], sentence)
            raise CommandError(text)
        return entry

    def _admit(self, entry: ServedCommand, args: list[bytes]) -> None:
        """Raise the reason if a script may not call a command now."""
        command, dispatcher = entry.command, self._ctx.server.dispatcher
        if self.is_read_only and (command.is_write or command.name in _SENDING):
            raise CommandError("ERR Write commands are not allowed from read-only scripts.")
        if command.is_write:
            dispatcher.check_sizes(command, args)
            if dispatcher.write_refusal is not None:
                raise CommandError(dispatcher.write_refusal)
        if (
            command.is_denyoom
            and self._is_memory_full
            and not (self.has_written or self._ignores_memory)
        ):
            raise CommandError(texts.OUT_OF_MEMORY)
        self.has_written |= command.is_write


def _session_like(caller: Session) -> Session:
    """The session of the calls: its SELECT and its protocol are not those of the client."""
    session = Session(caller.id, caller.user, "lua", caller.local_address)
    session.db = caller.db
    session.name = caller.name
    session.no_touch = caller.no_touch
    return session
