"""What the log says of itself: how far it was on the disk.

A power failure may leave the newest writes in any order: a page that was not synced is zeros, and
what was written behind it is there. That looks like damage, and differs from it in nothing but that
no sync had come so far. So now and then a turn carries a note, :class:`kinds.Synced`, of the
position up to which a sync has come. Damage before a note that lies behind it was on the disk, and
has rotted since; behind all notes it is an unfinished end, to be cut off as one.

There is a note in the first turn after a sync, at most one a second, and one when the log rests: so
all but the last second of a log that is written to is known to have been on the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from anabranch.effects.kinds import Synced

if TYPE_CHECKING:
    from anabranch.oplog.log import OpLog

__all__ = ["SyncNotes"]

EVERY_S: Final = 1.0


class SyncNotes:
    """When the next note is due; each method returns what the turn is to say besides."""

    def __init__(self, log: OpLog, now_s: Callable[[], float]) -> None:
        """``now_s`` is a clock that is never set."""
        self._log = log
        self._now_s = now_s
        self._noted = 0  # up to here the last note has told
        self._noted_s = -EVERY_S
        self._is_newest = False  # nothing was written behind the last note
        self._end = 0  # where the log ended at the last look
        self._end_s = 0.0  # and since when it does

    def with_turn(self) -> list[Synced]:
        """A turn is about to be written."""
        self._is_newest = False
        if self._log.synced <= self._noted or self._now_s() - self._noted_s < EVERY_S:
            return []
        return self._note()

    def at_rest(self) -> list[Synced]:
        """Nothing is about to be written; called some times a second."""
        log = self._log
        if self._is_newest or log.synced < log.end:
            return []
        if log.end != self._end:
            self._end = log.end
            self._end_s = self._now_s()
        if self._now_s() - self._end_s < EVERY_S:
            return []
        return self.at_the_end()

    def at_the_end(self) -> list[Synced]:
        """All is synced, and nothing will be written for a while."""
        if self._is_newest or not self._log.size:
            return []
        self._is_newest = True
        return self._note()

    def _note(self) -> list[Synced]:
        self._noted = self._log.synced
        self._noted_s = self._now_s()
        return [Synced(self._noted)]
