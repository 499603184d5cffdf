"""A transaction that takes several slices of time, while no other client sees or changes anything.

EXEC and scripts are atomic. A long script must give the event loop back in between, so that the
server can answer others. Until such a transaction is over,

* requests of other clients wait, and are answered BUSY once ``busy-reply-threshold`` has passed;
* no time passes for the data, no blocked command runs again, effects of other regions wait
  (:attr:`Scheduler.is_exclusive` says so);
* the effects of the transaction are kept here. The log gets all of them at the end, or none.

Where no driver runs turns (tests, the simulator) everything is done at once.
"""

from __future__ import annotations

from anabranch.effects.recorded import Recorded
from anabranch.engine.session import Session
from anabranch.region.slicing import LongRequest
from anabranch.region.state import RegionState
from anabranch.region.waking import Waking
from anabranch.scheduling import Steps


class Exclusive(LongRequest):
    """One such transaction. A :class:`anabranch.engine.session.Resumable`."""

    def __init__(
        self,
        region: RegionState,
        waking: Waking,
        session: Session,
        args: list[bytes],
        steps: Steps[bytes],
    ) -> None:
        super().__init__(region, waking, session, args, steps)
        self._is_wanted = True  # the client still waits for the reply
        self._began_ns = region.clock.ticks_ns()
        self._is_slow = False  # others are answered BUSY
        self._effects = Recorded()
        self._record = region.effects.record
        ctx = region.context
        self._flags = ctx.in_exec, ctx.in_script
        self._author = ctx.session
        self._now_ms = ctx.now_ms

    def begin(self) -> bytes | None:
        """Do what fits into the slice of the connection: the reply, or None if more is left.

        Raises what the transaction raises.
        """
        region, effects = self._region, self._region.effects
        if self._record is not None:
            effects.record = self._effects
        try:
            reply = self._go_on()
        except BaseException:
            self._hand_over_effects()
            raise
        if reply is not None:
            self._hand_over_effects()
            return reply
        region.give_up = self.abandon
        region.scheduler.is_exclusive = True
        region.dispatcher.guarded_by.add("exclusive")
        self._session.sliced = self
        self._schedule(self.go_on)
        return None

    def _go_on(self) -> bytes | None:
        """Step until the slice is over; the reply, or None if more is left.

        The clock of the data stands still, whatever happens between the slices.
        """
        ctx = self._region.context
        ctx.in_exec, ctx.in_script = self._flags
        ctx.enter(self._author, self._now_ms)
        try:
            reply: bytes | None = self._stepped()
        finally:
            self._author = ctx.session
            self._flags = ctx.in_exec, ctx.in_script
            ctx.in_exec = ctx.in_script = False
        return reply

    def _hand_over_effects(self) -> None:
        """The transaction is over: the log gets its effects, unless it was closed meanwhile."""
        effects = self._region.effects
        if effects.record is not None and self._record is not None:
            effects.record = self._record
            self._record.extend(self._effects)

    def go_on(self) -> bool:
        """Do what fits into another slice. A :data:`anabranch.scheduling.Work`."""
        region = self._region
        region.cpu.mark(region.clock.ticks_ns())
        try:
            reply = self._go_on()
        except Exception as problem:
            reply = region.failed(self._entry, self._args, problem)
        self._cpu_ns += region.cpu.since()
        if reply is not None:
            self._end(reply)
            return False
        limit_ns = region.settings.busy_reply_threshold * 1_000_000
        if not self._is_slow and region.clock.ticks_ns() - self._began_ns > limit_ns:
            self._is_slow = region.dispatcher.answers_busy = True
            region.dispatcher.release_postponed()
        return True

    def _end(self, reply: bytes) -> None:
        region, dispatcher = self._region, self._region.dispatcher
        self._hand_over_effects()
        region.give_up = None
        region.scheduler.is_exclusive = False
        dispatcher.guarded_by.discard("exclusive")
        dispatcher.answers_busy = False
        dispatcher.release_postponed()
        self._finish(reply, is_wanted=self._is_wanted)

    def abandon(self) -> None:
        """Go no further: the effects of the transaction are lost."""
        self._region.give_up = None
        self._region.scheduler.remove(self.go_on)
        self._steps.close()

    def resume(self) -> None:
        """Do nothing: a transaction is never paused."""

    def cancel(self) -> None:
        """The client is gone. The transaction continues to its end, as in Redis."""
        self._is_wanted = False
        self._session.sliced = None
