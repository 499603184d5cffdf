"""One pending entry. A module of its own, as what is made by ``msgspec`` cannot be compiled."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct


class Holder(Protocol):
    """Who was given an entry: a :class:`~anabranch.stream.groups.pending_list.Consumer`."""

    name: bytes
    seen_ms: int
    active_ms: int
    pending: dict[int, Any]


class PendingEntry(Struct, eq=False, gc=False):
    """One delivered and not yet acknowledged entry.

    ``consumer`` is None for a released (NACKed) entry. ``delivery_ms`` is a wall-clock time;
    ``stamp`` orders updates within one millisecond (CLAIM serves the longest untouched first).
    A Struct, because deliveries make many at once. The garbage collector does not know them, but
    an entry and its consumer refer to each other: a group that is dropped must be taken apart
    (``keyspace/deferred_free.py``).
    """

    entry_id: int
    consumer: Holder | None
    delivery_ms: int
    delivery_count: int
    stamp: int
    number: int = 0
    """Of the entry; 0: only its ID is known, as in a region alone."""

    @property
    def was_handed_out(self) -> bool:
        """Whether a consumer has got it: not so if it only waits for others of its key."""
        return self.consumer is not None or self.delivery_count > 0

    def copy(self) -> PendingEntry:
        """A copy of the entry in its present state."""
        return PendingEntry(
            self.entry_id,
            self.consumer,
            self.delivery_ms,
            self.delivery_count,
            self.stamp,
            self.number,
        )
