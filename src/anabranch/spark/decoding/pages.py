"""Reads a stream page by page with XRANGE: for servers whose entries have no positions."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from anabranch.spark.connection.client import ServerClient
from anabranch.spark.decoding.entries import ParsedEntries

FIRST_PAGE: Final = 100
"""Entries of the first XRANGE; values may be large."""

_PAGE_MAX: Final = 10_000  # larger replies are slower, not quicker
_GROWTH: Final = 10

Page = tuple[list[Any] | None, ParsedEntries | None]
"""Reply of XINFO STREAM (None: there is no such stream); entries (None: there are no more)."""


def next_page(count: int, nbytes: int, bytes_max: int) -> int:
    """How many entries to ask for after a page of `count` that had `nbytes`."""
    return max(1, min(count * _GROWTH, _PAGE_MAX, count * bytes_max // max(nbytes, 1)))


def begin_page(
    client: ServerClient, key: bytes, after: str, upto: str, count: int
) -> Callable[[], Page]:
    """Ask for the state of a stream and its first entries after an ID, up to another.

    Returns a function that waits for them; call it before sending anything else. It raises
    `ServerRefused` and `ServerUnreachable`.
    """
    replies = client.begin(
        (("XINFO", "STREAM", key), ("XRANGE", key, f"({after}", upto, "COUNT", count))
    )

    def page() -> Page:
        with _uncollected():
            info, rows = client.checked(replies())
            return info, ParsedEntries(rows) if rows else None

    return page


@contextmanager
def _uncollected() -> Iterator[None]:
    """Switch the garbage collector off for a while.

    A page is ten thousand lists, none of them garbage, and for each thousand Python would search
    all objects that Spark has imported: that took half of the processor time of such a read.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
