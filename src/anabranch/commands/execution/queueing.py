"""What a connection queues between MULTI and EXEC, and the keys that it watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.resp.encode import QUEUED
from anabranch.resp.limits import ARGUMENT_BYTES, REQUEST_BYTES

if TYPE_CHECKING:
    from anabranch.commands.execution.command_entry import Entry
    from anabranch.commands.execution.session import Session
    from anabranch.keyspace.keyspace import Keyspace

__all__ = ["end_transaction", "forget_watches", "queue"]


def forget_watches(keyspace: Keyspace, session: Session) -> None:
    """Stop watching keys, and forget whether they have changed."""
    for index, key in session.watched:
        watchers = keyspace.databases[index].watchers
        watching = watchers[key]
        watching.discard(session)
        if not watching:
            del watchers[key]
    session.watched.clear()
    session.watch_broken = False


def end_transaction(keyspace: Keyspace, session: Session) -> None:
    """End MULTI, and drop its queue."""
    session.transaction = None
    session.transaction_bytes = 0
    session.transaction_error = None
    forget_watches(keyspace, session)
    session.refresh()


def queue(session: Session, entry: Entry, args: list[bytes]) -> bytes:
    """Keep a request for EXEC, unless it is certain by now that EXEC will run nothing."""
    requests = session.transaction
    assert requests is not None
    if session.transaction_error is None and not session.watch_broken:
        requests.append((entry, args))
        session.transaction_bytes += REQUEST_BYTES + sum(
            [ARGUMENT_BYTES + len(arg) for arg in args]
        )
    return QUEUED
