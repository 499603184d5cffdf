"""The library ``struct`` of scripts: numbers and strings as bytes, in its own format."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["FUNCTIONS", "pack", "unpack"]

_SIZES: Final = {"b": 1, "h": 2, "l": 8, "T": 8, "f": 4, "d": 8, "n": 8}
_FLOATS: Final = {"f": "f", "d": "d", "n": "d"}
_INTEGER_BYTES_MAX: Final = 32
_STRING_BYTES_MAX: Final = 1 << 26


def _options(text: bytes) -> Iterator[tuple[str, int, str, int]]:
    """Each option: its letter, its size (-1 if none is given), byte order and alignment."""
    order, align, at = "little", 1, 0
    letters = text.decode("latin-1")
    while at < len(letters):
        letter = letters[at]
        at += 1
        digits = at
        while at < len(letters) and letters[at].isdigit():
            at += 1
        size = int(letters[digits:at]) if 0 < at - digits < 10 else -1
        if letter == "<":
            order = "little"
        elif letter == ">":
            order = "big"
        elif letter == "!":
            align = size if size > 0 else 8
        elif letter != " ":
            if letter in "iI":
                size = 4 if size < 0 else size
                if not 0 < size <= _INTEGER_BYTES_MAX:
                    raise ValueError(f"integral size {size} is larger than limit of 32")
            elif letter.lower() in _SIZES or letter in _SIZES:
                size = _SIZES.get(letter, _SIZES.get(letter.lower(), 1))
            elif letter == "x":
                size = 1
            elif letter not in "cs":
                raise ValueError(f"invalid format option '{letter}'")
            yield letter, size, order, align


def _padding(letter: str, size: int, align: int, at: int) -> int:
    """Bytes in front of an option."""
    if letter in "csx" or align <= 1:
        return 0
    unit = min(size, align)
    return -at % unit


def pack(*args: object) -> bytes:
    """struct.pack(format, value ...)."""
    out = bytearray()
    values = iter(args[1:])
    for letter, size, order, align in _options(_bytes(args[0] if args else None)):
        out += bytes(_padding(letter, size, align, len(out)))
        if letter == "x":
            out.append(0)
        elif letter == "s":
            out += _bytes(next(values, None)) + b"\0"
        elif letter == "c":
            data = _bytes(next(values, None))
            size = 1 if size < 0 else size or len(data)
            if len(data) < size:
                raise ValueError("string too short")
            out += data[:size]
        else:
            number = next(values, None)
            if isinstance(number, bytes):
                number = float(number)
            if not isinstance(number, int | float):
                raise ValueError("number expected")
            if letter in _FLOATS:
                sign = "<" if order == "little" else ">"
                out += struct.pack(sign + _FLOATS[letter], number)
            else:
                whole = int(number) & ((1 << 8 * size) - 1)
                out += whole.to_bytes(size, "big" if order == "big" else "little")
    return bytes(out)


def unpack(*args: object) -> tuple[object, ...]:
    """struct.unpack(format, data [, position]): the values, and the position behind them."""
    data = _bytes(args[1] if len(args) > 1 else None)
    start = args[2] if len(args) > 2 else 1
    at = int(start) - 1 if isinstance(start, int | float) else 0
    if at < 0:
        raise ValueError("offset must be 1 or greater")
    values: list[object] = []
    for letter, size, order, align in _options(_bytes(args[0] if args else None)):
        at += _padding(letter, size, align, at)
        if letter == "s":
            end = data.find(b"\0", at)
            if end < 0:
                raise ValueError("unfinished string in data")
            values.append(data[at:end])
            at = end + 1
            continue
        if letter == "c":
            if size == 0:
                last = values.pop() if values else None
                if not isinstance(last, int | float):
                    raise ValueError("format 'c0' needs a previous size")
                size = int(last)
            elif size < 0:
                size = 1
        if size < 0 or at + size > len(data):
            raise ValueError("data string too short")
        piece = data[at : at + size]
        at += size
        if letter == "c":
            values.append(piece)
        elif letter in _FLOATS:
            sign = "<" if order == "little" else ">"
            values.append(struct.unpack(sign + _FLOATS[letter], piece)[0])
        elif letter != "x":
            number = int.from_bytes(
                piece, "big" if order == "big" else "little", signed=letter.islower()
            )
            values.append(float(number))
    return (*values, at + 1)


def _size(*args: object) -> int:
    """struct.size(format)."""
    total = 0
    for letter, size, _, align in _options(_bytes(args[0] if args else None)):
        if letter == "s" or (letter == "c" and size == 0):
            raise ValueError(f"variable-size format '{letter}' has no size")
        total += _padding(letter, size, align, total) + (1 if size < 0 else size)
        if total > _STRING_BYTES_MAX:
            raise ValueError("format is too large")
    return total


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return b"%.14g" % value
    raise ValueError("string expected")


FUNCTIONS: Final[dict[bytes, Callable[..., object]]] = {
    b"pack": pack,
    b"unpack": unpack,
    b"size": _size,
}
