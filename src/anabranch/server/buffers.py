"""What connections hold in memory, as a running sum, and what waits to be written or applied.

A connection tells when what it holds changes (an unfinished request, a MULTI queue, requests behind
a blocked one, replies that wait for the disk); what clients do not read is looked at some times a
second, and only where there is any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sized


__all__ = ["Buffers"]

CONNECTION_BYTES: Final = 7 * 1024
"""What an idle connection takes, as measured with ten thousand of them."""


class Unread(Protocol):
    """A connection whose client does not read."""

    transport: asyncio.Transport


class Buffers:
    """The sum over the connections of a server."""

    def __init__(self, connections: Sized) -> None:
        self._connections = connections
        self.held_bytes = 0
        """What connections have told of."""
        self.stalled: set[Unread] = set()
        """Those of clients that do not read."""
        self.others: list[Callable[[], int]] = []
        """Who else holds bytes; asked some times a second."""
        self._unread_bytes = 0
        self.others_bytes = 0
        """What they said last."""

    @property
    def used_bytes(self) -> int:
        """What connections hold."""
        return self.held_bytes + self._unread_bytes + CONNECTION_BYTES * len(self._connections)

    def sample(self) -> None:
        """Look at what is not read, and at what others hold."""
        self.others_bytes = sum(each() for each in self.others)
        self._unread_bytes = sum(each.transport.get_write_buffer_size() for each in self.stalled)
