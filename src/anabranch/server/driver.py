"""The event loop, its timers, and threads for work that must not block it."""

from __future__ import annotations

import asyncio
import time
from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable
from contextlib import suppress
from errno import EAGAIN
from queue import SimpleQueue
from threading import Lock, Thread

from anabranch.compiling import mypyc_attr
from anabranch.node.driver import Worker, WorkFuture


@mypyc_attr(allow_interpreted_subclasses=True)
class LoopDriver:
    """A :class:`anabranch.node.driver.Driver` in the running event loop."""

    def __init__(self) -> None:
        self.now_s: Callable[[], float] = time.monotonic
        """The monotonic clock of the system, in seconds."""

    def call_soon(self, action: Callable[[], object]) -> object:
        """Call when the present turn of the event loop is over."""
        return get_running_loop().call_soon(action)

    def call_later(self, delay_s: float, action: Callable[[], object]) -> TimerHandle:
        """Call after a delay, by a timer of the event loop."""
        return get_running_loop().call_later(delay_s, action)

    def worker(self, name: str) -> Worker:
        """A thread for work in order, which starts with its first work."""
        return _ThreadWorker(name)


class _Job:
    """A piece of work and what came of it, a :class:`anabranch.node.driver.WorkFuture`."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._result: object = None
        self._problem: BaseException | None = None
        self._ends = Lock()  # held until the work has ended
        self._ends.acquire()

    def run(self) -> None:
        """Do the work; any thread may wait for it."""
        try:
            self._result = self._work()
        except BaseException as problem:  # who asks for the result gets it
            self._problem = problem
        self._ends.release()

    def done(self) -> bool:
        return not self._ends.locked()

    def result(self) -> object:
        problem = self.exception()
        if problem is not None:
            raise problem
        return self._result

    def exception(self) -> BaseException | None:
        with self._ends:
            return self._problem


class _ThreadWorker:
    """A thread that does work in the given order; its results come in turns of the event loop.

    With ``appendfsync always`` every turn passes a job, and an executor of the standard library
    takes more processor time for that than the sync itself.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._runner: Thread | None = None
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def start(self) -> None:
        try:
            self._begin()
        except RuntimeError as problem:
            raise OSError(EAGAIN, str(problem)) from None

    def submit(
        self, work: Callable[[], object], then: Callable[[WorkFuture], object] | None = None
    ) -> WorkFuture:
        self._begin()
        job = _Job(work)
        if then is None:
            self._jobs.put(job.run)
            return job
        loop = get_running_loop()

        def run() -> None:
            job.run()
            with suppress(RuntimeError):  # the loop is closed: nobody waits for the result
                loop.call_soon_threadsafe(then, job)

        self._jobs.put(run)
        return job

    def close(self) -> None:
        if self._runner is not None:
            self._jobs.put(None)
            self._runner.join()
            self._runner = None

    def _begin(self) -> None:
        if self._runner is None:
            thread = Thread(target=self._do_all, name=self._name, daemon=True)
            thread.start()
            self._runner = thread

    def _do_all(self) -> None:
        while self._do_one():
            pass

    def _do_one(self) -> bool:
        """Do the next job, and keep nothing of it while waiting for another."""
        run = self._jobs.get()
        if run is not None:
            run()
        return run is not None


def loop_factory() -> tuple[Callable[[], asyncio.AbstractEventLoop], str]:
    """The factory of the event loop, and its name for INFO."""
    try:
        # Costs 40 ms, so only where a server really starts.
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop, "asyncio"
    return uvloop.new_event_loop, "uvloop"
