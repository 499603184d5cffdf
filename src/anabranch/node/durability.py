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

from anabranch.commands.execution.withheld import Withheld
from anabranch.effects.write_set import WriteSet, is_ageing
from anabranch.node.held_replies import HeldReplies
from anabranch.oplog.log import LOST, SyncFailedError
from anabranch.oplog.sync_notes import SyncNotes
from anabranch.oplog.unsafe import UnsafeEffects

if TYPE_CHECKING:
    from anabranch.node.driver import Client, Driver, Job, Timer
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

LOG_EVERY_S: Final = 60.0
"""A trouble that lasts is logged this often."""

MANY_EFFECTS: Final = 128
"""So many are written without waiting for the end of the turn."""


class Durability:
    """The log of one process, and the replies that wait for it. Off until :meth:`start`."""

    def __init__(self, region: Region, driver: Driver) -> None:
        self._region = region
        self._driver = driver
        self.log: OpLog | None = None
        self.turn: Turn | None = None
        self._notes: SyncNotes
        self._unsafe: UnsafeEffects
        self._lost: WriteSet | None = None  # what was not safe when a sync failed
        self.withheld = Withheld(self._not_told)
        """Reads that are refused while the disk is in trouble."""
        self.trouble: str | None = None
        """Why writing commands are refused, None if they are not."""
        self.broken = False
        """A sync failed: nothing gets better before a restart."""
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
        self._held = HeldReplies()
        self._holding = False  # something written is not safe enough to be answered
        self.is_ending = False
        """Whether the effects so far are written as soon as this turn is over."""
        self._retry: Timer | None = None
        self._syncing: tuple[Sync, Job] | None = None
        self._sync_began = 0.0
        self._logged_at = -LOG_EVERY_S

    # -- on and off ---------------------------------------------------------------------------

    def start(self, log: OpLog, turn: Turn) -> None:
        """From now on effects are recorded."""
        self.log = log
        self.turn = turn
        self._notes = SyncNotes(log, self._driver.now_s)
        self._unsafe = UnsafeEffects(log)
        self._region.effects.record = turn.effects.append

    def stop(self) -> None:
        """Record nothing any more; what is recorded was settled before."""
        self._region.effects.record = None
        if self.log is not None:
            self.log.close()
        self.log = None
        self.turn = None

    def abandon(self) -> None:
        """Write nothing and answer nobody any more, as if the process were killed."""
        self._syncing = None
        self._unwritten = b""
        self._held.drop(cut_off=False)
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
    def mark(self) -> int:
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

    @property
    def is_syncing(self) -> bool:
        """Whether a sync is going on."""
        return self._syncing is not None

    # -- replies ------------------------------------------------------------------------------

    def hold(self, client: Client, outbox: list[bytes]) -> list[bytes] | None:
        """Keep replies until what happened before them is safe, and see to it that it will be.

        Returns what is kept, to be released later; None if the replies, if any are left in
        ``outbox``, can be written now.
        """
        turn = self.turn
        if turn is not None and len(turn.effects) >= MANY_EFFECTS:
            self.commit()  # if it fails, whoever has replies in an outbox has them held
            if not outbox:
                return None
        in_turn = turn is not None and bool(turn.effects)
        if not (in_turn or self._holding or self._unwritten):
            return None
        if self.trouble is not None and self._may_pass(client):
            return None
        parts = outbox[:]
        self._held.hold(None if in_turn else self.mark, client, parts)
        if in_turn and not self.is_ending:
            self.is_ending = True
            self._driver.call_soon(self.commit)
        return parts

    def _may_pass(self, client: Client) -> bool:
        """Whether replies go out although the disk is in trouble: reads of who does not wait.

        They tell of nothing that is not safe: such reads were refused (:attr:`withheld`).
        """
        if client.waits_for_older:
            return False
        return self.turn is None or all(map(is_ageing, self.turn.effects))

    # -- turns --------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """There may be effects: they are written when all connections have had their turn.

        Very many are written at once, here and in :meth:`hold`: another region applies what is
        written together as one, and its clients wait for that.
        """
        if self.turn is None or not self.turn.effects:
            return
        if len(self.turn.effects) >= MANY_EFFECTS:
            self.commit()
        elif not self.is_ending:
            self.is_ending = True
            self._driver.call_soon(self.commit)

    def commit(self) -> None:
        """Write what was recorded, and what could not be written before."""
        self.is_ending = False
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
            self._held.turn_ends(log.end + len(self._unwritten))
        if self._unwritten and not self.broken and self._retry is None:
            self._write(log)

    def append(self, data: bytes) -> int:
        """Write batches of another region, behind all of ours so far; the position they get.

        Everything before was committed. They are written with the next turn.
        """
        log = cast("OpLog", self.log)
        position = log.end + len(self._unwritten)
        self._unwritten = self._unwritten + data if self._unwritten else data
        if not self.is_ending:
            self.is_ending = True
            self._driver.call_soon(self.commit)
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
            self._report(problem.strerror or str(problem))
            self._retry = self._driver.call_later(RETRY_S, self._try_again)
            return
        self._unwritten = b""
        self._out_of_trouble()
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
        self._held.release(safe)

    def _out_of_trouble(self) -> None:
        if self.trouble is not None:
            self.trouble = None
            region = self._region
            region.dispatcher.allow_writes("disk")
            region.dispatcher.withheld = None
            events, self.withheld.events = self.withheld.events, []
            region.events.publish(events)
            self._log("warning", "oplog.writes_again")

    def _report(self, reason: str) -> None:
        """Nothing can be written for now."""
        if not self._in_trouble(reason):
            return
        if reason == LOST:
            self._log("error", "oplog.directory_lost", reason=reason)
        else:
            waiting = len(self._unwritten)
            self._log("error", "oplog.write_failed", reason=reason, waiting_bytes=waiting)

    def _in_trouble(self, reason: str) -> bool:
        """Refuse writes, and reads of what is not safe.

        Whether that is worth a line in the log, being new or long ago.
        """
        if self.trouble is None:
            self._hold_what_was_made()
        now = self._driver.now_s()
        is_news = self.trouble != reason or now - self._logged_at >= LOG_EVERY_S
        if is_news:
            self._logged_at = now
        self.trouble = reason
        dispatcher = self._region.dispatcher
        refusal = f"MISCONF Errors writing to the AOF file: {reason}"
        dispatcher.refuse_writes("disk", refusal)
        self.withheld.say(refusal, "a restart" if self.broken else "the disk accepts writes")
        dispatcher.withheld = self.withheld
        return is_news

    def _hold_what_was_made(self) -> None:
        """Replies that were made while all was well, and not written out, tell of anything."""
        context = self._region.context
        if context.in_exec:
            context.session.outbox.append(b"")  # a reply will come, behind this
        for session in list(self._region.sessions.values()):
            if session.outbox and session.connection is not None:
                session.connection.flush()

    def _not_told(self) -> WriteSet:
        """What nobody may be told of."""
        return WriteSet() if self._region.settings.serve_unsafe_reads else self._write_set()

    def _write_set(self) -> WriteSet:
        """What is not as safe as ``appendfsync`` asks for."""
        if self._lost is not None:
            return self._lost
        log, turn = self.log, self.turn
        if log is None or turn is None:
            return WriteSet()
        is_strict = self.broken or self._region.settings.appendfsync == "always"
        return self._unsafe.write_set(
            log.synced if is_strict else log.end,
            self._unwritten,
            turn.effects,
            numbered=turn.region != 0,
        )

    @property
    def unsafe_keys(self) -> int:
        """How many keys cannot be read because a crash would take back what it tells; -1: all."""
        if self.trouble is None:
            return 0
        write_set = self._write_set()
        return -1 if write_set.everything else len(write_set.keys)

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
        if not (turn.effects or self._unwritten or self.broken):
            turn.effects += self._notes.at_rest()
            self._write_turn(log, turn)
        self._look(log)
        self._answer(log)

    def _look(self, log: OpLog) -> bool:
        """Whether the files that are written are in their places; writes wait until they are."""
        if self.broken:
            return False
        if log.look():
            if self.trouble == LOST and not self._unwritten:
                self._out_of_trouble()
            return True
        self._report(LOST)
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
            self._region.waking.safer()
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
        # If the directory is gone, no sync has failed: somebody may put it back.
        is_gone = isinstance(problem, FileNotFoundError)
        if problem is not None and not is_gone:
            self._break(problem)
            return False
        if self.log is not None:
            if not self._look(self.log) or is_gone:
                return False
            self.log.finish_sync(sync)
        if not self._unwritten:
            self._out_of_trouble()
        return True

    def _break(self, problem: BaseException) -> None:
        """A sync failed. Trying again would tell nothing: the system may have dropped the pages."""
        self.broken = True
        self._lost = self._write_set()
        reason = (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
        self._in_trouble(f"fsync failed: {reason}")
        self._log("error", "oplog.sync_failed", reason=reason)
        self._held.drop(cut_off=True)
        self._holding = False
        # From now on nothing is written, so nothing needs to be held either.
        self._region.effects.record = None
        self._unwritten = b""
        if self.turn is not None:
            self.turn.effects.clear()

    def settle(self) -> None:
        """Write and sync everything now, standing still, and have the log say so.

        Raises :class:`OSError` if that fails.
        """
        self._settle()
        if self.log is not None and self.turn is not None:
            self.turn.effects += self._notes.at_the_end()
            self._write_turn(self.log, self.turn)
            self._settle()
            self.log.note_end()

    def _settle(self) -> None:
        log = self.log
        if log is None:
            return
        self._finish_sync()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self.commit()
        self._finish_sync()  # with appendfsync always it has just begun another
        if self.broken or self._unwritten or not self._look(log):
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
        self._region.waking.safer()
        if self.on_progress is not None:
            self.on_progress()

    def _log(self, level: str, event: str, **facts: object) -> None:
        self._region.host.log(level, event, **facts)
