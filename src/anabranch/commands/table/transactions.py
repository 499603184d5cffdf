"""The rows of the command table: transactions."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = rows(
    "transactions",
    "anabranch.commands.transactions",
    """
multi 1 transaction.multi 1.2.0 noscript loading stale fast allow_busy
    does: Begins a transaction: later commands are queued.
exec 1 transaction.execute 1.2.0 noscript loading stale skip_slowlog
    does: Runs the queued commands of a transaction at one moment.
    cost: That of the queued commands.
discard 1 transaction.discard 2.0.0 noscript loading stale fast allow_busy
    does: Drops the queued commands of a transaction.
    cost: O(N), N being the watched keys.
watch -2 transaction.watch 2.2.0 noscript loading stale fast allow_busy
    key [key ...]
    does: Makes the next transaction depend on keys staying as they are.
    cost: O(N), N being the keys.
    keys: @1..-1 RO
unwatch 1 transaction.unwatch 2.2.0 noscript loading stale fast allow_busy
    does: Takes back all WATCHes of the connection.
    cost: O(N), N being the watched keys.
""",
    is_hot=True,
)
