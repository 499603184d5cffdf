"""Requests within another request: those that EXEC runs, and those that a script calls."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.engine.context import Context
from anabranch.engine.served_command import ServedCommand
from anabranch.errors import CommandError


class Inside:
    """Runs the requests within one request of a client."""

    def __init__(self, ctx: Context) -> None:
        server = ctx.server
        self._ctx = ctx
        self._dispatcher = server.dispatcher
        self._runner = server.runner
        self._slowlog = server.slowlog
        self._latency = server.latency
        self._ticks_ns = ctx.clock.ticks_ns

    def run(
        self,
        entry: ServedCommand,
        args: list[bytes],
        admit: Callable[[ServedCommand, list[bytes]], None] | None = None,
    ) -> bytes:
        """Run one request with its accounting; errors become replies.

        ``admit`` raises another reason why it may not run than user and disk. The reply is empty
        for a client that wants none.
        """
        ctx = self._ctx
        session = ctx.session
        function = entry.function
        assert function is not None
        reply: bytes | None
        started = self._ticks_ns()
        try:
            self._dispatcher.admit_inside(ctx, entry.command, args)
            if admit is not None:
                admit(entry, args)
            reply = function(ctx, args)
        except CommandError as refusal:
            entry.failed += 1
            reply = self._dispatcher.failed(refusal)
        except Exception as mistake:
            reply = self._runner.mistake(entry, args, mistake)
        spent = self._ticks_ns() - started
        entry.total_ns += spent
        entry.histogram[spent.bit_length()] += 1
        if spent >= self._slowlog.threshold_ns or spent >= self._latency.threshold_ns:
            self._runner.slow(session, entry, args, spent)
        if self._dispatcher.monitors and not entry.command.skips_monitor:
            self._dispatcher.feed_monitors(session, args)
        return reply or b""
