"""The one way by which a keyspace changes: by own effects and those of other regions.

:meth:`Applier.emit` gets a decision of this region. With several regions it expresses the decision
in effects that every region applies alike (:mod:`anabranch.effects.prepare`). It applies each
effect, records it for the log and publishes its keyspace events. :meth:`Applier.apply_remote`
applies an effect of another region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from anabranch.config.settings import Settings
from anabranch.effects import kinds
from anabranch.effects.apply import apply
from anabranch.effects.apply_stream import append_entry, log_at, tell_observers
from anabranch.effects.events import Event, events_of
from anabranch.effects.prepare import mode_of
from anabranch.effects.recorded import Recorded, numbers_of
from anabranch.effects.rewriting import Rewriting
from anabranch.keyspace.database import Database
from anabranch.keyspace.keyspace import Keyspace
from anabranch.metrics.stats import Stats
from anabranch.stream.stream import Stream

_ADD: Final = kinds.Add  # a name of an interpreted module is looked up each time
_REMEMBER: Final = kinds.Remember


class Author:
    """Who decides changes here: the session of a client."""

    def wrote(self, replica_id: int, number: int) -> None:
        """The author has written an effect that goes to other regions."""
        raise NotImplementedError


class Publisher:
    """Publishes keyspace events. A base class: XADD reads ``flags`` each time."""

    def __init__(self) -> None:
        self.flags = 0
        """The classes of keyspace events that may have subscribers; 0: none."""

    def publish(self, events: Sequence[Event]) -> None:
        """Send events to their subscribers."""
        raise NotImplementedError


class Applier:
    """Applies effects to a keyspace, records them, and publishes their keyspace events."""

    def __init__(
        self,
        keyspace: Keyspace,
        settings: Settings,
        stats: Stats,
        publisher: Publisher,
        author: Author,
    ) -> None:
        """``author`` is the first value of :attr:`author`."""
        self.keyspace = keyspace
        self.replica = keyspace.replica
        self.settings = settings
        self.publisher = publisher
        self.author = author
        self.now_ms = 0
        self.record: Recorded | None = None  # for the log
        self.encode_ahead: Callable[[kinds.AddRun], None] = _nothing  # what is recorded later
        self.rewriting: Rewriting | None = None  # what is prepared of the next decision
        self.before: Callable[[kinds.Effect], None] | None = None  # for a snapshot in progress
        self.mode = mode_of(self.replica)
        self._prepare = self.mode.prepare
        self._is_numbered = self.mode.is_numbered
        self.added_bytes_max = self.mode.added_bytes_max
        self._stats = stats

    def emit(self, effect: kinds.Effect) -> None:
        """Apply a change that was decided here, record it, and publish its keyspace events."""
        replica = self.replica
        is_numbered = self._is_numbered
        if is_numbered:
            replica.begin_own()
        events = events_of(self.keyspace, effect) if self.publisher.flags else ()
        prepare = self._prepare.get(type(effect))
        if prepare is None:
            self._apply_own(effect, is_numbered)
        else:
            for each in prepare(self, effect):
                self._apply_own(each, is_numbered)
        if events:
            self.publisher.publish(events)

    def _apply_own(self, effect: kinds.Effect, is_numbered: bool) -> None:
        """Apply and record one effect of this region."""
        if self.before is not None:
            self.before(effect)
        if is_numbered and not effect.local:
            replica = self.replica
            replica.begin_own()
            apply(self.keyspace, effect)
            replica.finish(effect, numbers_of(effect))
            self.author.wrote(replica.own, replica.vector[replica.own])
        else:
            apply(self.keyspace, effect)
        if self.record is not None:
            self.record.append(effect)

    def add(
        self,
        database: Database,
        key: bytes,
        stream: Stream,
        entry_id: int,
        fragment: bytes,
        weight: int,
        opens: bool,
    ) -> None:
        """Apply, record and publish the addition of one entry to a stream that is here or begun.

        The effect is :class:`kinds.Add`. It is the most frequent decision, so the stream is not
        looked up again, and nothing is read out of the effect.
        """
        replica = self.replica
        log = stream.local
        shift, position = 1, -1
        is_numbered = self._is_numbered
        if is_numbered:
            replica.begin_own()
            position = log.next_position or replica.number
        events: Sequence[Event] = ()
        if self.before is not None or self.publisher.flags:
            effect = _ADD(database.index, key, entry_id, fragment, weight, opens, position)
            if self.publisher.flags:
                events = events_of(self.keyspace, effect)
            if self.before is not None:
                self.before(effect)
        if is_numbered:
            log, shift = log_at(stream, replica, position)
        append_entry(database, stream, log, entry_id, fragment, weight, opens, shift)
        if database.watchers or database.waiters or key not in database.values:
            tell_observers(self.keyspace, database, key, stream)
        stream.last_id = entry_id
        if is_numbered:
            replica.finish_entry(database.index, key)
            self.author.wrote(replica.own, replica.number)
        if self.record is not None:
            self.record.go_to(database.index, key, position)
            self.record.add(entry_id, fragment, weight, opens)
        if events:
            self.publisher.publish(events)

    def remember(
        self, database: Database, key: bytes, stream: Stream, pid: bytes, iid: bytes, entry_id: int
    ) -> None:
        """Do the same for the tag of an entry just added (:class:`kinds.Remember`).

        In a region alone nothing but the table of the producers changes.
        """
        if self._is_numbered or self.before is not None:
            self.emit(_REMEMBER(database.index, key, pid, iid, entry_id, self.now_ms))
            return
        if not stream.is_due:
            database.account.changed(stream)
        stream.producers.remember(pid, iid, entry_id, self.now_ms)
        if self.record is not None:
            self.record.append(_REMEMBER(database.index, key, pid, iid, entry_id, self.now_ms))

    def apply_remote(self, effect: kinds.Effect) -> None:
        """Apply a change that another region decided, and publish its keyspace events."""
        events: Sequence[Event] = ()
        if self.settings.notify_remote_effects and self.publisher.flags:
            events = events_of(self.keyspace, effect)
        if self.before is not None:
            self.before(effect)
        apply(self.keyspace, effect)
        if events:
            self.publisher.publish(events)

    # -- changes that follow from other things ------------------------------------------------

    def expire_if_due(self, database: Database, key: bytes, now_ms: int) -> None:
        """Remove a key whose deadline has passed."""
        deadline = database.deadlines.get(key)
        if deadline is not None and deadline <= now_ms:
            self._stats.expired_keys += 1
            self.emit(kinds.Delete(database.index, key, True))

    def create_stream(self, database: Database, key: bytes) -> Stream:
        """Bind a key that does not exist to a new empty stream.

        With several regions the first addition does this; until then no client can see the stream.
        """
        return self.mode.create_stream(self, database, key)


def _nothing(_: kinds.AddRun) -> None:
    """Record nothing: there is no log."""
