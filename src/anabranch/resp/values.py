"""What a reply can be besides bytes, int, float, str, None and list.

Plain Python values stand for the usual types: ``bytes`` and ``str`` bulk string, ``int`` integer,
``None`` null, ``list``/``tuple`` array, ``dict`` map (a flat array in RESP2), ``bool`` boolean,
``float`` double. The classes here name the rest; :func:`anabranch.resp.encode.encode` turns all of
them into RESP2 or RESP3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hiredis import Reader


class Status(str):
    """A simple string (``+OK``)."""

    __slots__ = ()


class Verbatim(str):
    """Text for people: verbatim string in RESP3, bulk string in RESP2."""

    __slots__ = ()


class Raw(bytes):
    """Bytes that are RESP already."""

    __slots__ = ()


class Map:
    """Pairs as in a ``dict``, where keys may repeat."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        self.pairs = list(pairs)


class SetReply(list[Any]):
    """A set in RESP3, an array in RESP2."""

    __slots__ = ()


class PushMessage(list[Any]):
    """An out-of-band message: push in RESP3, array in RESP2."""

    __slots__ = ()


def read_value(data: bytes) -> Any:
    """The first value in bytes of RESP, with arrays as lists; False if they end within it."""
    reader = Reader()
    reader.feed(data)
    return reader.gets()
