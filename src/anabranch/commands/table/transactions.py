"""The rows of the command table: transactions."""

from __future__ import annotations

from anabranch.commands.request.spec import Command, KeySpec
from anabranch.commands.transactions import transaction

__all__ = ["COMMANDS"]

_ANYWHERE = "noscript loading stale fast allow_busy"


COMMANDS: list[Command] = [
    Command(
        "multi",
        transaction.multi,
        arity=1,
        flags=_ANYWHERE,
        categories="fast transaction",
        since="1.2.0",
        group="transactions",
        summary="Begins a transaction: later commands are queued.",
        complexity="O(1)",
    ),
    Command(
        "exec",
        transaction.execute,
        arity=1,
        flags="noscript loading stale skip_slowlog",
        categories="slow transaction",
        since="1.2.0",
        group="transactions",
        summary="Runs the queued commands of a transaction at one moment.",
        complexity="That of the queued commands.",
    ),
    Command(
        "discard",
        transaction.discard,
        arity=1,
        flags=_ANYWHERE,
        categories="fast transaction",
        since="2.0.0",
        group="transactions",
        summary="Drops the queued commands of a transaction.",
        complexity="O(N), N being the watched keys.",
    ),
    Command(
        "watch",
        transaction.watch,
        arity=-2,
        flags=_ANYWHERE,
        categories="fast transaction",
        keys=(KeySpec("RO", last=-1),),
        since="2.2.0",
        group="transactions",
        summary="Makes the next transaction depend on keys staying as they are.",
        complexity="O(N), N being the keys.",
        syntax="key [key ...]",
    ),
    Command(
        "unwatch",
        transaction.unwatch,
        arity=1,
        flags=_ANYWHERE,
        categories="fast transaction",
        since="2.2.0",
        group="transactions",
        summary="Takes back all WATCHes of the connection.",
        complexity="O(N), N being the watched keys.",
    ),
]
