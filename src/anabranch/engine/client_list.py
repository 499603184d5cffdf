"""A connection in words: the lines of CLIENT LIST and CLIENT INFO, and choosing connections.

Field names and their order are those of Redis. Buffer sizes are what this server holds for a
connection: there is no buffer of a fixed size, so ``rbs`` and ``rbp`` are the bytes of replies that
the buffer holds now. Figures that it does not keep are 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.engine.session import Session
from anabranch.errors import CommandError

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
    return "pubsub" if session.listens else "normal"


def describe(sessions: Iterable[Session], asking: Session, command: str, now_ms: int) -> bytes:
    """A line about each connection; ``command`` is what the asking one runs now."""
    lines = _ClientLines(now_ms, None)
    written = [
        lines.line(each, command if each is asking else each.last_command) for each in sessions
    ]
    return "".join(written).encode("utf-8", "surrogateescape")


def describe_briefly(session: Session, command: str, now_ms: int) -> str:
    """A client for the log: without the end of line, no name longer than 128 characters."""
    return _ClientLines(now_ms, _LOGGED_MAX).line(session, command)[:-1]


_Buffers = tuple[int, int, int, int, int, int]
_Counts = tuple[int, int, int, int, int, int]
_Traffic = tuple[int, int, int, int]


class _ClientLines:
    """Writes lines about connections, all of one moment.

    Most clients are idle, and do not differ in most fields: these parts of a line are kept for the
    next one.
    """

    def __init__(self, now_ms: int, names_max: int | None) -> None:
        """``names_max`` is where names are cut off; None: nowhere."""
        self._now_ms = now_ms
        self._names_max = names_max
        self._counts: _Counts = (-1, 0, 0, 0, 0, 0)
        self._counts_text = ""
        self._buffers: _Buffers = (-1, 0, 0, 0, 0, 0)
        self._buffers_text = ""
        self._traffic: _Traffic = (-1, 0, 0, 0)
        self._traffic_text = ""

    def line(self, session: Session, command: str) -> str:
        """One line, with its end of line; ``command`` is the last command of the connection."""
        now_ms = self._now_ms
        age = (now_ms - session.created_ms) // 1000 if now_ms > session.created_ms else 0
        idle = (now_ms - session.last_ms) // 1000 if now_ms > session.last_ms else 0
        user = "default" if session.user is None else self._name(session.user.name)
        return (
            f"id={session.id} addr={session.address} laddr={session.local_address}"
            f" fd={session.descriptor} name={self._name(session.name)} age={age} idle={idle}"
            f" flags={_flags(session)}{self._counts_of(session)}{self._buffers_of(session)}"
            f" cmd={command or 'NULL'} user={user} redir=-1 resp={3 if session.resp3 else 2}"
            f" lib-name={self._name(session.library_name)}"
            f" lib-ver={self._name(session.library_version)}{self._traffic_of(session)}"
        )

    def _name(self, name: bytes) -> str:
        if not name:
            return ""
        text = name.decode("utf-8", "surrogateescape")
        return text if self._names_max is None else text[: self._names_max]

    def _counts_of(self, session: Session) -> str:
        """The fields from ``db`` to ``watch``."""
        counts = (
            session.db,
            len(session.channels),
            len(session.patterns),
            len(session.shard_channels),
            -1 if session.transaction is None else len(session.transaction),
            0 if session.watch_broken else len(session.watched),
        )
        if counts != self._counts:
            self._counts = counts
            db, channels, patterns, shard_channels, queued, watched = counts
            self._counts_text = (
                f" db={db} sub={channels} psub={patterns} ssub={shard_channels} multi={queued}"
                f" watch={watched}"
            )
        return self._counts_text

    def _buffers_of(self, session: Session) -> str:
        """The fields from ``qbuf`` to ``events``."""
        query_bytes, args_bytes = session.query_bytes, 0
        backlog = session.backlog
        if backlog:
            args_bytes = sum(map(len, backlog[0]))
            query_bytes = max(query_bytes, sum(len(arg) for args in backlog for arg in args))
        waiting_bytes = 0
        for part in session.outbox:
            waiting_bytes += len(part)
        output_bytes = waiting_bytes
        if session.connection is not None:
            output_bytes += session.connection.unsent_bytes
        total_bytes = max(session.held_bytes + waiting_bytes, output_bytes)
        buffers = (
            query_bytes,
            args_bytes,
            session.transaction_bytes,
            output_bytes,
            len(session.outbox),
            total_bytes,
        )
        if buffers != self._buffers:
            self._buffers = buffers
            self._buffers_text = (
                f" qbuf={query_bytes} qbuf-free=0 argv-mem={args_bytes}"
                f" multi-mem={session.transaction_bytes} rbs={output_bytes} rbp={output_bytes}"
                f" obl=0 oll={len(session.outbox)} omem={output_bytes} omem-shared=0"
                f" omem-unshared={output_bytes} tot-mem={total_bytes}"
                f" events={'rw' if output_bytes else 'r'}"
            )
        return self._buffers_text

    def _traffic_of(self, session: Session) -> str:
        """The fields from ``io-thread`` on, and the end of line."""
        traffic = (session.input_bytes, session.output_bytes, session.commands, session.reads)
        if traffic != self._traffic:
            self._traffic = traffic
            received, sent, commands, reads = traffic
            self._traffic_text = (
                f" io-thread=0 tot-net-in={received} tot-net-out={sent} tot-cmds={commands}"
                f" read-events={reads} avg-pipeline-len-sum={commands}"
                f" avg-pipeline-len-cnt={reads}\n"
            )
        return self._traffic_text


def _flags(session: Session) -> str:
    flags = ""
    if session.monitoring:
        flags += "O"
    if session.listens:
        flags += "P"
    if session.transaction is not None:
        flags += "x"
    if session.waiter is not None:
        flags += "b"
    if session.watch_broken:
        flags += "d"
    if session.closing:
        flags += "c"
    if session.address.startswith("/"):
        flags += "U"
    if session.no_evict:
        flags += "e"
    if session.no_touch:
        flags += "T"
    return flags or "N"
