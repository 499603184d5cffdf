"""Reads a stream page by page with XRANGE, without parsing its entries one by one.

The reply does not say how long it is. It is complete when it has two arrays for each entry that its
first line promises, and the last of them is whole. Values may look like arrays: then there are too
many, or `WireEntries.of_xrange` finds that lengths do not agree, and hiredis parses the page, and
waits for the rest of it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import hiredis
import redis

from anabranch.spark.connection.client import ServerClient
from anabranch.spark.decoding.entries import Entries, ParsedEntries
from anabranch.spark.decoding.exports import MalformedReply
from anabranch.spark.decoding.wire_entries import WireEntries

FIRST_PAGE: Final = 100
"""Entries of the first XRANGE; values may be large."""

_PAGE_MAX: Final = 10_000  # larger replies are slower, not quicker
_GROWTH: Final = 10

_CRLF: Final = b"\r\n"
_ARRAY: Final = b"\r\n*"  # what is before ends, and an array begins
_ARRAYS: Final = 2  # of an entry: itself, and its fields

Page = tuple[list[Any] | None, Entries | None]
"""Reply of XINFO STREAM (None: there is no such stream); entries (None: there are no more)."""


def next_page(count: int, nbytes: int, bytes_max: int) -> int:
    """How many entries to ask for after a page of `count` that had `nbytes`."""
    return max(1, min(count * _GROWTH, _PAGE_MAX, count * bytes_max // max(nbytes, 1)))


def begin_page(
    client: ServerClient, key: bytes, after: str, upto: str, count: int
) -> Callable[[], Page]:
    """Ask for the state of a stream and its first entries behind an ID, up to another.

    Returns a function that waits for them; call it before sending anything else. It raises
    `ServerRefused` and `ServerUnreachable`.
    """
    commands = (("XINFO", "STREAM", key), ("XRANGE", key, f"({after}", upto, "COUNT", count))
    replies = client.begin(commands, receive=lambda by: received(by.receive_bytes))

    def page() -> Page:
        info, entries = replies()
        if isinstance(info, Exception) or isinstance(entries, Exception):
            info, rows = client.ask(commands)  # for the error as redis-py knows it
            entries = ParsedEntries.of_xrange(rows) if rows else None
        return info, entries

    return page


def received(more: Callable[[], bytes]) -> list[Any]:
    """The two replies; error replies as `redis.RedisError` objects. `more` waits for bytes."""
    incoming = _Incoming(more)
    at = incoming.end_of_reply(0)
    info = _parsed(incoming.data[:at])
    line = incoming.end_of_line(at)
    count = int(incoming.data[at + 1 : line]) if incoming.data[at : at + 1] == b"*" else 0
    if count < 1:
        return [info, _parsed(incoming.data[at : incoming.end_of_reply(at)]) or None]
    if incoming.has_entries(line, count):
        with suppress(MalformedReply), memoryview(incoming.data)[line + len(_CRLF) :] as entries:
            block = WireEntries.of_xrange(entries)
            if len(block) == count:
                return [info, block]
    reader = hiredis.Reader()
    with _uncollected():
        reader.feed(bytes(incoming.data[at:]))
        while (rows := reader.gets()) is False:
            reader.feed(incoming.more())
        return [info, ParsedEntries.of_xrange(rows)]


class _Incoming:
    """The bytes of replies, as far as they have arrived."""

    def __init__(self, more: Callable[[], bytes]) -> None:
        self._more = more
        self.data = bytearray()

    def more(self) -> bytes:
        """Wait for some more."""
        came = self._more()
        self.data += came
        return came

    def end_of_line(self, at: int) -> int:
        """Where the next line ends."""
        while (found := self.data.find(_CRLF, at)) < 0:
            self.more()
        return found

    def end_of_reply(self, at: int) -> int:
        """Where a whole reply ends, which must be a short one."""
        while (found := _end(self.data, at)) is None:
            self.more()
        return found

    def has_entries(self, line: int, count: int) -> bool:
        """Wait for all entries of a reply; False if values look like arrays."""
        seen, looked, last = 0, line, line
        while True:
            if found := self.data.count(_ARRAY, looked):
                seen += found
                last = self.data.rfind(_ARRAY, looked)
            if seen > count * _ARRAYS:
                return False
            whole = seen == count * _ARRAYS and _end(self.data, last + len(_CRLF))
            if whole == len(self.data):
                return True
            looked = max(line, len(self.data) - len(_ARRAY) + 1)
            self.more()


def _end(data: bytearray, at: int) -> int | None:
    """Where the reply that begins at `at` ends; None if it is not there yet."""
    left = 1
    while left:
        line = data.find(_CRLF, at)
        if line < 0:
            return None
        kind = bytes(data[at : at + 1])
        try:
            size = int(data[at + 1 : line]) if kind in (b"*", b"$") else 0
        except ValueError:  # it only looked like a reply
            return None
        at = line + len(_CRLF)
        left -= 1
        if kind == b"*":
            left += max(size, 0)
        elif kind == b"$" and size >= 0:
            at += size + len(_CRLF)
    return at if at <= len(data) else None


def _parsed(reply: bytearray) -> Any:
    reader = hiredis.Reader(replyError=redis.ResponseError)
    reader.feed(bytes(reply))
    return reader.gets()


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
