"""The rows of the command table: transactions."""

from __future__ import annotations

from functools import partial

from anabranch.commands.request.spec import Command, KeySpec
from anabranch.commands.transactions import transaction

__all__ = ["COMMANDS"]

Row = partial(Command, group="transactions")

_ANYWHERE = "noscript loading stale fast allow_busy"


COMMANDS: list[Command] = [
    Row(
        "multi",
        transaction.multi,
        arity=1,
        flags=_ANYWHERE,
        since="1.2.0",
        summary="Begins a transaction: later commands are queued.",
    ),
    Row(
        "exec",
        transaction.execute,
        arity=1,
        flags="noscript loading stale skip_slowlog",
        since="1.2.0",
        summary="Runs the queued commands of a transaction at one moment.",
        complexity="That of the queued commands.",
    ),
    Row(
        "discard",
        transaction.discard,
        arity=1,
        flags=_ANYWHERE,
        since="2.0.0",
        summary="Drops the queued commands of a transaction.",
        complexity="O(N), N being the watched keys.",
    ),
    Row(
        "watch",
        transaction.watch,
        arity=-2,
        flags=_ANYWHERE,
        keys=(KeySpec("RO", last=-1),),
        since="2.2.0",
        summary="Makes the next transaction depend on keys staying as they are.",
        complexity="O(N), N being the keys.",
        syntax="key [key ...]",
    ),
    Row(
        "unwatch",
        transaction.unwatch,
        arity=1,
        flags=_ANYWHERE,
        since="2.2.0",
        summary="Takes back all WATCHes of the connection.",
        complexity="O(N), N being the watched keys.",
    ),
]
