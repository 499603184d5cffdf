"""The library ``struct`` of scripts: numbers and strings as bytes, in its own format."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from math import copysign, inf
from typing import Final, Literal

from anabranch.scripting.failures import ArgumentError, number_of, text_in

_SIZES: Final = {"b": 1, "h": 2, "l": 8, "T": 8, "f": 4, "d": 8}
_FLOATS: Final = {"f": "f", "d": "d"}
_INTEGER_BYTES_MAX: Final = 32
_NUMBER: Final = re.compile("0*([0-9]*)")
_INT_MAX: Final = (1 << 31) - 1


def _number(letters: str, at: int) -> tuple[int, int]:
    """The number at a place, -1 if there is none, and the place behind it."""
    found = _NUMBER.match(letters, at)
    assert found is not None
    if found.end() == at:
        return -1, at
    number = int(found[1][:20] or "0")  # one of 20 digits is too large, too
    if number > _INT_MAX:
        raise ValueError("integral size overflow")
    return number, found.end()


def _options(text: bytes, *, skips: bool = False) -> Iterator[tuple[str, int, str, int]]:
    """Each option: its letter, its size (-1 if none is given), byte order and alignment.

    ``skips``: letters and digits that are no option are left out.
    """
    order, align, at = "little", 1, 0
    letters = text.decode("latin-1")
    while at < len(letters):
        letter = letters[at]
        at += 1
        size, at = _number(letters, at) if letter in "!ciI" else (-1, at)
        if letter == "<":
            order = "little"
        elif letter == ">":
            order = "big"
        elif letter == "!":
            align = 8 if size < 0 else size
            if align.bit_count() != 1:
                raise ValueError(f"alignment {align} is not a power of 2")
        elif letter != " ":
            if letter in "iI":
                size = 4 if size < 0 else size
                if size > _INTEGER_BYTES_MAX:
                    raise ValueError(f"integral size {size} is larger than limit of 32")
            elif letter.lower() in _SIZES or letter in _SIZES:
                size = _SIZES.get(letter, _SIZES.get(letter.lower(), 1))
            elif letter == "x":
                size = 1
            elif letter not in "cs":
                if skips and letter.isascii() and letter.isalnum():
                    continue
                raise ArgumentError(1, f"invalid format option '{letter}'")
            yield letter, size, order, align


def _padding(letter: str, size: int, align: int, at: int) -> int:
    """Bytes in front of an option."""
    if letter in "csx" or align <= 1 or not size:
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
    at = int(start) - 1 if abs(start) < 1 << 62 else -2
    if at == -1:
        raise ArgumentError(3, "offset must be 1 or greater")
    if not 0 <= at <= len(data):
        if form[:1] in (b"c", b"i", b"I"):  # a wrong size is said first
            next(_options(form))
        if form:
            raise ArgumentError(2, "data string too short")
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
            byteorder: Literal["big", "little"] = "big" if order == "big" else "little"
            low = piece[-8:] if order == "big" else piece[:8]  # no number is larger
            number = int.from_bytes(low, byteorder, signed=letter.islower())
            values.append(float(number))
    return (*values, at + 1)


def _size(*args: object) -> int:
    """``struct.size(format)``: the bytes that a format takes."""
    total = 0
    for letter, size, _, align in _options(text_in(args, 1), skips=True):
        if letter == "s" or (letter == "c" and size == 0):
            option = "c0" if letter == "c" else letter
            raise ArgumentError(1, f"option '{option}' has no fixed size")
        total += _padding(letter, size, align, total) + (1 if size < 0 else size)
    return total


FUNCTIONS: Final[dict[bytes, Callable[..., object]]] = {
    b"pack": pack,
    b"unpack": unpack,
    b"size": _size,
}
