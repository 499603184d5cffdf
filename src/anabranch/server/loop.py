"""uvloop where it is installed, asyncio elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def loop_factory() -> tuple[Callable[[], asyncio.AbstractEventLoop], str]:
    """The factory of the event loop, and its name for INFO."""
    try:
        # Costs 40 ms, so only where a server really starts.
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop, "asyncio"
    return uvloop.new_event_loop, "uvloop"
