"""The event loop, its timers, and threads for work that must not block it."""

from __future__ import annotations

import asyncio
import time
from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from errno import EAGAIN

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


class _ThreadWorker:
    """A thread that does work in the given order; its results come in turns of the event loop."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)

    def start(self) -> None:
        try:
            self._executor.submit(int).result()
        except RuntimeError as problem:
            raise OSError(EAGAIN, str(problem)) from None

    def submit(
        self, work: Callable[[], object], then: Callable[[WorkFuture], object] | None = None
    ) -> WorkFuture:
        job: Future[object] = self._executor.submit(work)
        if then is not None:
            loop = get_running_loop()
            job.add_done_callback(lambda done: loop.call_soon_threadsafe(then, done))
        return job

    def close(self) -> None:
        self._executor.shutdown(wait=True)


def loop_factory() -> tuple[Callable[[], asyncio.AbstractEventLoop], str]:
    """The factory of the event loop, and its name for INFO."""
    try:
        # Costs 40 ms, so only where a server really starts.
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop, "asyncio"
    return uvloop.new_event_loop, "uvloop"
