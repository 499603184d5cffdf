"""Publishes keyspace events to subscribers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.effects.applier import Publisher
from anabranch.effects.events import Event
from anabranch.engine.channels import Channels
from anabranch.engine.withheld import Withheld


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
