"""The library ``struct`` of scripts: numbers and strings as bytes, in its own format."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from math import copysign, inf
from typing import Final

from anabranch.scripting.failures import ArgumentError, number_of, text_in

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
            if align & (align - 1):
                raise ValueError(f"alignment {align} is not a power of 2")
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
                raise ArgumentError(1, f"invalid format option '{letter}'")
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
    index = 1  # of the argument before the next one
    options = _options(text_in(args, 1))
    args = (*args, None)  # what is missing at the end is nil
    for letter, size, order, align in options:
        out += bytes(_padding(letter, size, align, len(out)))
        if letter == "x":
            out.append(0)
            continue
        index += 1
        if letter == "s":
            out += text_in(args, index) + b"\0"
        elif letter == "c":
            data = text_in(args, index)
            size = 1 if size < 0 else size or len(data)
            if len(data) < size:
                raise ArgumentError(index + 1, "string too short")  # so counts Redis
            out += data[:size]
        elif letter in _FLOATS:
            sign = "<" if order == "little" else ">"
            out += _float(sign + _FLOATS[letter], number_of(args, index))
        else:
            whole = _unsigned(number_of(args, index)) & ((1 << 8 * size) - 1)
            out += whole.to_bytes(size, "big" if order == "big" else "little")
    return bytes(out)


def _unsigned(number: float) -> int:
    """A number as an unsigned one of eight bytes; what does not fit is as in Redis."""
    if number >= 1 << 64:
        return 0
    return int(number) & ((1 << 64) - 1) if number >= -(1 << 63) else 1 << 63


def _float(form: str, number: float) -> bytes:
    try:
        return struct.pack(form, number)
    except OverflowError:  # too large for four bytes
        return struct.pack(form, copysign(inf, number))


def unpack(*args: object) -> tuple[object, ...]:
    """struct.unpack(format, data [, position]): the values, and the position behind them."""
    form, data = text_in(args, 1), text_in(args, 2)
    start = number_of(args, 3) if len(args) > 2 and args[2] is not None else 1
    at = int(start) - 1 if abs(start) < 1 << 62 else -1
    if at < 0:
        raise ArgumentError(3, "offset must be 1 or greater")
    values: list[object] = []
    for letter, size, order, align in _options(form):
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
                size = _unsigned(last)
            elif size < 0:
                size = 1
        if size < 0 or at + size > len(data):
            raise ArgumentError(2, "data string too short")
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
    for letter, size, _, align in _options(text_in(args, 1)):
        if letter == "s" or (letter == "c" and size == 0):
            option = "c0" if letter == "c" else letter
            raise ArgumentError(1, f"option '{option}' has no fixed size")
        total += _padding(letter, size, align, total) + (1 if size < 0 else size)
        if total > _STRING_BYTES_MAX:
            raise ValueError("format is too large")
    return total


FUNCTIONS: Final[dict[bytes, Callable[..., object]]] = {
    b"pack": pack,
    b"unpack": unpack,
    b"size": _size,
}
