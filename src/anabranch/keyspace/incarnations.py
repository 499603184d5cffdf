"""Where the positions of a new stream begin, so that none is used twice for a key.

A reader by positions (``AB.EXPORT``) would otherwise take the entries of a stream that was deleted
and made again for entries that it has read already. So positions begin at the stream's
*incarnation*: where the former stream of the key ended, if the server remembers that
(:mod:`anabranch.keyspace.last_positions`), else a number above all positions of deleted streams.
"""

from __future__ import annotations

from anabranch.stream.stream import Stream


class Incarnations:
    """The next incarnation, for all keys of a server."""

    def __init__(self) -> None:
        self.next = 0

    def retire(self, stream: Stream) -> None:
        """A stream is about to be unbound from its key."""
        used = max(log.next_position for log in stream.logs.values())
        self.raise_above(stream.incarnation + used)

    def raise_above(self, position: int) -> None:
        """A deleted stream had used positions below this one."""
        self.next = max(self.next, position + 1)
