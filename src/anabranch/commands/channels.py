"""Publish/subscribe: who listens to which channel or pattern, and keyspace notifications."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.keyspace.pattern import compile_glob
from anabranch.resp.encode import encode
from anabranch.resp.values import Push

if TYPE_CHECKING:
    from anabranch.commands.session import Session

__all__ = ["Channels", "event_flags"]

_CLASSES = "Kg$lszhxeEtmdnoc"  # bit positions of our own choosing
_BITS = {letter: 1 << index for index, letter in enumerate(_CLASSES)}
_ALL = "g$lshztxed"  # what "A" stands for: neither m nor n


def event_flags(letters: str) -> int | None:
    """The classes of a ``notify-keyspace-events`` value as bits; None for an invalid letter.

    0 unless K or E and at least one class are given: then nothing is ever sent.
    """
    flags = 0
    for letter in letters:
        for each in _ALL if letter == "A" else letter:
            if each not in _BITS:
                return None
            flags |= _BITS[each]
    return flags


class Channels:
    """Subscriptions of all connections."""

    def __init__(self) -> None:
        self.channels: dict[bytes, dict[Session, None]] = {}
        self.patterns: dict[bytes, dict[Session, None]] = {}
        self.shards: dict[bytes, dict[Session, None]] = {}
        self.pending: dict[Session, None] = {}  # sessions with messages to write out

    def send(self, session: Session, message: list[object]) -> None:
        """Put a push message behind what the connection is about to get."""
        session.outbox.append(encode(Push(message), session.resp3))
        self.pending[session] = None

    def publish(self, channel: bytes, message: bytes) -> int:
        """Deliver to subscribers of the channel, then of matching patterns; returns how many."""
        count = 0
        for session in self.channels.get(channel, ()):
            self.send(session, [b"message", channel, message])
            count += 1
        for pattern, sessions in self.patterns.items():
            if compile_glob(pattern).fullmatch(channel):
                for session in sessions:
                    self.send(session, [b"pmessage", pattern, channel, message])
                    count += 1
        return count

    def publish_shard(self, channel: bytes, message: bytes) -> int:
        """Deliver to shard subscribers of the channel."""
        sessions = self.shards.get(channel, {})
        for session in sessions:
            self.send(session, [b"smessage", channel, message])
        return len(sessions)

    def notify(self, flags: int, kind: str, event: str, db: int, key: bytes) -> None:
        """Publish a keyspace event if its class is in force."""
        if not flags & _BITS[kind]:
            return
        if flags & _BITS["K"]:
            self.publish(b"__keyspace@%d__:%b" % (db, key), event.encode())
        if flags & _BITS["E"]:
            self.publish(b"__keyevent@%d__:%b" % (db, event.encode()), key)

    def forget(self, session: Session) -> None:
        """A connection is gone."""
        for registry, names in (
            (self.channels, session.channels),
            (self.patterns, session.patterns),
            (self.shards, session.shard_channels),
        ):
            for name in names:
                listeners = registry.get(name)
                if listeners is not None:
                    listeners.pop(session, None)
                    if not listeners:
                        del registry[name]
            names.clear()
        self.pending.pop(session, None)
