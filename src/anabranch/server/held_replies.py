"""Replies that wait until what they tell of is safe, in the order in which they were made."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.server.connection import ClientConnection

__all__ = ["HeldReplies"]


class HeldReplies:
    """The held replies of one server. A position is one of its log."""

    def __init__(self) -> None:
        self._this_turn: list[tuple[ClientConnection, list[bytes]]] = []
        self._held: deque[tuple[int, ClientConnection, list[bytes]]] = deque()

    def hold(self, position: int | None, connection: ClientConnection, parts: list[bytes]) -> None:
        """Until a position is safe; None is the end of the present turn, not known yet."""
        if position is None:
            self._this_turn.append((connection, parts))
        else:
            self._held.append((position, connection, parts))

    def turn_ends(self, position: int) -> None:
        """The effects of the present turn end there."""
        self._held.extend((position, *each) for each in self._this_turn)
        self._this_turn.clear()

    def release(self, position: int) -> None:
        """All before it is safe: let these replies go out."""
        held = self._held
        while held and held[0][0] <= position:
            _, connection, parts = held.popleft()
            connection.release(parts)

    def drop(self, *, cut_off: bool) -> None:
        """They will never go out; ``cut_off`` disconnects those who wait for them."""
        waiting = [connection for _, connection, _ in self._held]
        waiting += [connection for connection, _ in self._this_turn]
        self._held.clear()
        self._this_turn.clear()
        if cut_off:
            for connection in waiting:
                connection.transport.abort()
