"""Notes in the log about how far the log was on the disk.

After a power failure the newest writes may be on the disk in any order: a page that was not synced
is zeros, and a later page has its contents. This looks like damage, but no sync had covered it. So
from time to time a turn contains a note, :class:`kinds.Synced`, with the position up to which the
log was synced. Unsound bytes at a position that a later note covers were on the disk and have
changed since: damage. Unsound bytes that no later note covers are an unfinished end, and are cut
off.

The first turn after a sync contains a note, at most one a second, and there is one when the log
rests. So everything except the last second of a log is known to have been on the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.effects.kinds import Synced
from anabranch.oplog.log import OpLog

EVERY_S: Final = 1.0


class SyncNotes:
    """When the next note is due; each method returns effects to add to the turn."""

    def __init__(self, log: OpLog, now_s: Callable[[], float]) -> None:
        """``now_s`` is a clock that is never set."""
        self._log = log
        self._now_s = now_s
        self._noted = 0  # the position in the last note
        self._noted_s = -EVERY_S
        self._is_newest = False  # whether the last note is the end of the log
        self._end = 0  # the end of the log at the last call
        self._end_s = 0.0  # since when the log has ended there

    def with_turn(self) -> list[Synced]:
        """A turn is about to be written."""
        self._is_newest = False
        if self._log.synced <= self._noted or self._now_s() - self._noted_s < EVERY_S:
            return []
        return self._make_note()

    def at_rest(self) -> list[Synced]:
        """No turn is about to be written; called several times a second."""
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
        """The server stops or switches the log off: everything is synced."""
        if self._is_newest or not self._log.size:
            return []
        self._is_newest = True
        return self._make_note()

    def _make_note(self) -> list[Synced]:
        self._noted = self._log.synced
        self._noted_s = self._now_s()
        return [Synced(self._noted)]
