"""An answer that is made piece by piece while its reader is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


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
