"""Replies that wait until what they tell of is safe, in the order in which they were made."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.node.driver import Client

__all__ = ["HeldReplies"]


class HeldReplies:
    """The held replies of one process. A position is one of its log."""

    def __init__(self) -> None:
        self._this_turn: list[tuple[Client, list[bytes]]] = []
        self._held: deque[tuple[int, Client, list[bytes]]] = deque()

    def hold(self, position: int | None, client: Client, parts: list[bytes]) -> None:
        """Until a position is safe; None is the end of the present turn, not known yet."""
        if position is None:
            self._this_turn.append((client, parts))
        else:
            self._held.append((position, client, parts))

    def turn_ends(self, position: int) -> None:
        """The effects of the present turn end there."""
        self._held.extend((position, *each) for each in self._this_turn)
        self._this_turn.clear()

    def release(self, position: int) -> None:
        """All before it is safe: let these replies go out."""
        held = self._held
        while held and held[0][0] <= position:
            _, client, parts = held.popleft()
            client.release(parts)

    def drop(self, *, cut_off: bool) -> None:
        """They will never go out; ``cut_off`` disconnects those who wait for them."""
        waiting = [client for _, client, _ in self._held]
        waiting += [client for client, _ in self._this_turn]
        self._held.clear()
        self._this_turn.clear()
        if cut_off:
            for client in waiting:
                client.cut_off()
