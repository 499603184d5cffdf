"""When a turn reaches the disk, and what clients hear until then.

A turn ends when every connection that had something to read was served, or when it has very many
effects: they become one write. Replies made since the first of these effects, to anybody, are held
until the write is as safe as ``appendfsync`` asks for; so nobody ever sees what a crash could take
back.

========  ==========================  =======================================================
policy    replies wait for            lost by a power failure
========  ==========================  =======================================================
always    fdatasync, in a thread      nothing; turns that end meanwhile share the next one
everysec  write()                     what the last second wrote; while the disk takes more than
                                      two seconds for a sync, replies wait for it
no        write()                     what the system has not written by itself
========  ==========================  =======================================================

If a write fails, what could not be written is kept, its replies stay held, writing commands are
refused (MISCONF), and the write is tried again until it succeeds. Meanwhile reads go on, but for
what a crash would take back (:mod:`anabranch.commands.execution.withheld`). If a sync fails, nobody
knows what is on the disk: writing commands are refused until a restart, and clients whose replies
wait for it are disconnected, because nothing that could be said to them would be true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from anabranch.effects.write_set import WriteSet
from anabranch.node.disk_trouble import DiskTrouble
from anabranch.node.held_replies import HeldReplies
from anabranch.oplog.log import LOST, SyncFailedError
from anabranch.oplog.sync_notes import SyncNotes
from anabranch.oplog.unsafe import UnsafeEffects

if TYPE_CHECKING:
    from anabranch.node.driver import Driver, Job, Timer
    from anabranch.oplog.log import OpLog, Sync
    from anabranch.region.region import Region
    from anabranch.region.turn import Turn

__all__ = ["Durability"]

RETRY_S: Final = 0.25
"""Between two attempts to write what could not be written."""

SYNC_SLOW_S: Final = 2.0
"""A sync that takes longer than this holds replies back although the policy is everysec."""

SYNC_EVERY_S: Final = {"everysec": 1.0, "no": 5.0}
"""Between two syncs in the background, by policy; with ``no`` it only feeds WAITAOF."""


class Durability:
    """The log of one process, and the replies that wait for it. Off until :meth:`start`."""

    def __init__(self, region: Region, driver: Driver) -> None:
        self._region = region
        self._driver = driver
        self.log: OpLog | None = None
        self.turn: Turn | None = None
        self._notes: SyncNotes
        self._unsafe_effects: UnsafeEffects
        self.disk = DiskTrouble(region, driver, self._unsafe)
        """What is refused while the disk takes no writes."""
        self.replies = HeldReplies(driver, self.disk, self.commit, self._unsafe_end)
        """Where connections hand their replies over."""
        self.on_taken: Callable[[list[bytes], int], None] | None = None
        """Hears of the batches of every turn, and of the position at which they will stand."""
        self.on_progress: Callable[[], None] | None = None
        """Hears when more is written, or on the disk."""
        self.on_answers: Callable[[], None] = self.end_turn
        """Called when sessions that waited for a sync have got something to write."""
        self.delayed_syncs = 0
        self.last_sync_s = 0.0
        self._worker = driver.worker("oplog-sync")
        self._unwritten = b""
        self._holding = False  # something written is not safe enough to be answered
        self._retry: Timer | None = None
        self._syncing: tuple[Sync, Job] | None = None
        self._sync_began = 0.0

    # -- on and off ---------------------------------------------------------------------------

    def start(self, log: OpLog, turn: Turn) -> None:
        """From now on effects are recorded."""
        self.log = log
        self.turn = self.replies.turn = turn
        self._notes = SyncNotes(log, self._driver.now_s)
        self._unsafe_effects = UnsafeEffects(log)
        self._region.effects.record = turn.effects.append

    def stop(self) -> None:
        """Record nothing any more; what is recorded was settled before."""
        self._region.effects.record = None
        if self.log is not None:
            self.log.close()
        self.log = None
        self.turn = self.replies.turn = None

    def abandon(self) -> None:
        """Stop writing and answering, as after a kill."""
        self._syncing = None
        self._unwritten = b""
        self.replies.drop(cut_off=False)
        self._holding = False
        self.stop()

    def close(self) -> None:
        """The server ends."""
        self.stop()
        if self._retry is not None:
            self._retry.cancel()
        self._worker.close()

    # -- positions ----------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """A position that is behind everything that has happened, and behind nothing else."""
        if self.log is None or self.turn is None:
            return 0
        return self.log.end + len(self._unwritten) + bool(self.turn.effects)

    @property
    def synced(self) -> int:
        """Everything with a mark up to this one is on the disk."""
        return 0 if self.log is None else self.log.synced

    @property
    def unsynced_bytes(self) -> int:
        """What is written, or waits to be, and may not be on the disk."""
        return 0 if self.log is None else self.log.end + len(self._unwritten) - self.log.synced

    def unwritten_bytes(self) -> int:
        """What waits to be written."""
        return len(self._unwritten)

    def _unsafe_end(self) -> int:
        """Replies wait for this position although the turn has no effects; 0 if they need not."""
        return self.position if self._holding or self._unwritten else 0

    @property
    def trouble(self) -> str | None:
        """Why writing commands are refused, None if they are not."""
        return self.disk.reason

    @property
    def broken(self) -> bool:
        """A sync failed: nothing gets better before a restart."""
        return self.disk.is_final

    @property
    def is_syncing(self) -> bool:
        """Whether a sync is going on."""
        return self._syncing is not None

    # -- turns --------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """There may be effects: they are written when all connections have had their turn."""
        self.replies.end_turn()

    def commit(self) -> None:
        """Write what was recorded, and what could not be written before."""
        self.replies.is_ending = False
        log, turn = self.log, self.turn
        if log is None or turn is None:
            return
        if turn.effects or self._unwritten:
            turn.effects += self._notes.with_turn()
        self._write_turn(log, turn)
        self._answer(log)

    def commit_own(self) -> None:
        """The same if the region has done something itself: what comes next is no cause of that."""
        if self.turn is not None and self.turn.effects:
            self.commit()

    def _write_turn(self, log: OpLog, turn: Turn) -> None:
        """Write what was recorded, behind what waits already."""
        if turn.effects:
            batches = turn.take_batches(
                self._region.clock.now_us() // 1000,
                compress=self._region.settings.oplog_compression,
            )
            if self.on_taken is not None:
                self.on_taken(batches, log.end + len(self._unwritten))
            data = batches[0] if len(batches) == 1 else b"".join(batches)
            self._unwritten = self._unwritten + data if self._unwritten else data
            self.replies.turn_ends(log.end + len(self._unwritten))
        if self._unwritten and not self.broken and self._retry is None:
            self._write(log)

    def append(self, data: bytes) -> int:
        """Write batches of another region, behind all of ours so far; the position they get.

        Everything before was committed. They are written with the next turn.
        """
        log = cast("OpLog", self.log)
        position = log.end + len(self._unwritten)
        self._unwritten = self._unwritten + data if self._unwritten else data
        self.replies.end_soon()
        return position

    @property
    def is_behind(self) -> bool:
        """Whether something could not be written and waits for another attempt."""
        return self.broken or self._retry is not None

    def _write(self, log: OpLog) -> None:
        try:
            log.append(self._unwritten)
        except SyncFailedError as problem:
            self._break(problem)
            return
        except OSError as problem:
            self.disk.report(problem.strerror or str(problem), len(self._unwritten))
            self._retry = self._driver.call_later(RETRY_S, self._try_again)
            return
        self._unwritten = b""
        self.disk.end()
        if self.on_progress is not None:
            self.on_progress()

    def begin_segment(self) -> int:
        """Go on in another file; the position at which. Everything was committed before."""
        log = cast("OpLog", self.log)
        try:
            log.begin_segment()
        except SyncFailedError as problem:
            self._break(problem)
            raise
        if self.on_progress is not None:
            self.on_progress()
        return log.end

    def _try_again(self) -> None:
        self._retry = None
        self.commit()

    def _answer(self, log: OpLog) -> None:
        """Let go of the replies that need not wait, and see to it that the others will not long."""
        if self.broken:
            return
        policy = self._region.settings.appendfsync
        if policy == "always":
            self.begin_sync()
            safe = log.synced
        elif (
            policy == "everysec"
            and self._syncing is not None
            and self._driver.now_s() - self._sync_began > SYNC_SLOW_S
        ):
            if not self._holding:
                self.delayed_syncs += 1
            safe = log.synced
        else:
            safe = log.end
        self._holding = safe < log.end + len(self._unwritten)
        self.replies.release(safe)

    def _unsafe(self) -> WriteSet:
        """What is not as safe as ``appendfsync`` asks for."""
        log, turn = self.log, self.turn
        if log is None or turn is None:
            return WriteSet()
        is_strict = self.broken or self._region.settings.appendfsync == "always"
        return self._unsafe_effects.write_set(
            log.synced if is_strict else log.end,
            self._unwritten,
            turn.effects,
            numbered=turn.region != 0,
        )

    # -- syncing ------------------------------------------------------------------------------

    def tick(self) -> None:
        """Some times a second: sync when it is time, answer who waited for a slow one."""
        log = self.log
        if log is None:
            return
        every_s = SYNC_EVERY_S.get(self._region.settings.appendfsync, 0.0)
        if self._syncing is None and self._driver.now_s() - self._sync_began >= every_s:
            self.begin_sync()
        turn = cast("Turn", self.turn)
        is_exclusive = self._region.scheduler.is_exclusive
        if not (turn.effects or self._unwritten or self.broken or is_exclusive):
            turn.effects += self._notes.at_rest()
            self._write_turn(log, turn)
        self._check_files(log)
        self._answer(log)

    def _check_files(self, log: OpLog) -> bool:
        """Whether the files that are written are in their places; writes wait until they are."""
        if self.broken:
            return False
        if log.check_files():
            if self.trouble == LOST and not self._unwritten:
                self.disk.end()
            return True
        self.disk.report(LOST, len(self._unwritten))
        return False

    def begin_sync(self) -> None:
        """Sync what is written, unless that is going on or would change nothing."""
        log = self.log
        if log is None or self._syncing is not None or self.broken or log.synced == log.end:
            return
        if log.is_lost:
            return
        sync = log.begin_sync()
        self._sync_began = self._driver.now_s()
        self._syncing = sync, self._worker.submit(sync.run, lambda _: self._synced(sync))

    def _synced(self, sync: Sync) -> None:
        if self._syncing is None or self._syncing[0] is not sync:
            return  # it was waited for
        if self._finish_sync():
            self._answer(cast("OpLog", self.log))
            self._region.waking.answer_wait()
            if self.on_progress is not None:
                self.on_progress()
            self.on_answers()

    def _finish_sync(self) -> bool:
        """Wait for the sync in the thread; False if it failed."""
        if self._syncing is None:
            return True
        sync, done = self._syncing
        problem = done.exception()
        self._syncing = None
        self.last_sync_s = self._driver.now_s() - self._sync_began
        if self.broken:  # another one has failed meanwhile, and the system tells of that once only
            return False
        # If the directory is gone, no sync has failed: an operator may restore it.
        is_gone = isinstance(problem, FileNotFoundError)
        if problem is not None and not is_gone:
            self._break(problem)
            return False
        if self.log is not None:
            if not self._check_files(self.log) or is_gone:
                return False
            self.log.finish_sync(sync)
        if not self._unwritten:
            self.disk.end()
        return True

    def _break(self, problem: BaseException) -> None:
        """A sync failed. Trying again would show nothing: the system may have dropped the pages."""
        self.disk.sync_failed(problem)
        self.replies.drop(cut_off=True)
        self._holding = False
        # From now on nothing is written, so nothing needs to be held either.
        self._region.effects.record = None
        self._unwritten = b""
        if self.turn is not None:
            self.turn.effects.clear()

    def sync_all(self) -> None:
        """Write and sync everything now, standing still, and have the log say so.

        Raises :class:`OSError` if that fails.
        """
        self._sync_all()
        if self.log is not None and self.turn is not None:
            self.turn.effects += self._notes.at_the_end()
            self._write_turn(self.log, self.turn)
            self._sync_all()
            self.log.record_stop()

    def _sync_all(self) -> None:
        log = self.log
        if log is None:
            return
        self._finish_sync()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self.commit()
        self._finish_sync()  # with appendfsync always it has just begun another
        if self.broken or self._unwritten or not self._check_files(log):
            raise OSError(0, self.trouble)
        if log.synced < log.end:
            sync = log.begin_sync()
            try:
                sync.run()
            except OSError as problem:
                self._break(problem)
                raise
            log.finish_sync(sync)
        self._answer(log)
        self._region.waking.answer_wait()
        if self.on_progress is not None:
            self.on_progress()
