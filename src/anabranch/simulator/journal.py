"""Writing the log in virtual time: a write is done at once, a sync takes its while.

See :mod:`anabranch.server.durability`, which does the same with threads and timers, for what is
promised to whom.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from anabranch.commands.execution.dispatch import Dispatcher
from anabranch.oplog.log import OpLog, Sync, SyncFailedError
from anabranch.oplog.sync_notes import SyncNotes
from anabranch.region.turn import Turn
from anabranch.simulator.timeline import Timeline

__all__ = ["SimulatedJournal"]

RETRY_MS: Final = 250.0
SYNC_EVERY_MS: Final = {"everysec": 1000.0, "no": 5000.0}


class SimulatedJournal:
    """See :class:`anabranch.replication.local.Journal`."""

    def __init__(
        self,
        log: OpLog,
        turn: Turn,
        policy: str,
        dispatcher: Dispatcher,
        wall_ms: Callable[[], int],
        timeline: Timeline,
        chance: random.Random,
    ) -> None:
        self.log: OpLog | None = log
        self.turn = turn
        self.policy = policy
        self.trouble: str | None = None
        self.broken = False
        """A sync failed: nothing gets better before a restart."""
        self.on_taken: Callable[[list[bytes], int], None] = lambda _batches, _position: None
        self.has_progress = False
        """More is written, or on the disk, than when this was last set to False."""
        self._log = log
        self._notes = SyncNotes(log, lambda: timeline.now_ms / 1000)
        self._dispatcher = dispatcher
        self._wall_ms = wall_ms
        self._timeline = timeline
        self._chance = chance
        self._unwritten = b""
        self._retry_at: float | None = None
        self._sync_began = 0.0
        self._syncing: Sync | None = None
        self.is_off = False
        """The process has ended."""

    @property
    def mark(self) -> int:
        """See :class:`Journal`."""
        return self._log.end + len(self._unwritten) + bool(self.turn.effects)

    @property
    def synced(self) -> int:
        """See :class:`Journal`."""
        return self._log.synced

    @property
    def safe(self) -> int:
        """Clients are answered whose effects are before this position."""
        return self._log.synced if self.policy == "always" else self._log.end

    @property
    def is_behind(self) -> bool:
        """See :class:`Journal`."""
        return self.broken or self._retry_at is not None

    def end_turn(self) -> None:
        """See :class:`Journal`: every event ends with :meth:`commit`."""

    def commit(self) -> None:
        """See :class:`Journal`."""
        if self.turn.effects or self._unwritten:
            self.turn.effects += self._notes.with_turn()
        self._write_turn()
        if self.policy == "always":
            self.begin_sync()

    def _write_turn(self) -> None:
        if self.turn.effects:
            batches = self.turn.take_batches(self._wall_ms())
            if not self.broken:
                self.on_taken(batches, self._log.end + len(self._unwritten))
                self._unwritten += b"".join(batches)
        if self._unwritten and not self.is_behind:
            self._write()

    def append(self, data: bytes) -> int:
        """See :class:`Journal`."""
        position = self._log.end + len(self._unwritten)
        self._unwritten += data
        return position

    def _write(self) -> None:
        try:
            self._log.append(self._unwritten)
        except SyncFailedError as problem:
            self._break(str(problem))
            return
        except OSError as problem:
            self._in_trouble(str(problem))
            self._retry_at = self._timeline.now_ms + RETRY_MS
            return
        self._unwritten = b""
        self.has_progress = True
        if self.trouble is not None:
            self.trouble = None
            self._dispatcher.allow_writes("disk")

    def _in_trouble(self, reason: str) -> None:
        self.trouble = reason
        self._dispatcher.refuse_writes("disk", f"MISCONF Errors writing to the AOF file: {reason}")

    def _break(self, reason: str) -> None:
        self.broken = True
        self._in_trouble(f"fsync failed: {reason}")
        self._unwritten = b""

    # -- syncing ------------------------------------------------------------------------------

    def tick(self) -> None:
        """Time has passed: write again what failed, sync if it is time."""
        now_ms = self._timeline.now_ms
        if self._retry_at is not None and now_ms >= self._retry_at:
            self._retry_at = None
            self.commit()
        if now_ms - self._sync_began >= SYNC_EVERY_MS.get(self.policy, 0.0):
            self.begin_sync()
        if not (self.turn.effects or self._unwritten or self.broken):
            self.turn.effects += self._notes.at_rest()
            self._write_turn()
        self._log.tick()

    def begin_sync(self) -> None:
        """Sync what is written; it takes some ms."""
        if self._syncing is None and not self.broken and self._log.synced < self._log.end:
            self._syncing = self._log.begin_sync()
            self._sync_began = self._timeline.now_ms
            self._timeline.after(self._chance.choice([0.3, 1, 2, 5, 30]), self._finish)

    def _finish(self) -> None:
        sync, self._syncing = self._syncing, None
        if self.is_off or self.broken or sync is None:
            return
        try:
            sync.run()
        except OSError as problem:
            self._break(str(problem))
            return
        self._log.finish_sync(sync)
        self.has_progress = True

    def settle(self) -> None:
        """See :class:`Journal`."""
        self._settle()
        self.turn.effects += self._notes.at_the_end()
        self._write_turn()
        self._settle()
        self._log.note_end()

    def _settle(self) -> None:
        self._retry_at = None
        self._syncing = None
        self.commit()
        if self.broken or self._unwritten:
            raise OSError(0, self.trouble)
        sync = self._log.begin_sync()
        try:
            sync.run()
        except OSError as problem:
            self._break(str(problem))
            raise
        self._log.finish_sync(sync)
        self._syncing = None
        self.has_progress = True

    def begin_segment(self) -> int:
        """Go on in another file; its position. Raises :class:`OSError`."""
        try:
            self._log.begin_segment()
        except SyncFailedError as problem:
            self._break(str(problem))
            raise
        self.has_progress = True
        return self._log.end
