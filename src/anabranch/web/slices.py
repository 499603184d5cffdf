"""Work of the HTTP side in slices of time: between two of them clients are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from time import perf_counter_ns, thread_time_ns
from typing import TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from anabranch.scheduling import SLICE_NS, Steps

_T = TypeVar("_T")


class Spent:
    """The processor time that steps have taken, without that of others between the slices."""

    ns = 0


async def in_slices(steps: Steps[_T], spent: Spent | None = None) -> _T:
    """Do all steps; returns what they return. A slice ends with the step that exceeds it."""
    while True:
        began_ns = thread_time_ns()
        now_ns = perf_counter_ns()
        end_ns = now_ns + SLICE_NS
        try:
            while now_ns < end_ns:
                next(steps)
                now_ns = perf_counter_ns()
        except StopIteration as end:
            result: _T = end.value
            return result
        finally:
            if spent is not None:
                spent.ns += thread_time_ns() - began_ns
        await asyncio.sleep(0)


# -- an answer that is made piece by piece while its reader is there --------------------------


class Streamed(Response):
    """Pieces until there are no more, or until the reader is gone.

    Starlette has an answer of this kind, too. At its first use it imports modules for 20 ms while
    all clients wait, and when a reader leaves early, it leaves a cycle of objects that only a
    garbage collection frees.
    """

    def __init__(
        self,
        pieces: Callable[[asyncio.Task[None]], AsyncIterator[bytes]],
        *,
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """``pieces`` gets a task that is done when the reader is gone."""
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the pieces as they come, until the client has gone (ASGI)."""
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            async for piece in self._pieces(gone):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
