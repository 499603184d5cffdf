"""A connection in words: the lines of CLIENT LIST and CLIENT INFO, and choosing connections.

Field names and their order are those of Redis. Buffer sizes are what this server holds for a
connection: there is no buffer of a fixed size, so ``rbs`` and ``rbp`` are the bytes of replies that
the buffer holds now. Figures that it does not keep are 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from anabranch.errors import CommandError

if TYPE_CHECKING:
    from anabranch.engine.session import Session

_LOGGED_MAX: Final = 128

_TYPES = {
    b"normal": "normal",
    b"master": "master",
    b"replica": "replica",
    b"slave": "replica",
    b"pubsub": "pubsub",
}


def client_type_argument(raw: bytes) -> str:
    """The connection type in a request; there are never masters or replicas here."""
    kind = _TYPES.get(raw.lower())
    if kind is None:
        raise CommandError(b"ERR Unknown client type '%b'" % raw)
    return kind


def client_type(session: Session) -> str:
    """The type of a connection for CLIENT LIST TYPE and CLIENT KILL TYPE."""
    return "pubsub" if session.subscriptions or session.shard_channels else "normal"


def describe(session: Session, command: str, now_ms: int) -> str:
    """One line about a connection, with its end of line; ``command`` is its last command."""
    fields = _fields(session, command, now_ms)
    return _form(tuple(fields)) % tuple(fields.values())


@lru_cache(maxsize=1)
def _form(names: tuple[str, ...]) -> str:
    """A line without its values: with it, a line takes half the time."""
    return " ".join([f"{name}=%s" for name in names]) + "\n"


def describe_briefly(session: Session, command: str, now_ms: int) -> str:
    """The line without its end, for a log; no value has more than 128 characters."""
    fields = _fields(session, command, now_ms)
    return " ".join([f"{name}={str(value)[:_LOGGED_MAX]}" for name, value in fields.items()])


def _fields(session: Session, command: str, now_ms: int) -> dict[str, object]:
    backlog = session.backlog
    args_bytes = sum(map(len, backlog[0])) if backlog else 0
    query_bytes = max(session.query_bytes, sum(len(arg) for args in backlog for arg in args))
    waiting_bytes = output_bytes = sum(map(len, session.outbox))
    if session.connection is not None:
        output_bytes += session.connection.unsent_bytes
    return {
        "id": session.id,
        "addr": session.address,
        "laddr": session.local_address,
        "fd": session.descriptor,
        "name": session.name.decode("latin-1"),
        "age": max(now_ms - session.created_ms, 0) // 1000,
        "idle": max(now_ms - session.last_ms, 0) // 1000,
        "flags": _flags(session),
        "db": session.db,
        "sub": len(session.channels),
        "psub": len(session.patterns),
        "ssub": len(session.shard_channels),
        "multi": -1 if session.transaction is None else len(session.transaction),
        "watch": len(session.watched),
        "qbuf": query_bytes,
        "qbuf-free": 0,
        "argv-mem": args_bytes,
        "multi-mem": session.transaction_bytes,
        "rbs": output_bytes,
        "rbp": output_bytes,
        "obl": 0,
        "oll": len(session.outbox),
        "omem": output_bytes,
        "omem-shared": 0,
        "omem-unshared": output_bytes,
        "tot-mem": max(session.held_bytes + waiting_bytes, output_bytes),
        "events": "rw" if output_bytes else "r",
        "cmd": command or "NULL",
        "user": "default" if session.user is None else session.user.name.decode("latin-1"),
        "redir": -1,
        "resp": 3 if session.resp3 else 2,
        "lib-name": session.library_name.decode("latin-1"),
        "lib-ver": session.library_version.decode("latin-1"),
        "io-thread": 0,
        "tot-net-in": session.input_bytes,
        "tot-net-out": session.output_bytes,
        "tot-cmds": session.commands,
        "read-events": session.reads,
        "avg-pipeline-len-sum": session.commands,
        "avg-pipeline-len-cnt": session.reads,
    }


def _flags(session: Session) -> str:
    flags = (
        ("O", session.monitoring),
        ("P", client_type(session) == "pubsub"),
        ("x", session.transaction is not None),
        ("b", session.blocked),
        ("d", session.watch_broken),
        ("c", session.closing),
        ("U", session.address.startswith("/")),
        ("e", session.no_evict),
        ("T", session.no_touch),
    )
    return "".join([letter for letter, applies in flags if applies]) or "N"
