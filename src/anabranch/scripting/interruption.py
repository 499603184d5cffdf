"""Interrupts scripts that take long, and ends those that must not go on.

A script runs on a stack of its own (:mod:`greenlet`). After a number of instructions the hook in
``interruption.lua`` calls :meth:`Interruption.tick`, which switches back to the stack of the caller
of :meth:`Interruption.steps`. So a long script runs in slices like all other work, in one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
from typing import Any, Final, TypeVar

import greenlet

from anabranch.engine.script_machine import KILLED
from anabranch.scheduling import Steps
from anabranch.scripting.failures import Failure
from anabranch.scripting.world import ROOM_BYTES, World

_T = TypeVar("_T")

INSTRUCTIONS_MAX: Final = 1000
"""Instructions between two readings of the clock; ``interruption.lua`` has the same number."""

TICK_NS: Final = 500_000
"""The longest slice of a script; a slice of slow instructions has fewer of them."""

CALLS: Final = 64
"""Calls of commands between two readings of the clock: a call is one long instruction."""

LOAD_NS: Final = 500_000_000
"""The most time to load a library, because all clients wait for it."""

OUT_OF_MEMORY: Final = b"not enough memory"


class Interruption:
    """The stack on which scripts run, and the reason why the running script must end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._worker: greenlet.greenlet | None = None  # the stack of scripts
        self._work: Callable[[], Any] | None = None  # what is done there
        self._result: Any = None
        self._problem: BaseException | None = None
        self._kill: bytes | None = None  # the error with which the script must end
        self._calls_left = CALLS
        self._load_until_ns = 0  # the deadline of a library that is being loaded; 0: none is
        self._instructions = INSTRUCTIONS_MAX
        self._ticked_ns = self._switched_ns = 0

    def begin(self) -> None:
        """Prepare for a new script: nothing is due to be killed."""
        self._kill = None
        self._instructions = INSTRUCTIONS_MAX
        self._load_until_ns = 0
        self._ticked_ns = self._switched_ns = perf_counter_ns()

    def begin_loading(self) -> None:
        """Prepare for the code of a new library."""
        self.begin()
        self._load_until_ns = self._ticked_ns + LOAD_NS

    def kill(self) -> None:
        """End the running script with an error at its next step."""
        self._kill = KILLED

    # -- memory -------------------------------------------------------------------------------

    def make_room(self, size: int = 0) -> None:
        """Check that the result of a function, of this size, fits into the runtime.

        If the result does not fit, the script ends with an error.
        """
        world = self._world
        used = world.used_bytes
        if used + size + ROOM_BYTES > world.memory_bytes:
            world.limit(used + 2 * ROOM_BYTES)
            if self._kill is None:
                self._kill = OUT_OF_MEMORY
                world.inside["stop"]()
            raise Failure(b"ERR " + OUT_OF_MEMORY)

    def roomy(self, function: Callable[..., object]) -> Callable[..., object]:
        """A function that first calls :meth:`make_room` for its result."""

        def call(*args: object) -> object:
            self.make_room(sum(8 * len(each) for each in args if isinstance(each, bytes)))
            return function(*args)

        return call

    # -- time ---------------------------------------------------------------------------------

    def tick(self) -> tuple[bytes | None, int | None]:
        """End the slice if it has taken its time.

        Returns the error with which the script must end, or None, and the number of instructions
        until the next call. One instruction may take long, for example on a long string.
        """
        if self._kill is not None:
            self._world.limit(self._world.used_bytes + ROOM_BYTES)
            return self._kill, None
        now = perf_counter_ns()
        if 0 < self._load_until_ns < now:
            self._kill = b"FUNCTION LOAD timeout"
            return self._kill, None
        spent_ns = now - self._ticked_ns
        instructions = self._instructions
        if spent_ns > TICK_NS:
            self._instructions = max(instructions * TICK_NS // spent_ns, 1)
        elif instructions < INSTRUCTIONS_MAX:
            self._instructions = min(2 * instructions, INSTRUCTIONS_MAX)
        if now - self._switched_ns > TICK_NS:
            worker = self._worker
            if worker is not None and greenlet.getcurrent() is worker:
                worker.parent.switch()
            self._switched_ns = now = perf_counter_ns()
        self._ticked_ns = now
        changed = None if instructions == self._instructions else self._instructions
        return self._kill, changed

    def count_call(self) -> None:
        """A script calls a command, which may be a good deal of work for one instruction."""
        self._calls_left -= 1
        if not self._calls_left:
            self._calls_left = CALLS
            stop, _ = self.tick()
            if stop is not None:
                self._world.inside["stop"]()
                raise Failure(b"ERR " + stop)

    # -- stacks -------------------------------------------------------------------------------

    def steps(self, work: Callable[[], _T]) -> Steps[_T]:
        """Call ``work`` in steps: scripts that take long yield in between.

        Closing the generator kills the script.
        """
        assert not self._is_busy(), "one script at a time"
        worker = self._worker
        if worker is None:
            worker = self._worker = greenlet.greenlet(self._serve)
        self._work = work
        try:
            worker.parent = greenlet.getcurrent()
            worker.switch()
            while self._is_busy():
                yield
                worker.parent = greenlet.getcurrent()
                worker.switch()
        except GeneratorExit:
            self._end_work()
            raise
        result: _T = self._outcome()
        return result

    def _is_busy(self) -> bool:
        return self._work is not None

    def _end_work(self) -> None:
        """Kill what is under way, and forget it."""
        worker = self._worker
        assert worker is not None
        with suppress(greenlet.error):  # the thread of the script has ended
            while self._is_busy():
                self._kill = KILLED
                worker.switch()
        self._problem = self._result = None

    def _outcome(self) -> Any:
        """What the work has returned, or raised."""
        problem, result = self._problem, self._result
        self._problem = self._result = None
        if problem is not None:
            try:
                raise problem
            finally:
                del problem  # a frame and an error that refer to each other would stay for long
        return result

    def _serve(self) -> None:
        """What the stack of scripts does: one piece of work after the other, until there is none.

        A new stack for each would take longer than a short script.
        """
        while (work := self._work) is not None:
            try:
                self._result = work()
            except BaseException as problem:
                self._problem = problem
            self._work = work = None
            assert self._worker is not None
            self._worker.parent.switch()

    def close(self) -> None:
        """Give up the stack. No script may be under way."""
        worker = self._worker
        if worker is not None:
            with suppress(greenlet.error, ValueError):  # another thread
                worker.parent = greenlet.getcurrent()
                worker.switch()
        self._worker = None
