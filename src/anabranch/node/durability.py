"""When a turn is written to the disk, and when its replies may be sent.

A turn ends when every connection that had something to read was served, when it has very many
effects, or with the replies of a client that is most likely alone: its effects become one write.
All replies since the first of these effects are held until the write is as safe as ``appendfsync``
asks; so no client ever sees what a crash could undo.

========  ==========================  =======================================================
policy    replies wait for            lost by a power failure
========  ==========================  =======================================================
always    fdatasync                   nothing; turns that end meanwhile share the next one
everysec  write()                     the writes of the last second; while a sync takes more than
                                      two seconds, replies wait for it
no        write()                     what the system has not yet written to the disk
========  ==========================  =======================================================

A thread syncs, so that nobody else waits for the disk. But with ``always`` a few kilobytes are
synced at the end of the turn itself while the disk is quick: all clients wait less that way.

If a write fails, the bytes are kept, their replies stay held, writing commands are refused
(MISCONF), and the write is repeated until it succeeds. Meanwhile reads are served, except for keys
whose last change a crash would undo (:mod:`anabranch.engine.withheld`). If a sync
fails, the contents of the disk are unknown: writing commands are refused until a restart, and
clients whose replies wait for the sync are disconnected, because no reply would be certain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from anabranch.effects.write_set import WriteSet, is_ageing
from anabranch.node.disk_trouble import DiskTrouble
from anabranch.oplog.errors import SyncFailedError
from anabranch.oplog.log import LOST, SyncNotes
from anabranch.oplog.unsafe import UnsafeEffects

if TYPE_CHECKING:
    from anabranch.node.driver import Driver, ReplyWriter, Timer, WorkFuture
    from anabranch.oplog.log import OpLog, Sync
    from anabranch.region.region import Region
    from anabranch.region.turn import Turn

    _Reply = tuple[ReplyWriter, list[bytes]]

NO_MEMORY: Final = "not enough memory"
"""Why a write failed that was refused before the system saw it."""

RETRY_S: Final = 0.25
"""The interval between two attempts after a failed write."""

SYNC_SLOW_S: Final = 2.0
"""While a sync takes longer than this, replies wait for it although the policy is everysec."""

QUICK_SYNC_S: Final = 0.001
"""A sync that takes less is quick."""

QUICK_SYNCS_MIN: Final = 16
"""After so many quick syncs in a row no thread is woken for a little, until one is not quick."""

LITTLE_BYTES: Final = 4096
"""More than this is left to a thread: it takes longer, and turns that follow share the next."""

SYNC_EVERY_S: Final = {"everysec": 1.0, "no": 5.0}
"""The interval of background syncs by policy; with ``no`` they only serve WAITAOF."""


class Durability:
    """The log of one process, and the replies that wait for it. Inactive until :meth:`start`."""

    def __init__(self, region: Region, driver: Driver) -> None:
        self._region = region
        self._driver = driver
        self.log: OpLog | None = None
        self.turn: Turn | None = None
        self._notes: SyncNotes
        self._unsafe_effects: UnsafeEffects
        self.disk = DiskTrouble(region, driver, self._unsafe)
        """What is refused while the disk does not accept writes."""
        self.replies = HeldReplies(driver, self.disk, self.commit, self._unsafe_end)
        """Connections pass their replies to this object."""
        self.on_taken: Callable[[list[bytes], int], None] | None = None
        """Called with the batches of every turn and their position in the log."""
        self.on_progress: Callable[[], None] | None = None
        """Called when more effects are written, or are on the disk."""
        self.on_answers: Callable[[], None] = self.end_turn
        """Called when sessions that waited for a sync have got a reply to write."""
        self.delayed_syncs = 0
        self.last_sync_s = 0.0
        self._quick_syncs = 0  # in a row, until the last one
        self._worker = driver.worker("oplog-sync")
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        self._holding = False  # a written effect is not as safe as appendfsync asks
        self._retry: Timer | None = None
        self._syncing: tuple[Sync, WorkFuture] | None = None
        self._sync_began = 0.0

    # -- on and off ---------------------------------------------------------------------------

    def start(self, log: OpLog, turn: Turn) -> None:
        """Record effects from now on."""
        self.log = log
        self.turn = self.replies.turn = turn
        self._notes = SyncNotes(log, self._driver.now_s)
        self._unsafe_effects = UnsafeEffects(log)
        self._region.effects.record = turn.recorded

    def stop(self) -> None:
        """Stop recording; the caller has written all recorded effects before."""
        self._region.effects.record = None
        if self.log is not None:
            self.log.close()
        self.log = None
        self.turn = self.replies.turn = None

    def abandon(self) -> None:
        """Stop writing and answering at once, as a kill would."""
        self._syncing = None
        self._none_waits()
        self.replies.drop(cut_off=False)
        self._holding = False
        self.stop()

    def close(self) -> None:
        """The server ends: close the log and its worker."""
        self.stop()
        if self._retry is not None:
            self._retry.cancel()
        self._worker.close()

    # -- positions ----------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The position in the log behind all effects so far."""
        if self.log is None or self.turn is None:
            return 0
        return self.log.end + self._unwritten_bytes + bool(self.turn.recorded.effects)

    @property
    def synced(self) -> int:
        """The log is on the disk up to this position."""
        return 0 if self.log is None else self.log.synced

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that may not be on the disk: written or waiting to be written."""
        return 0 if self.log is None else self.log.end + self._unwritten_bytes - self.log.synced

    def unwritten_bytes(self) -> int:
        """Bytes that wait to be written."""
        return self._unwritten_bytes

    def _unsafe_end(self) -> int:
        """The position for which replies of a turn without effects wait; 0 if they need not."""
        log = self.log
        may_be_lost = self.broken and log is not None and log.synced < log.end
        return self.position if self._holding or self._unwritten or may_be_lost else 0

    @property
    def trouble(self) -> str | None:
        """Why writing commands are refused; None if they are not."""
        return self.disk.reason

    @property
    def broken(self) -> bool:
        """A sync failed: only a restart ends the trouble."""
        return self.disk.is_final

    @property
    def is_syncing(self) -> bool:
        """Whether a sync is running."""
        return self._syncing is not None

    # -- turns --------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Schedule the write of the turn's effects, if there are any."""
        self.replies.end_turn()

    def commit(self) -> None:
        """Write the recorded effects, and what could not be written before."""
        self.replies.is_ending = False
        log, turn = self.log, self.turn
        if log is None or turn is None:
            return
        if turn.recorded.effects or self._unwritten:
            note = self._notes.with_turn()
            if note is not None:
                turn.recorded.append(note)
        self._write_turn(log, turn)
        self._answer(log)

    def commit_own(self) -> None:
        """Write own effects now, so that effects applied next are not in their context."""
        if self.turn is not None and self.turn.recorded.effects:
            self.commit()

    def _write_turn(self, log: OpLog, turn: Turn) -> None:
        """Write the recorded effects behind the bytes that already wait."""
        if turn.recorded.effects:
            batches = turn.drain_batches(
                self._region.clock.now_us() // 1000,
                compress=self._region.settings.oplog_compression,
                whole=self.on_taken is not None,
            )
            if self.on_taken is not None:
                self.on_taken(batches, log.end + self._unwritten_bytes)
            for batch in batches:
                self._unwritten.append(batch)
                self._unwritten_bytes += len(batch)
            self.replies.turn_ends(log.end + self._unwritten_bytes)
        if self._unwritten and not self.is_behind:
            self._write(log)

    def append(self, data: bytes) -> int:
        """Append batches of another region behind all own effects; returns their position.

        The caller has committed all effects before. The batches are written with the next turn.
        """
        log = cast("OpLog", self.log)
        position = log.end + self._unwritten_bytes
        self._unwritten.append(data)
        self._unwritten_bytes += len(data)
        self.replies.end_soon()
        return position

    @property
    def is_behind(self) -> bool:
        """Whether bytes could not be written and wait for another attempt."""
        return self.broken or self._retry is not None

    def _write(self, log: OpLog) -> None:
        try:
            log.append(*self._unwritten)
        except (OSError, MemoryError) as problem:
            if isinstance(problem, SyncFailedError):
                self._break(problem)
                return
            self._retry = self._driver.call_later(RETRY_S, self._try_again)
            reason = problem.strerror if isinstance(problem, OSError) else NO_MEMORY
            self.disk.report(reason or str(problem), self._unwritten_bytes)
            return
        self._none_waits()
        if self.disk.reason is not None:
            self.disk.end()
        if self.on_progress is not None:
            self.on_progress()

    def _none_waits(self) -> None:
        self._unwritten = []
        self._unwritten_bytes = 0

    def begin_segment(self) -> int:
        """Continue in a new file; returns its position. The caller has committed all effects."""
        log = cast("OpLog", self.log)
        try:
            log.begin_segment()
        except SyncFailedError as problem:
            self._break(problem)
            raise
        if self.on_progress is not None:
            self.on_progress()
        return log.end

    def try_again(self) -> None:
        """Write now what could not be written, if another attempt is still to come."""
        if self._retry is not None:
            self._retry.cancel()
            self._try_again()

    def _try_again(self) -> None:
        self._retry = None
        self.commit()

    def _answer(self, log: OpLog) -> None:
        """Release the replies that need not wait; begin a sync if the others wait for one."""
        if self.broken:
            return
        policy = self._region.settings.appendfsync
        is_synced = False
        if policy == "always":
            is_synced = self._sync_at_once(log)
            if self.disk.is_final:  # the sync failed
                return
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
        self._holding = safe < log.end + self._unwritten_bytes
        self.replies.release(safe)
        if is_synced:
            self._more_is_synced()

    def _unsafe(self) -> WriteSet:
        """The write set of effects that are not as safe as ``appendfsync`` asks."""
        log, turn = self.log, self.turn
        if log is None or turn is None:
            return WriteSet()
        is_strict = self.broken or self._region.settings.appendfsync == "always"
        return self._unsafe_effects.write_set(
            log.synced if is_strict else log.end,
            self._unwritten,
            turn.recorded.effects,
            numbered=self._region.replica.region != 0,
        )

    # -- syncing ------------------------------------------------------------------------------

    def tick(self) -> None:
        """Called regularly: sync when it is time; release replies after a slow sync."""
        log = self.log
        if log is None:
            return
        every_s = SYNC_EVERY_S.get(self._region.settings.appendfsync, 0.0)
        if self._syncing is None and self._driver.now_s() - self._sync_began >= every_s:
            self.begin_sync()
        turn = cast("Turn", self.turn)
        is_exclusive = self._region.scheduler.is_exclusive
        if not (turn.recorded.effects or self._unwritten or self.broken or is_exclusive):
            note = self._notes.at_rest()
            if note is not None:
                turn.recorded.append(note)
                self._write_turn(log, turn)
        self._check_files(log)
        self._answer(log)

    def _check_files(self, log: OpLog) -> bool:
        """Whether the open files still have their names; otherwise writes wait."""
        if self.broken:
            return False
        if log.check_files():
            if self.trouble == LOST and not self._unwritten:
                self.disk.end()
            return True
        self.disk.report(LOST, self._unwritten_bytes)
        return False

    def begin_sync(self) -> None:
        """Begin a sync, unless one is running or everything is synced."""
        log = self.log
        if log is None or self._syncing is not None or self.broken or log.synced == log.end:
            return
        if log.is_lost:
            return
        sync = log.begin_sync()
        self._sync_began = self._driver.now_s()
        self._syncing = sync, self._worker.submit(sync.run, lambda _: self._synced(sync))

    def _sync_at_once(self, log: OpLog) -> bool:
        """Sync a little without a thread, if the disk is quick. Returns whether more is synced.

        To wake a thread, and to be woken by it, takes longer than such a sync.
        """
        if (
            self._quick_syncs < QUICK_SYNCS_MIN
            or not 0 < log.end - log.synced <= LITTLE_BYTES
            or self._syncing is not None
            or log.is_lost
        ):
            return False
        sync = log.begin_sync()
        self._sync_began = self._driver.now_s()
        try:
            sync.run()
        except OSError as problem:
            return self._end_sync(sync, problem)
        return self._end_sync(sync, None)

    def _synced(self, sync: Sync) -> None:
        if self._syncing is None or self._syncing[0] is not sync:
            return  # _finish_sync has waited for it
        if self._finish_sync():
            self._answer(cast("OpLog", self.log))
            self._more_is_synced()

    def _more_is_synced(self) -> None:
        if self._region.context.waits.safety:
            self._region.waking.answer_wait()
        if self.on_progress is not None:
            self.on_progress()
        self.on_answers()

    def _finish_sync(self) -> bool:
        """Wait for the running sync; False if it failed."""
        if self._syncing is None:
            return True
        sync, done = self._syncing
        problem = done.exception()
        self._syncing = None
        return self._end_sync(sync, problem)

    def _end_sync(self, sync: Sync, problem: BaseException | None) -> bool:
        """Note how a sync ended; False if it failed."""
        self.last_sync_s = self._driver.now_s() - self._sync_began
        self._quick_syncs = self._quick_syncs + 1 if self.last_sync_s < QUICK_SYNC_S else 0
        if self.broken:  # an earlier sync has failed; the system reports a failure only once
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
        if not self._unwritten and self.disk.reason is not None:
            self.disk.end()
        return True

    def _break(self, problem: BaseException) -> None:
        """A sync failed. Do not repeat it: the system may drop the pages, then succeed."""
        self.disk.sync_failed(problem)
        self.replies.drop(cut_off=True)
        self._holding = False
        # Nothing is written from now on, so no reply needs to be held.
        self._region.effects.record = None
        self._none_waits()
        if self.turn is not None:
            self.turn.recorded.clear()

    def sync_all(self) -> None:
        """Write and sync everything now, and record it in the log. Blocks.

        Raises :class:`OSError` if that fails.
        """
        self._sync_all()
        if self.log is not None and self.turn is not None:
            note = self._notes.at_the_end()
            if note is not None:
                self.turn.recorded.append(note)
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
        self._finish_sync()  # with appendfsync always the commit has begun another one
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


MANY_EFFECTS: Final = 128
"""A turn with so many effects is written at once."""


class HeldReplies:
    """The held replies of one process, in the order in which they were made.

    A connection passes its replies to :meth:`hold`; :meth:`ReplyWriter.release` is called when they
    may be sent. The first replies of a turn with effects schedule the write of the log for the end
    of the turn: one write for all connections, or for the only one at once. Positions are
    positions in the log.
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
        self._alone: ReplyWriter | None = None  # the only client of the last turn, if it wrote
        self._held: deque[tuple[int, list[_Reply]]] = deque()  # the newest of each turn first

    def hold(self, client: ReplyWriter, outbox: list[bytes]) -> list[bytes] | None:
        """Hold the replies in ``outbox`` until the effects before them are safe.

        Schedules the commit that makes the effects safe. Returns the held replies, to be released
        later; None if the replies that are left in ``outbox`` can be written now.

        A client that was alone in the last turn most likely is alone in this one, too: then nobody
        can share the write, and it is made at once. If another client does write in the same turn,
        that costs one more write, and soon they share one.
        """
        turn = self.turn
        count = 0 if turn is None else turn.recorded.count
        only_one = client is self._alone and not self._this_turn
        if count and (only_one or count >= MANY_EFFECTS):
            self._commit()  # if it fails, replies in outboxes are held
            if not outbox:
                return None
        in_turn = turn is not None and bool(turn.recorded.effects)
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

    def left(self, client: ReplyWriter) -> None:
        """The connection of a client has ended: do not expect its next turn."""
        if client is self._alone:
            self._alone = None

    def _may_pass(self, client: ReplyWriter) -> bool:
        """Whether replies may be sent during disk trouble: those of clients without held replies.

        They report no unsafe effect: such reads were refused (:class:`Withheld`).
        """
        if client.waits_for_older:
            return False
        return self.turn is None or all(map(is_ageing, self.turn.recorded.effects))

    def end_turn(self) -> None:
        """Schedule the commit if the turn has effects.

        Very many effects are written at once, here and in :meth:`hold`: another region applies
        what is written together as one unit, and its clients wait meanwhile.
        """
        if self.turn is None or not self.turn.recorded.effects:
            return
        if self.turn.recorded.count >= MANY_EFFECTS:
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
            self._alone = self._this_turn[0][0] if len(self._this_turn) == 1 else None
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
