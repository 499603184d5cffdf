"""The memory of connections as a running sum, and the bytes that wait to be written or applied.

A connection reports changes of what it holds: an unfinished request, a MULTI queue, requests behind
a blocked one, replies that wait for the disk. Output that clients do not read is measured some
times a second, for those connections only that have any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sized


__all__ = ["Buffers"]

CONNECTION_BYTES: Final = 7 * 1024
"""Bytes of an idle connection, measured with ten thousand of them."""


class Unread(Protocol):
    """A connection whose client does not read."""

    transport: asyncio.Transport


class Buffers:
    """The sum over the connections of a server."""

    def __init__(self, connections: Sized) -> None:
        self._connections = connections
        self.held_bytes = 0
        """Bytes that connections have reported."""
        self.stalled: set[Unread] = set()
        """Bytes of output that clients do not read."""
        self.others: list[Callable[[], int]] = []
        """Other holders of bytes, called some times a second."""
        self._unread_bytes = 0
        self.others_bytes = 0
        """The last sum of the other holders."""

    @property
    def used_bytes(self) -> int:
        """All bytes that connections hold."""
        return self.held_bytes + self._unread_bytes + CONNECTION_BYTES * len(self._connections)

    def sample(self) -> None:
        """Measure unread output and the other holders."""
        self.others_bytes = sum(each() for each in self.others)
        self._unread_bytes = sum(each.transport.get_write_buffer_size() for each in self.stalled)
