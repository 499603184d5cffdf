"""The one way by which a keyspace changes: by own effects and those of other regions.

:meth:`Applier.emit` gets a decision of this region. With several regions it expresses the decision
in effects that every region applies alike (:mod:`anabranch.effects.prepare`). It applies each
effect, records it for the log and publishes its keyspace events. :meth:`Applier.apply_remote`
applies an effect of another region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from anabranch.effects import kinds
from anabranch.effects.apply import apply, numbers_of
from anabranch.effects.events import Event, events_of
from anabranch.effects.prepare import mode_of
from anabranch.stream.stream import Stream

if TYPE_CHECKING:
    from anabranch.config.settings import Settings
    from anabranch.effects.rewriting import Rewriting
    from anabranch.keyspace.database import Database
    from anabranch.keyspace.keyspace import Keyspace
    from anabranch.metrics.stats import Stats


class Author(Protocol):
    """Who decides changes here: the session of a client."""

    def wrote(self, replica_id: int, number: int) -> None:
        """The author has written an effect that goes to other regions."""


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
        self.record: Callable[[kinds.Effect], None] | None = None  # for the log
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
            self.record(effect)

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
