"""Transactions: MULTI, EXEC, DISCARD, and the optimistic locks WATCH and UNWATCH.

Between MULTI and EXEC the dispatcher queues what a connection sends. EXEC runs the queue at one
moment: the clock stands still, nothing else runs in between, and who was blocked on the keys is
served afterwards. A command that fails does not stop those after it.
"""

from __future__ import annotations

from anabranch.engine import texts
from anabranch.engine.context import Context
from anabranch.engine.inside import Inside
from anabranch.engine.queueing import end_transaction, forget_watches, watch_keys
from anabranch.errors import CommandError
from anabranch.resp.encode import OK, array_header, null_array

_OUT_OF_MEMORY = f"EXECABORT Transaction discarded because of: {texts.OUT_OF_MEMORY}"


def multi(ctx: Context, args: list[bytes]) -> bytes:
    """From here on commands are queued."""
    session = ctx.session
    if session.transaction is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    session.transaction = []
    session.refresh()
    return OK


def discard(ctx: Context, args: list[bytes]) -> bytes:
    """DISCARD: drop the queue of MULTI, and watch no key any more."""
    if ctx.session.transaction is None:
        raise CommandError("ERR DISCARD without MULTI")
    end_transaction(ctx.keyspace, ctx.session)
    return OK


def watch(ctx: Context, args: list[bytes]) -> bytes:
    """EXEC will do nothing if one of these keys changes before it."""
    session = ctx.session
    if session.transaction is not None:
        raise CommandError("ERR WATCH inside MULTI is not allowed")
    for key in args[1:]:
        # A key past its deadline is removed now, so that its removal does not count as a change.
        ctx.lookup(key)
    watch_keys(session, ctx.db, args[1:])
    return OK


def unwatch(ctx: Context, args: list[bytes]) -> bytes:
    """UNWATCH: let EXEC run whatever happens to the watched keys."""
    forget_watches(ctx.keyspace, ctx.session)
    return OK


def execute(ctx: Context, args: list[bytes]) -> bytes | None:
    """EXEC: run the queue, unless a command was refused or a watched key has changed."""
    session = ctx.session
    requests = session.transaction
    if requests is None:
        raise CommandError("ERR EXEC without MULTI")
    for index, key in session.watched:
        ctx.lookup_in(ctx.keyspace.databases[index], key)  # what is due now is a change
    broken = session.watch_broken
    spoilt = session.transaction_error
    end_transaction(ctx.keyspace, session)
    if spoilt is not None:
        raise CommandError(f"EXECABORT Transaction discarded because of {spoilt}")
    dispatcher = ctx.server.dispatcher
    adds_data = any(entry.command.is_denyoom for entry, _ in requests)
    if adds_data and dispatcher.memory_exceeded():
        raise CommandError(_OUT_OF_MEMORY)
    if broken:
        return null_array(ctx.resp3)

    def work() -> bytes:
        replies = []
        ctx.in_exec = True
        databases = ctx.keyspace.databases
        run = Inside(ctx).run
        try:
            for entry, queued in requests:
                if ctx.session is not session or ctx.db is not databases[session.db]:
                    ctx.enter(session, ctx.now_ms)  # after a script
                replies.append(run(entry, queued))
                assert session.waiter is None, "a command blocked inside a transaction"
        finally:
            ctx.in_exec = False
        silent = replies.count(b"")  # CLIENT REPLY OFF and SKIP
        return array_header(len(requests) - silent) + b"".join(replies)

    if any("script_runner" in entry.command.flags for entry, _ in requests):
        try:
            machine = ctx.server.host.script_machine()
        except CommandError:  # without Lua the scripts fail, and the rest runs
            return work()
        return ctx.exclusively(args, machine.steps(work))
    return work()
