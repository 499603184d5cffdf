"""Replies that wait until the effects that they report are safe, and the end of the turn.

A connection passes its replies to :meth:`HeldReplies.hold`; :meth:`ReplyWriter.release` is called
when they may be sent. The first replies of a turn with effects schedule the write of the log for
the end of the turn: one write for all connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from anabranch.effects.write_set import is_ageing

if TYPE_CHECKING:
    from anabranch.node.disk_trouble import DiskTrouble
    from anabranch.node.driver import Driver, ReplyWriter
    from anabranch.region.turn import Turn

    _Reply = tuple[ReplyWriter, list[bytes]]

MANY_EFFECTS: Final = 128
"""A turn with so many effects is written at once."""


class HeldReplies:
    """The held replies of one process, in the order in which they were made.

    Positions are positions in the log.
    """

    def __init__(
        self,
        driver: Driver,
        trouble: DiskTrouble,
        commit: Callable[[], None],
        unsafe_end: Callable[[], int],
    ) -> None:
        """``commit`` writes the turn.

        ``unsafe_end`` returns the position behind all unsafe effects; 0 if all are safe.
        """
        self._driver = driver
        self._trouble = trouble
        self._commit = commit
        self._unsafe_end = unsafe_end
        self.turn: Turn | None = None
        """The present turn; None while effects are not recorded."""
        self.is_ending = False
        """Whether a commit is scheduled for the end of this turn."""
        self._this_turn: list[_Reply] = []
        self._held: deque[tuple[int, list[_Reply]]] = deque()  # the newest of each turn first

    def hold(self, client: ReplyWriter, outbox: list[bytes]) -> list[bytes] | None:
        """Hold the replies in ``outbox`` until the effects before them are safe.

        Schedules the commit that makes the effects safe. Returns the held replies, to be released
        later; None if the replies that are left in ``outbox`` can be written now.
        """
        turn = self.turn
        if turn is not None and len(turn.effects) >= MANY_EFFECTS:
            self._commit()  # if it fails, replies in outboxes are held
            if not outbox:
                return None
        in_turn = turn is not None and bool(turn.effects)
        position = 0 if in_turn else self._unsafe_end()
        if not in_turn and not position:
            return None
        if self._trouble.reason is not None and self._may_pass(client):
            return None
        parts = outbox[:]
        if in_turn:
            self._this_turn.append((client, parts))
            self.end_soon()
        else:
            self._held.append((position, [(client, parts)]))
        return parts

    def _may_pass(self, client: ReplyWriter) -> bool:
        """Whether replies may be sent during disk trouble: those of clients without held replies.

        They report no unsafe effect: such reads were refused (:class:`Withheld`).
        """
        if client.waits_for_older:
            return False
        return self.turn is None or all(map(is_ageing, self.turn.effects))

    def end_turn(self) -> None:
        """Schedule the commit if the turn has effects.

        Very many effects are written at once, here and in :meth:`hold`: another region applies
        what is written together as one unit, and its clients wait meanwhile.
        """
        if self.turn is None or not self.turn.effects:
            return
        if len(self.turn.effects) >= MANY_EFFECTS:
            self._commit()
        else:
            self.end_soon()

    def end_soon(self) -> None:
        """Schedule the commit for the end of the present turn."""
        if not self.is_ending:
            self.is_ending = True
            self._driver.call_soon(self._commit)

    def turn_ends(self, position: int) -> None:
        """The effects of the present turn end at this position."""
        if self._this_turn:
            self._this_turn.reverse()
            self._held.append((position, self._this_turn))
            self._this_turn = []

    def release(self, position: int) -> None:
        """Release the replies before this position: all effects before it are safe."""
        held = self._held
        while held:
            end, replies = held[0]
            if end > position:
                return
            client, parts = replies.pop()
            if not replies:
                held.popleft()
            client.release(parts)

    def drop(self, *, cut_off: bool) -> None:
        """Drop all held replies; ``cut_off`` disconnects the clients that wait for them."""
        waiting = [client for _, replies in self._held for client, _ in replies]
        waiting += [client for client, _ in self._this_turn]
        self._held.clear()
        self._this_turn.clear()
        if cut_off:
            for client in waiting:
                client.cut_off()
