"""Shares the time of the one event loop among all who have more work than fits into a turn.

Commands run one at a time. So that no client waits long for the pipeline of another, long work is
cut by the clock, and unfinished work waits in one queue:

* A client without unfinished work is served at once, for a slice of time (:meth:`Scheduler.begin`,
  :meth:`Scheduler.end`). All such clients in one turn of the event loop share ``TURN_NS``; when
  that is used up, each still gets ``LEAST_NS``, so that a short request never waits in the queue.
* Unfinished work, :data:`Work`, is done in later turns, after the event loop has served the
  sockets: one slice each, in the order of arrival, until ``TURN_NS`` is used up
  (:meth:`Scheduler.run_turn`).
* Work for which others wait (commands that run again, replies to be written) gets a slice at the
  beginning of every turn.

Work compares the clock with :attr:`Scheduler.deadline_ns`, or calls :meth:`Scheduler.is_over`,
after each step. One step is always done, even after the deadline. Without :meth:`Scheduler.drive`
(some tests) the deadline never comes, and everything is done at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator
from typing import Final, TypeVar

_T = TypeVar("_T")

Steps = Generator[None, None, _T]
"""Work in short steps: yields after each step, and returns the result."""

Work = Callable[[], bool]
"""Does some work until the deadline, at least one step; returns whether work is left."""

SLICE_NS: Final = 1_000_000
"""The length of a slice."""

TURN_NS: Final = 3_000_000
"""The time for unfinished work in one turn, and again for clients that are served at once."""

MUCH_NS: Final = TURN_NS // 2
"""From this time on the clock limits those that are served at once."""

LEAST_NS: Final = 50_000
"""The slice of a client that is served at once after others have used up the turn."""

NOT_BEGUN: Final = -1
"""The deadline of a slice that begins with the first request."""

NEVER: Final = 1 << 63
"""A deadline that never comes."""


class Scheduler:
    """One queue of work, and the deadline of the present slice."""

    def __init__(self, ticks_ns: Callable[[], int]) -> None:
        """``ticks_ns`` reads a monotonic clock in nanoseconds."""
        self.ticks_ns = ticks_ns
        self.deadline_ns = NEVER
        """When the present slice ends."""
        self.is_exclusive = False
        """Whether a transaction takes several turns. Until it ends nothing else reads or changes
        the data."""
        self._outside_ns = NEVER  # the deadline of work that begins without a slice
        self._wake: Callable[[], None] = _nothing
        self.on_drive: Callable[[], None] = _nothing
        """Called by :meth:`drive`."""
        self._is_awake = True  # a turn is running, or was requested
        self._first: OrderedDict[Work, None] = OrderedDict()
        self._queue: OrderedDict[Work, None] = OrderedDict()
        self._gives_way = False  # the queue pauses in this turn, and not in the next one
        self._immediate_ns = 0  # the time of those served at once, since the last turn
        self._immediate_end_ns = 0  # when they will have used up the turn; 0 below MUCH_NS

    def drive(self, wake: Callable[[], None]) -> None:
        """Cut work from now on. ``wake`` must arrange that :meth:`run_turn` is called soon.

        It is not called again before that.
        """
        self._wake = wake
        self._is_awake = False
        self.deadline_ns = self._outside_ns = 0
        self.on_drive()

    def is_over(self) -> bool:
        """Whether the present slice is over."""
        return self.ticks_ns() >= self.deadline_ns

    # -- clients that are served at once ----------------------------------------------------------

    def begin(self) -> int:
        """Begin a slice for a client without unfinished work; pass the result to :meth:`end`.

        Without :meth:`end` the slice does not count, and lasts until another one begins.
        """
        now = self.ticks_ns()
        if not self._outside_ns:
            self.begin_at(now)
        return now

    def begin_at(self, now: int) -> int:
        """Begin a slice at a time that was read from the clock already; returns the deadline."""
        deadline = now + SLICE_NS
        end = self._immediate_end_ns
        if end and end < deadline:
            deadline = max(end, now + LEAST_NS)
        self.deadline_ns = deadline
        return deadline

    def begin_with_request(self) -> None:
        """Serve a client with little work: its slice begins with the first request."""
        self.deadline_ns = self._outside_ns or NOT_BEGUN

    def end(self, began_ns: int) -> None:
        """End the slice of :meth:`begin`."""
        outside = self.deadline_ns = self._outside_ns
        if outside or self._immediate_end_ns:
            return
        now = self.ticks_ns()
        spent = self._immediate_ns = self._immediate_ns + now - began_ns
        if spent >= MUCH_NS:  # a turn costs something: there is none after each short request
            self._immediate_end_ns = max(now + TURN_NS - spent, 1)
            self._ask_for_turn()

    @property
    def is_used_up(self) -> bool:
        """Whether those served at once have used up the turn."""
        return 0 < self._immediate_end_ns <= self.ticks_ns()

    # -- work that is left over ---------------------------------------------------------------

    def schedule(self, work: Work, *, first: bool = False) -> None:
        """Queue work for later turns; work that is in the queue already keeps its place.

        ``first``: others wait for the work, so it gets a slice at the beginning of every turn.
        """
        queue = self._first if first else self._queue
        queue[work] = None
        self._ask_for_turn()

    def remove(self, work: Work) -> None:
        """Remove work from the queue; no effect if it is not there."""
        self._queue.pop(work, None)
        self._first.pop(work, None)

    def carry_out(self, steps: Steps[None]) -> None:
        """Do steps as far as the present slice goes, at least one; the others in later turns."""

        def go_on() -> bool:
            return any(self.is_over() for _ in steps)

        if go_on():
            self.schedule(go_on)

    def __len__(self) -> int:
        """The count of unfinished work."""
        return len(self._first) + len(self._queue)

    def _ask_for_turn(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._wake()

    def run_turn(self) -> None:
        """Do unfinished work until the time of a turn is used up; request another if needed."""
        self._is_awake = True
        # After a long step of a client served at once, serve the sockets before the queue.
        self._gives_way = self._immediate_ns > TURN_NS and not self._gives_way
        self._immediate_ns = self._immediate_end_ns = 0
        try:
            for _ in range(len(self._first)):
                self._run_next(self._first)
            end_ns = self.ticks_ns() + TURN_NS
            while self._queue and not self._gives_way and self.ticks_ns() < end_ns:
                self._run_next(self._queue)
        finally:
            self.deadline_ns = self._outside_ns
            self._is_awake = False
            if self._first or self._queue:
                self._ask_for_turn()

    def _run_next(self, queue: OrderedDict[Work, None]) -> None:
        if not queue:  # work was removed
            return
        work, _ = queue.popitem(last=False)
        self.deadline_ns = self.ticks_ns() + SLICE_NS
        if work():
            queue[work] = None


def in_one_go(steps: Steps[_T]) -> _T:
    """Do all steps; returns what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


def _nothing() -> None:
    """Do nothing when work is scheduled: no driver runs turns."""


# -- the processor time of a request, without a look at that clock for each one ---------------
#
# Reading the processor clock of a thread is a call of the system. It is read at most once a
# millisecond, and when a request turns out to be slow: the time since the last look, at most the
# whole time of the request, is that of the request. It may be too long by the work of one
# millisecond before it.


_EVERY_NS: Final = 1_000_000


class CpuTime:
    """The processor time since a mark, of one thread."""

    def __init__(self, cpu_ns: Callable[[], int]) -> None:
        """``cpu_ns`` reads the processor clock, in nanoseconds."""
        self._cpu_ns = cpu_ns
        self._marked_ns = 0
        self._due_ns = 0  # when, by the monotonic clock, the next look is due

    def begin(self, now_ns: int) -> int:
        """Requests begin: mark, unless the last mark is recent; returns ``now_ns``."""
        if now_ns >= self._due_ns:
            self.mark(now_ns)
        return now_ns

    def mark(self, now_ns: int) -> None:
        """Measure from now on; ``now_ns`` is the time of the monotonic clock."""
        self._marked_ns = self._cpu_ns()
        self._due_ns = now_ns + _EVERY_NS

    def since(self) -> int:
        """The processor time since the mark, in nanoseconds."""
        return self._cpu_ns() - self._marked_ns
