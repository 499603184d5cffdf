"""Blocked commands: what wakes them, in which order they run again, and when their wait ends.

A round runs the commands again that wait for keys that are ready, in the order in which the clients
blocked; then those that wait for what these have changed, and so on, as a chain of BLMOVE does. A
round that does not fit into a slice of time continues in the next turns of the event loop. The
connection whose command made the keys ready continues after the round: its later commands must not
take the entries for which others were woken. What others make ready meanwhile is for the next
round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial

from anabranch.engine.session import Session
from anabranch.errors import CommandError
from anabranch.keyspace.database import Database
from anabranch.keyspace.values import Value
from anabranch.keyspace.version_vectors import covers
from anabranch.keyspace.waiter import Waiter
from anabranch.region.state import RegionState
from anabranch.scheduling import Work


class Waking:
    """The blocked commands of one region."""

    def __init__(self, region: RegionState) -> None:
        """For the region that owns it."""
        self._region = region
        self._ready = region.keyspace.ready
        self._again: deque[Waiter] = deque()  # must run again whatever their keys contain
        self._round: Iterator[None] | None = None
        self._now_ms = 0  # of the present slice
        self._paused: dict[Waiter, None] = {}  # must run again when a pause is over
        self._after: dict[Session, None] = {}  # these continue when the round is over
        # For the next round
        self._ready_next: dict[tuple[int, bytes], None] = {}
        self._after_next: dict[Session, None] = {}

    @property
    def is_under_way(self) -> bool:
        """Whether a round is in progress."""
        return self._round is not None

    def work(self, some: Callable[[int], bool]) -> Work:
        """Background work that changes data, see :meth:`change`, for the scheduler."""
        return partial(self.change, some)

    def change(self, some: Callable[[int], bool]) -> bool:
        """Do background work that changes data, if they may change now, and wake whom it concerns.

        ``some`` gets the time, and does what fits into the slice. Returns, as ``some`` does,
        whether more is left.
        """
        region = self._region
        if region.scheduler.is_exclusive:
            return True
        dispatcher = region.dispatcher
        if dispatcher.write_refusal is not None or dispatcher.pause_until_ms:
            return False  # nothing may change: what is due is looked at again
        now_ms = region.clock.now_us() // 1000
        region.context.enter(region.nobody, now_ms)
        is_left = some(now_ms)
        if region.keyspace.ready:
            self.serve()
        return is_left

    def serve(self) -> None:
        """Run the commands again that wait for changed keys, as many as fit into the slice."""
        if self._round is not None:
            self._set_aside()
        if self._go_on():
            self._region.scheduler.schedule(self._go_on, first=True)

    def _go_on(self) -> bool:
        """Wake until the deadline; returns whether waiters are left."""
        if self._region.scheduler.is_exclusive:
            return True
        is_over = self._region.scheduler.is_over
        self._now_ms = self._region.clock.now_us() // 1000
        while self._round is not None or self._ready or self._again:
            if self._round is None:
                self._round = self._wake()
            for _ in self._round:
                if is_over():
                    return True
            self._round = None
            over, self._after, self._after_next = self._after, self._after_next, {}
            for session in over:
                session.delayed = False
                self._region.channels.pending[session] = None
            self._ready.update(self._ready_next)
            self._ready_next.clear()
        return False

    def _set_aside(self) -> None:
        """Leave the keys that are ready to the next round."""
        self._ready_next.update(self._ready)
        self._ready.clear()

    def _wake(self) -> Iterator[None]:
        """One round: a step for each waiter that runs again, and for each key."""
        region = self._region
        active = region.keyspace.waiters.active
        keys = dict(self._ready)
        self._ready.clear()
        again, self._again = self._again, deque()
        for waiter in again:
            if waiter.number in active:
                self._step(waiter, keys, None)
            yield
        while keys:
            chained: dict[tuple[int, bytes], None] = {}
            databases = region.keyspace.databases
            reviewed = [databases[index].reviewed for index in {index for index, _ in keys}]
            changed = {key for _, key in keys}.union(*reviewed)
            for index, key in keys:
                database = databases[index]
                queue = database.waiters.get(key)
                if queue is not None:
                    is_reviewed = key in database.reviewed
                    database.reviewed.discard(key)
                    value = partial(self._value, database, key)
                    for waiter in queue.called(value, is_reviewed=is_reviewed):
                        if waiter.number in active:
                            self._step(waiter, chained, changed)
                            yield
                yield
            keys = chained

    def _step(
        self,
        waiter: Waiter,
        chained: dict[tuple[int, bytes], None],
        changed: Collection[bytes] | None,
    ) -> None:
        """Run a command again; adds the keys to ``chained`` that it makes ready."""
        if self._ready:
            self._set_aside()
        self._retry(waiter, self._now_ms, changed)
        if self._ready:
            chained.update(self._ready)
            self._ready.clear()

    def _value(self, database: Database, key: bytes) -> Value | None:
        """The present value of a key."""
        region = self._region
        region.context.enter(region.nobody, self._now_ms)
        return region.context.lookup_in(database, key)

    def after(self, session: Session) -> None:
        """Let a connection continue when those are served whom its command woke."""
        session.delayed = True
        if self._ready:
            self._set_aside()
            self._after_next[session] = None
        else:
            self._after[session] = None

    def remove(self, session: Session) -> None:
        """Remove a connection that has ended."""
        if session.waiter is not None:
            self._region.keyspace.waiters.remove(session.waiter)
            session.waiter = None
        self.unsubscribe(session)
        self._after.pop(session, None)
        self._after_next.pop(session, None)

    def unsubscribe(self, session: Session) -> None:
        """End the subscription of a connection to entries, if it has one."""
        if session.subscribed is not None:
            self._region.keyspace.waiters.remove(session.subscribed)
            session.subscribed = None
            session.refresh()

    def _retry(self, waiter: Waiter, now_ms: int, changed: Collection[bytes] | None = None) -> None:
        """Run a blocked command again: it answers, fails, or keeps its place.

        ``changed`` contains its keys that may have changed; without it, all may have.
        """
        region = self._region
        session: Session = waiter.session
        if session.closing:  # its reply is not read; other readers get its entries
            return
        ctx = region.context
        ctx.enter(session, now_ms)
        ctx.waiter = waiter
        waiter.changed = changed
        entry = region.dispatcher.find(waiter.args)
        assert entry is not None
        assert entry.function is not None
        if region.dispatcher.pause_until_ms and entry.command.is_write:
            self._paused[waiter] = None
            waiter.is_behind = True
            return
        waiter.is_due = False
        reply: bytes | None
        started = region.clock.ticks_ns()
        try:
            # The ACL rules may have changed since it blocked: check them again, as Redis 7.2 does.
            region.dispatcher.admit(ctx, entry.command, waiter.args)
            reply = entry.function(ctx, waiter.args)
        except Exception as problem:
            reply = region.failed(entry, waiter.args, problem)
        finally:
            ctx.waiter = None
        if reply is not None:
            spent = region.clock.ticks_ns() - started
            entry.total_ns += spent
            entry.histogram[spent.bit_length()] += 1
            self.end_wait(waiter, reply)

    def time_out(self, waiter: Waiter) -> None:
        """End a wait with the reply for no result, unless that reply is withheld."""
        reply = waiter.timeout_reply if waiter.late_reply is None else waiter.late_reply()
        dispatcher = self._region.dispatcher
        entry = dispatcher.find(waiter.args)
        if dispatcher.withheld is not None and entry is not None:
            try:
                dispatcher.withheld.check(waiter.session, entry.command, waiter.args)
            except CommandError as refusal:
                reply = dispatcher.failed(refusal)
        self.end_wait(waiter, reply)

    def end_wait(self, waiter: Waiter, reply: bytes) -> None:
        """End a wait with a reply; the client's later requests run in a later turn."""
        session: Session = waiter.session
        if waiter.is_lasting:  # the reply is an error, and belongs to no request
            self.unsubscribe(session)
            self._region.channels.send([session], [b"ab.unsubscribed", reply[1:].strip()])
            return
        self._region.keyspace.waiters.remove(waiter)
        session.waiter = None
        self._region.say(session, None, reply)
        self._region.channels.pending[session] = None

    def look_again(self, waiter: Waiter) -> None:
        """Run a waiting command again in a later turn."""
        if not waiter.is_due:
            waiter.is_due = True
            self._again.append(waiter)
            self._region.scheduler.schedule(self._go_on, first=True)

    def unpause(self) -> None:
        """End a CLIENT PAUSE. What waited and would have written looks again at the next tick."""
        region = self._region
        region.dispatcher.unpause()
        for waiter in self._paused:
            region.keyspace.waiters.recheck_at(waiter, region.context.now_ms)
        self._paused.clear()

    # -- other reasons than keys --------------------------------------------------------------

    def answer_waitfor(self) -> None:
        """The version vector has grown: answer the clients that wait for this (AB.WAITFOR)."""
        region = self._region
        vector = region.replica.vector
        waiting = region.context.waits.vectors.items()
        over = [each for each, wanted in waiting if covers(vector, wanted)]
        if over:
            self._again += over
            self.serve()

    def answer_wait(self) -> None:
        """More effects are on disks or in other regions: answer waiting clients (WAIT, WAITAOF)."""
        waiting = self._region.context.waits.safety
        if waiting:
            self._again += list(waiting)
            self.serve()

    def answer_inquiries(self) -> None:
        """An inquiry may be over: answer waiting clients (AB.VERIFY, AB.REGION REPAIR, SAVE)."""
        waiting = self._region.context.waits.inquiries
        if waiting:
            self._again += [each for each, inquiry in waiting.items() if inquiry.is_done]
            self.serve()

    def end_waits(self, now_ms: int) -> bool:
        """Answer clients whose wait is over, until the deadline; returns whether some are left."""
        region = self._region
        for waiter in region.keyspace.waiters.due(now_ms):
            if waiter.deadline_ms and waiter.deadline_ms <= now_ms:
                entry = region.dispatcher.find(waiter.args)
                if entry is not None:
                    entry.histogram[0] += 1
                self.time_out(waiter)
            else:
                self._retry(waiter, region.clock.now_us() // 1000)
            if region.scheduler.is_over():
                return True
        return False
