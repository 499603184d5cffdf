"""An answer that is made piece by piece ends with its reader, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any
from weakref import ref

import pytest

pytest.importorskip("starlette", reason="the extra web is not installed")

from anabranch.web.slices import Streamed


class Page:
    """What one open page holds."""


async def test_what_a_closed_page_held_is_freed_without_the_collector() -> None:
    left, seen, sent = asyncio.Event(), asyncio.Event(), []

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message.get("body"))
        if len(sent) > 3:
            seen.set()

    async def messages(page: Page, gone: asyncio.Task[None]) -> AsyncIterator[bytes]:
        while not gone.done():
            yield type(page).__name__.encode()
            await asyncio.wait({gone}, timeout=0.001)

    async def look() -> ref[Page]:
        page = Page()
        answer = Streamed(lambda gone: messages(page, gone), media_type="text/event-stream")
        task = asyncio.ensure_future(answer({"type": "http", "method": "GET"}, receive, send))
        await asyncio.wait_for(seen.wait(), 60)
        left.set()
        await asyncio.wait_for(task, 60)
        return ref(page)

    gc.collect()
    gc.disable()
    try:
        assert (await look())() is None
    finally:
        gc.enable()
    assert sent[1:4] == [b"Page"] * 3
    assert sent[-1] == b""


async def test_a_request_for_the_head_alone_ends() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    answer = Streamed(lambda _gone: 1 / 0, media_type="text/plain")  # type: ignore[arg-type, return-value]
    await answer({"type": "http", "method": "HEAD"}, asyncio.Event().wait, send)  # type: ignore[arg-type]
    assert [each.get("more_body", False) for each in sent] == [False, False]
