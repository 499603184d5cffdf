"""What a connection queues between MULTI and EXEC, and the keys that it watches."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from anabranch.engine.served_command import ServedCommand
from anabranch.engine.session import Session
from anabranch.keyspace.database import Database
from anabranch.keyspace.keyspace import Keyspace
from anabranch.metrics.holdings import (
    NAME_BYTES,
    OBJECT_BYTES,
    PAIR_BYTES,
    SET_BYTES,
    SET_SLOT_BYTES,
)
from anabranch.resp.encode import QUEUED
from anabranch.resp.limits import ARGUMENT_BYTES, REQUEST_BYTES
from anabranch.scheduling import Steps

_PLACE_BYTES: Final = NAME_BYTES + PAIR_BYTES + SET_SLOT_BYTES + OBJECT_BYTES
"""What a watched key takes for each client beside its name."""

_WATCHERS_BYTES: Final = SET_BYTES + SET_SLOT_BYTES
"""What a watched key takes once."""

_AT_ONCE: Final = 500
"""What one step drops: half a millisecond."""


def forget_watches(keyspace: Keyspace, session: Session) -> None:
    """Stop watching keys, and forget whether they have changed."""
    _forget(keyspace, session, session.watched)
    session.watched = set()  # a cleared one would keep its table
    session.watch_broken = False


def _forget(keyspace: Keyspace, session: Session, places: Collection[tuple[int, bytes]]) -> None:
    """Stop watching some of the keys that a session watches."""
    size = gone = 0
    for index, key in places:
        watchers = keyspace.databases[index].watchers
        watching = watchers.get(key)
        size += _PLACE_BYTES + len(key)
        if watching is None:  # the key has changed, and the others forgot it
            continue
        watching.discard(session)
        if not watching:
            del watchers[key]
            gone += 1
    session.hold("watched", -size)
    session.holdings.change("watched", -gone * _WATCHERS_BYTES)


def left(keyspace: Keyspace, session: Session) -> Steps[None]:
    """A connection has ended: drop its watches and its queue, some in each step."""
    watched, requests = session.watched, session.transaction or []
    while watched:
        some = [watched.pop() for _ in range(min(len(watched), _AT_ONCE))]
        _forget(keyspace, session, some)
        yield
    while requests:
        del requests[-_AT_ONCE:]
        yield
    end_transaction(keyspace, session)


def watch_keys(session: Session, database: Database, keys: Iterable[bytes]) -> None:
    """EXEC will run nothing if one of these keys changes before it."""
    watchers = database.watchers
    size = new = 0
    for key in keys:
        place = database.index, key
        if place in session.watched:
            continue
        watching = watchers.get(key)
        if watching is None:
            watching = watchers[key] = set()
            new += 1
        watching.add(session)
        session.watched.add(place)
        size += _PLACE_BYTES + len(key)
    session.hold("watched", size)
    session.holdings.change("watched", new * _WATCHERS_BYTES)


def end_transaction(keyspace: Keyspace, session: Session) -> None:
    """End MULTI, and drop its queue."""
    session.transaction = None
    session.hold("requests", -session.transaction_bytes)
    session.transaction_bytes = 0
    session.transaction_error = None
    forget_watches(keyspace, session)
    session.refresh()


def queue(session: Session, entry: ServedCommand, args: list[bytes]) -> bytes:
    """Keep a request for EXEC, unless it is certain by now that EXEC will run nothing."""
    requests = session.transaction
    assert requests is not None
    if session.transaction_error is None and not session.watch_broken:
        requests.append((entry, args))
        size = REQUEST_BYTES + sum([ARGUMENT_BYTES + len(arg) for arg in args])
        session.transaction_bytes += size
        session.hold("requests", size)
    return QUEUED
