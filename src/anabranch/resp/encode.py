"""Replies as bytes, in RESP2 and RESP3.

Hot commands build their reply from the constants and small functions here; everything else hands
a value to :func:`encode`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from librt.strings import BytesWriter

from anabranch.resp.values import Map, PushMessage, Raw, SetReply, Status, Verbatim

OK: Final = b"+OK\r\n"
QUEUED = b"+QUEUED\r\n"
ZERO: Final = b":0\r\n"
ONE: Final = b":1\r\n"
EMPTY_ARRAY: Final = b"*0\r\n"
NULL_BULK_RESP2: Final = b"$-1\r\n"
NULL_ARRAY_RESP2: Final = b"*-1\r\n"
NULL_RESP3: Final = b"_\r\n"


_SMALL: Final = 256
_BULK_HEADS: Final = [b"$%d\r\n" % size for size in range(_SMALL)]
_INTEGERS: Final = [b":%d\r\n" % value for value in range(_SMALL)]
_ARRAY_HEADS: Final = [b"*%d\r\n" % count for count in range(_SMALL)]
_LINE_END: Final = b"\r\n"


def write_bulk(out: BytesWriter, data: bytes) -> None:
    """Append :func:`bulk`. Replies of many parts are written so: a part costs a copy."""
    out.write(bulk_header(len(data)))
    out.write(data)
    out.write(_LINE_END)


def write_integer(out: BytesWriter, value: int) -> None:
    """Append :func:`integer`."""
    out.write(integer(value))


def bulk_header(size: int) -> bytes:
    """What stands before a bulk string of so many bytes."""
    return _BULK_HEADS[size] if size < _SMALL else b"$%d\r\n" % size


def bulk(data: bytes) -> bytes:
    """A bulk string of RESP, with its length."""
    return b"%b%b\r\n" % (bulk_header(len(data)), data)


def integer(value: int) -> bytes:
    """An integer of RESP; clients know 64 bits with a sign."""
    return _INTEGERS[value] if 0 <= value < _SMALL else b":%d\r\n" % value


def array_header(count: int) -> bytes:
    """The header of an array of ``count`` elements."""
    return _ARRAY_HEADS[count] if count < _SMALL else b"*%d\r\n" % count


def array_of(words: Sequence[bytes]) -> bytes:
    """An array of bulk strings."""
    return b"".join([array_header(len(words)), *map(bulk, words)])


def map_header(count: int, resp3: bool) -> bytes:
    """The header of ``count`` pairs: a map in RESP3, a flat array in RESP2."""
    return b"%%%d\r\n" % count if resp3 else b"*%d\r\n" % (2 * count)


def verbatim(data: bytes, resp3: bool) -> bytes:
    """A text for people: a verbatim string in RESP3, a bulk string in RESP2."""
    return b"=%d\r\ntxt:%b\r\n" % (len(data) + 4, data) if resp3 else bulk(data)


def null(resp3: bool) -> bytes:
    """The null of commands that answer one bulk string."""
    return NULL_RESP3 if resp3 else NULL_BULK_RESP2


def null_array(resp3: bool) -> bytes:
    """The null of commands that answer an array."""
    return NULL_RESP3 if resp3 else NULL_ARRAY_RESP2


def error(text: bytes) -> bytes:
    """An error; line ends inside the text become blanks, as a line is all it can be."""
    if b"\n" in text or b"\r" in text:
        text = text.replace(b"\r", b" ").replace(b"\n", b" ")
    return b"-%b\r\n" % text


def _double(value: float) -> bytes:
    text = repr(value)
    return text.removesuffix(".0").encode()


@lru_cache(1024)
def _name(text: str) -> bytes:
    """The name of a pair: there are few, used again and again."""
    return bulk(text.encode("utf-8", "surrogateescape"))


def encode(value: Any, resp3: bool) -> bytes:
    """Any reply value as bytes (see ``values.py`` for what stands for what)."""
    parts: list[bytes] = []
    _write(value, resp3, parts)
    return b"".join(parts)


def _write(value: Any, resp3: bool, out: list[bytes]) -> None:
    kind = type(value)
    if kind is bytes or kind is bytearray:
        out.append(b"$%d\r\n%b\r\n" % (len(value), value))
    elif kind is int:
        out.append(b":%d\r\n" % value)
    elif kind is str:
        out.append(bulk(value.encode("utf-8", "surrogateescape")))
    elif value is None:
        out.append(NULL_RESP3 if resp3 else NULL_BULK_RESP2)
    elif kind is Raw:
        out.append(value)
    elif kind is Status:
        out.append(b"+%b\r\n" % value.encode("utf-8", "surrogateescape"))
    elif kind is dict or kind is Map:
        pairs = value.items() if kind is dict else value.pairs
        out.append(map_header(len(pairs), resp3))
        for key, item in pairs:
            if type(key) is str:
                out.append(_name(key))
            else:
                _write(key, resp3, out)
            item_kind = type(item)
            if item_kind is int:  # most are, or bytes
                out.append(b":%d\r\n" % item)
            elif item_kind is bytes:
                out.append(b"$%d\r\n%b\r\n" % (len(item), item))
            else:
                _write(item, resp3, out)
    elif kind is list or kind is tuple or kind is SetReply or kind is PushMessage:
        sign = b"*"
        if resp3:
            sign = b"~" if kind is SetReply else b">" if kind is PushMessage else b"*"
        out.append(b"%b%d\r\n" % (sign, len(value)))
        for item in value:
            item_kind = type(item)
            if item_kind is bytes:  # most are, or integers
                out.append(b"$%d\r\n%b\r\n" % (len(item), item))
            elif item_kind is int:
                out.append(b":%d\r\n" % item)
            else:
                _write(item, resp3, out)
    elif kind is Verbatim:
        out.append(verbatim(value.encode("utf-8", "surrogateescape"), resp3))
    elif kind is bool:
        out.append((b"#t\r\n" if value else b"#f\r\n") if resp3 else b":%d\r\n" % value)
    elif kind is float:
        text = _double(value)
        out.append(b",%b\r\n" % text if resp3 else b"$%d\r\n%b\r\n" % (len(text), text))
    else:
        raise TypeError(f"no RESP form for {kind.__name__}")
