"""Publish/subscribe: subscribers of channels and patterns, and keyspace events for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from anabranch.effects.applier import Publisher
from anabranch.effects.events import Event
from anabranch.engine.withheld import Withheld
from anabranch.metrics.holdings import DICT_BYTES, DICT_SLOT_BYTES, NAME_BYTES, PAIR_BYTES
from anabranch.pattern import Matcher, compile_glob, matcher_bytes
from anabranch.resp.encode import encode
from anabranch.resp.values import PushMessage
from anabranch.scheduling import Steps

if TYPE_CHECKING:
    from anabranch.engine.session import Session

_SUBSCRIPTION_BYTES: Final = NAME_BYTES + DICT_SLOT_BYTES + DICT_SLOT_BYTES // 2
"""What a subscription takes for each connection beside its name."""

_NAME_ONCE_BYTES: Final = DICT_BYTES + DICT_SLOT_BYTES

NAMES_AT_ONCE: Final = 50
"""Subscriptions that begin or end in one step: some may be patterns that are compiled."""

_CLASSES = "Kg$lszhxeEtmdnoc"  # bit positions of our own choosing
_BITS = {letter: 1 << index for index, letter in enumerate(_CLASSES)}
_TARGETS = _BITS["K"] | _BITS["E"]
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
    if not flags & _TARGETS or not flags & ~_TARGETS:
        return 0
    return flags


class Channels:
    """Subscriptions of all connections."""

    def __init__(self) -> None:
        self.channels: dict[bytes, dict[Session, None]] = {}
        self.patterns: dict[bytes, dict[Session, None]] = {}
        # Of the patterns, compiled once, and the bytes that each takes
        self._matchers: dict[bytes, tuple[Matcher, int]] = {}
        self.shards: dict[bytes, dict[Session, None]] = {}
        self.pending: dict[Session, None] = {}  # sessions with messages to write out

    def send(self, sessions: Iterable[Session], message: list[object]) -> int:
        """Append a push message to the output of connections that stay; returns how many."""
        frames: list[bytes | None] = [None, None]  # one for each protocol
        count = 0
        for session in sessions:
            if session.closing:  # one with very many subscriptions leaves them in steps
                continue
            frame = frames[session.resp3]
            if frame is None:
                frame = frames[session.resp3] = encode(PushMessage(message), session.resp3)
            session.outbox.append(frame)
            self.pending[session] = None
            count += 1
        return count

    def publish(self, channel: bytes, message: bytes) -> int:
        """Deliver to subscribers of the channel, then of matching patterns; returns how many."""
        count = self.send(self.channels.get(channel, ()), [b"message", channel, message])
        for pattern, sessions in self.patterns.items():
            if self._matchers[pattern][0](channel):
                count += self.send(sessions, [b"pmessage", pattern, channel, message])
        return count

    def join(
        self, registry: dict[bytes, dict[Session, None]], name: bytes, session: Session
    ) -> None:
        """A connection subscribes to a name; it may have done so before."""
        listeners = registry.get(name)
        if listeners is None:
            listeners = registry[name] = {}
            if registry is self.patterns:
                matches = compile_glob(name)
                self._matchers[name] = matches, matcher_bytes(matches)
            session.holdings.change("subscriptions", self._shared_bytes(registry, name))
        elif session in listeners:
            return
        listeners[session] = None
        session.hold("subscriptions", _SUBSCRIPTION_BYTES + len(name))

    def leave(
        self, registry: dict[bytes, dict[Session, None]], names: Iterable[bytes], session: Session
    ) -> None:
        """A connection unsubscribes from names; it may not have subscribed to all of them."""
        own_bytes = shared_bytes = 0
        are_patterns = registry is self.patterns
        for name in names:
            listeners = registry.get(name)
            if listeners is None or session not in listeners:
                continue
            own_bytes += _SUBSCRIPTION_BYTES + len(name)
            if len(listeners) > 1:
                del listeners[session]
                continue
            del registry[name]
            if are_patterns:
                shared_bytes += self._shared_bytes(registry, name)
                del self._matchers[name]
            else:
                shared_bytes += _NAME_ONCE_BYTES
        session.hold("subscriptions", -own_bytes)
        session.holdings.change("subscriptions", -shared_bytes)

    def _shared_bytes(self, registry: dict[bytes, dict[Session, None]], name: bytes) -> int:
        """What a name takes once, however many connections subscribe to it."""
        if registry is self.patterns:
            return _NAME_ONCE_BYTES + DICT_SLOT_BYTES + PAIR_BYTES + self._matchers[name][1]
        return _NAME_ONCE_BYTES

    def publish_shard(self, channel: bytes, message: bytes) -> int:
        """Deliver to shard subscribers of the channel."""
        return self.send(self.shards.get(channel, ()), [b"smessage", channel, message])

    def notify(self, flags: int, kind: str, event: str, db: int, key: bytes) -> None:
        """Publish a keyspace event if its class is in force."""
        if not flags & _BITS[kind]:
            return
        if flags & _BITS["K"]:
            self.publish(b"__keyspace@%d__:%b" % (db, key), event.encode())
        if flags & _BITS["E"]:
            self.publish(b"__keyevent@%d__:%b" % (db, event.encode()), key)

    def leave_all(self, session: Session) -> Steps[None]:
        """End all subscriptions of a connection, some in each step."""
        for registry, names in (
            (self.channels, session.channels),
            (self.patterns, session.patterns),
            (self.shards, session.shard_channels),
        ):
            while names:
                some = [names.popitem()[0] for _ in range(min(len(names), NAMES_AT_ONCE))]
                self.leave(registry, some, session)
                yield


class KeyspaceEvents(Publisher):
    """Publishes keyspace events; events of changes that are not safe wait until they are."""

    def __init__(self, channels: Channels, withheld: Callable[[], Withheld | None]) -> None:
        """``withheld`` returns what a crash could undo, while the disk is in trouble."""
        super().__init__()  # ``flags`` are made by :func:`event_flags`
        self._channels = channels
        self._withheld = withheld

    def publish(self, events: Sequence[Event]) -> None:
        """Send events to subscribers; those of keys that cannot be read now are sent later."""
        withheld = self._withheld()
        for kind, event, db, key in events:
            if withheld is not None and withheld.write_set().includes(db, key):
                withheld.events.append((kind, event, db, key))
            else:
                self._channels.notify(self.flags, kind, event, db, key)

    def miss(self, db: int, key: bytes) -> None:
        """A read command did not find its key."""
        if self.flags:
            self._channels.notify(self.flags, "m", "keymiss", db, key)
