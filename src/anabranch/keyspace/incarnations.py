"""Where the positions of a new stream begin, so that none is used twice for a key.

A reader by positions (``AB.EXPORT``) would otherwise take the entries of a stream that was deleted
and made again for entries that it has read already. So positions begin at the stream's
*incarnation*, a number above all positions of deleted streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.stream.stream import Stream

if TYPE_CHECKING:
    from anabranch.keyspace.values import Value


class Incarnations:
    """The next incarnation, for all keys of a server."""

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = 0

    def above(self, value: Value | None) -> int:
        """The incarnation of a stream that replaces ``value``."""
        if type(value) is not Stream:
            return self.next
        used = max(log.next_position for log in value.logs.values())
        return max(self.next, value.incarnation + used + 1)

    def retire(self, value: Value) -> None:
        """A value is about to be unbound from its key."""
        self.next = self.above(value)
