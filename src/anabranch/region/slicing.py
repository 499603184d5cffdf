"""Requests that take several slices of time: others are served between one slice and the next.

A command function whose work may take long passes it to :meth:`Context.in_slices` as a generator
that returns the reply in pieces. It runs at once as far as the connection's slice of time goes. If
work is left, the request stays first in the connection's backlog, so the client's later requests
wait, and the generator continues in the queue of the scheduler. The work is not cut inside a
transaction, for a command that was blocked, and where the scheduler has no driver (some tests).

A generator that returns no piece at all has only prepared what the command needs: the request then
runs again from its beginning.

The command function must make its work atomic. Commands that read take a frozen view in their first
step. Commands that write prepare outside the keyspace and change it in their last step.
"""

from __future__ import annotations

from typing import Any

from anabranch.engine.served_command import ServedCommand
from anabranch.engine.session import Session
from anabranch.region.state import RegionState
from anabranch.region.waking import Waking
from anabranch.scheduling import Steps, Work


class LongRequest:
    """A request that takes several slices of time."""

    def __init__(
        self,
        region: RegionState,
        waking: Waking,
        session: Session,
        args: list[bytes],
        steps: Steps[Any],
    ) -> None:
        entry = region.dispatcher.find(args)
        assert entry is not None
        self._region = region
        self._waking = waking
        self._session = session
        self._entry: ServedCommand = entry
        self._args = args
        self._steps = steps
        self._spent_ns = 0
        self._cpu_ns = 0

    def _stepped(self) -> Any:
        """Step until the slice is over; what the steps return, or None if more is left."""
        clock, is_over = self._region.clock, self._region.scheduler.is_over
        began_ns = clock.ticks_ns()
        try:
            next(self._steps)
            while not is_over():
                next(self._steps)
        except StopIteration as end:
            return end.value
        finally:
            self._spent_ns += clock.ticks_ns() - began_ns
        return None

    def _schedule(self, go_on: Work) -> None:
        """More is left after the first slice: the request waits as the first of the backlog."""
        region = self._region
        self._cpu_ns = min(region.cpu.since(), self._spent_ns)
        self._session.backlog.appendleft(self._args)
        region.scheduler.schedule(go_on)

    def _finish(self, *parts: bytes, is_wanted: bool = True) -> None:
        """Answer, unless the client has disconnected; account, and serve woken clients."""
        region, session, entry = self._region, self._session, self._entry
        if is_wanted:
            session.sliced = None
            session.backlog.popleft()
            region.say(session, entry, *parts)
            session.commands += 1
            region.channels.pending[session] = None
        entry.total_ns += self._spent_ns
        entry.histogram[self._spent_ns.bit_length()] += 1
        region.slow(session, entry, self._args, self._spent_ns, self._cpu_ns)
        region.stats.commands_processed += 1
        if region.keyspace.ready:
            self._waking.serve()


class SlicedRequest(LongRequest):
    """A request during which others are served."""

    def begin(self) -> list[bytes] | None:
        """Do what fits into the slice that the connection has: the reply, or None if more is left.

        Raises what the command raises.
        """
        parts: list[bytes] | None = self._stepped()
        if parts is None:
            self._session.sliced = self
            self._schedule(self.go_on)
        return parts

    def go_on(self) -> bool:
        """Do what fits into another slice. A :data:`anabranch.scheduling.Work`."""
        region, session = self._region, self._session
        if session.closing:
            self.cancel()
            return False
        if region.scheduler.is_exclusive:
            return True
        dispatcher = region.dispatcher
        if dispatcher.pauses(session, self._entry.command):
            dispatcher.postponed[session] = None
            return False
        now_ms = region.clock.now_us() // 1000
        session.last_ms = now_ms
        region.context.enter(session, now_ms)
        region.cpu.mark(region.clock.ticks_ns())
        parts: list[bytes] | None
        try:
            # The ACL rules may have changed since it began, as for commands that block.
            dispatcher.admit(region.context, self._entry.command, self._args)
            parts = self._stepped()
        except Exception as problem:
            parts = [region.failed(self._entry, self._args, problem)]
        self._cpu_ns += region.cpu.since()
        if parts is None:
            return True
        self._steps.close()
        if parts:
            self._finish(*parts)
        else:
            session.sliced = None
            region.channels.pending[session] = None  # the request is the first of the backlog
        return False

    def resume(self) -> None:
        """Continue after a pause; no effect if it continues already."""
        self._region.scheduler.schedule(self.go_on)

    def cancel(self) -> None:
        """Stop: the client has disconnected."""
        self._region.scheduler.remove(self.go_on)
        self._steps.close()
        self._session.sliced = None
