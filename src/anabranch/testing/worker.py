"""A thread with an event loop, in which servers live.

A process that is forked has a copy of the object but not the thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

_Result = TypeVar("_Result")
_PATIENCE_S: Final = 60.0


class LoopThread:
    """Runs functions and coroutines of other threads in a loop of its own."""

    def __init__(self) -> None:
        """The thread starts at once."""
        from anabranch.server.driver import loop_factory  # noqa: PLC0415 - with the server

        self._process = os.getpid()
        factory, self.loop_name = loop_factory()
        self._loop = factory()
        self._thread = threading.Thread(target=self._run, name="anabranch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    @property
    def is_elsewhere(self) -> bool:
        """Whether the thread is in the process from which this one was forked."""
        return os.getpid() != self._process

    def _require_thread(self) -> None:
        if self.is_elsewhere:
            raise RuntimeError(
                f"the server is in process {self._process}, from which this one was forked: "
                "connect to it as a client"
            )

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """The result of a coroutine; what it raises is raised here."""
        if self.is_elsewhere:
            work.close()
        self._require_thread()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    def call(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """The result of a function; from within the loop it is called at once."""
        self._require_thread()
        if threading.current_thread() is self._thread:
            return function(*arguments)

        async def call() -> _Result:
            return function(*arguments)

        return self.run(call())

    def close(self) -> None:
        """End the loop and the thread, if it is in this process."""
        if self.is_elsewhere:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
