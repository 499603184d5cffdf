"""Requests within another request: those that EXEC runs, and those that a script calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.errors import CommandError

if TYPE_CHECKING:
    from anabranch.commands.execution.context import Context
    from anabranch.commands.execution.dispatch import Entry

__all__ = ["run_inside"]


def run_inside(
    ctx: Context,
    entry: Entry,
    args: list[bytes],
    admit: Callable[[Entry, list[bytes]], None],
) -> bytes:
    """Run one request with its accounting; errors become replies.

    ``admit`` raises the reason if the request may not run. The reply is empty for a client that
    wants none.
    """
    assert entry.function is not None
    session = ctx.session
    server = ctx.server
    dispatcher = server.dispatcher
    ticks = ctx.clock.ticks_ns
    reply: bytes | None
    started = ticks()
    try:
        admit(entry, args)
        reply = entry.function(ctx, args)
    except CommandError as refusal:
        entry.failed += 1
        reply = dispatcher.failed(refusal)
    except Exception as mistake:
        reply = server.runner.mistake(entry, args, mistake)
    spent = ticks() - started
    entry.total_ns += spent
    entry.histogram[spent.bit_length()] += 1
    if spent >= server.slowlog.threshold_ns or spent >= server.latency.threshold_ns:
        server.runner.slow(session, entry, args, spent)
    if dispatcher.monitors and not entry.command.skips_monitor:
        dispatcher.feed_monitors(session, args)
    return reply or b""
