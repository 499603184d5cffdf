"""Listpacks: the packed sequences inside streams, lists and sets of Redis 5 and later.

Header: total bytes (4, little-endian) and number of elements (2; 65535: unknown). Then per element
its form, its data, and the size of both again, readable from behind; at last a byte 0xFF.

====================  ==================================================
first byte            element
====================  ==================================================
``0xxxxxxx``          integer 0 ... 127
``10xxxxxx``          string of that length
``110xxxxx`` + 1      signed integer of 13 bits
``1110xxxx`` + 1      string, length of 12 bits
``0xF0`` + 4          string, length of 32 bits (little-endian)
``0xF1`` ... ``0xF4`` signed integer of 2, 3, 4, 8 bytes (little-endian)
====================  ==================================================

Strings that look like integers are stored as integers, so ``1`` and ``"1"`` read the same;
callers that want text use :func:`texts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Final

from anabranch.rdb.errors import PayloadFormatError

Element = int | bytes

_HEADER: Final = 6
_COUNT_UNKNOWN: Final = 0xFFFF
_END: Final = 0xFF
_PIECE: Final = 2000  # elements
_STRING_32: Final = 0xF0
_INTEGER_SIZES: Final = {0xF1: 2, 0xF2: 3, 0xF3: 4, 0xF4: 8}
_INTEGER_TEXT_MAX: Final = 20  # len(str(-2**63))
_SMALL_TEXTS: Final = tuple(b"%d" % number for number in range(0x80))


def decode(data: bytes) -> list[Element]:
    """All elements. Sizes, back references and the end byte are verified."""
    return [element for piece in pieces(data) for element in piece]


def pieces(data: bytes) -> Iterator[list[Element]]:
    """The elements in lists, each of which takes about a millisecond to decode."""
    if len(data) <= _HEADER or int.from_bytes(data[:4], "little") != len(data):
        raise PayloadFormatError("listpack: wrong size")
    count = 0
    position = _HEADER
    try:
        while data[position] != _END:
            elements: list[Element] = []
            position = _decode_some(data, position, elements)
            count += len(elements)
            yield elements
    except IndexError:
        raise PayloadFormatError("listpack: cut short") from None
    if position + 1 != len(data):
        raise PayloadFormatError("listpack: ends early")
    if int.from_bytes(data[4:6], "little") not in (count, _COUNT_UNKNOWN):
        raise PayloadFormatError("listpack: wrong count")


def _decode_some(data: bytes, position: int, elements: list[Element]) -> int:
    """Append the next elements; returns where the one behind them, or the end, is.

    The three frequent forms are inlined, because this loop reads each field of each entry.
    """
    append = elements.append
    for _ in repeat(None, _PIECE):
        first = data[position]
        if first < 0x80:
            append(first)
            if data[position + 1] != 1:
                raise PayloadFormatError("listpack: wrong way back")
            position += 2
        elif first < 0xC0:
            size = first - 0x7F
            after = position + size
            append(data[position + 1 : after])
            if data[after] != size:
                raise PayloadFormatError("listpack: wrong way back")
            position = after + 1
        elif first < 0xE0:
            number = (first & 0x1F) << 8 | data[position + 1]
            append(number - 8192 if number >= 4096 else number)
            if data[position + 2] != 2:
                raise PayloadFormatError("listpack: wrong way back")
            position += 3
        elif first == _END:
            break
        else:
            element, after = _decode_large(data, position, first)
            append(element)
            back = _back_length(after - position)
            position = after + len(back)
            if data[after:position] != back:
                raise PayloadFormatError("listpack: wrong way back")
    return position


def _decode_large(data: bytes, position: int, first: int) -> tuple[Element, int]:
    """An element of one of the rarer forms, and where it ends."""
    if first < _STRING_32:
        start = position + 2
        size = (first & 0x0F) << 8 | data[position + 1]
    elif first == _STRING_32:
        start = position + 5
        size = int.from_bytes(data[position + 1 : start], "little")
    elif first in _INTEGER_SIZES:
        after = position + 1 + _INTEGER_SIZES[first]
        return int.from_bytes(data[position + 1 : after], "little", signed=True), after
    else:
        raise PayloadFormatError("listpack: unknown form")
    if start + size > len(data):
        raise PayloadFormatError("listpack: cut short")
    return data[start : start + size], start + size


def texts(elements: Iterable[Element]) -> list[bytes]:
    """The elements as clients see them, integers in decimal."""
    small = (
        _SMALL_TEXTS  # shared, so that a hostile listpack cannot make one object of every two bytes
    )
    return [
        item if isinstance(item, bytes) else small[item] if 0 <= item < 0x80 else b"%d" % item
        for item in elements
    ]


def _back_length(size: int) -> bytes:
    """``size`` in groups of seven bits, the lowest last; all but the first marked by bit 7."""
    if size < 0x80:
        return bytes((size,))
    groups = [size & 0x7F | 0x80]
    size >>= 7
    while size >= 0x80:
        groups.append(size & 0x7F | 0x80)
        size >>= 7
    groups.append(size)
    return bytes(reversed(groups))


def _encode_integer(number: int) -> bytes:
    if 0 <= number < 0x80:
        return bytes((number, 1))
    if -4096 <= number < 4096:
        return (0xC000 | number & 0x1FFF).to_bytes(2, "big") + b"\x02"
    for first, size in _INTEGER_SIZES.items():
        if -(1 << (8 * size - 1)) <= number < 1 << (8 * size - 1):
            data = number.to_bytes(size, "little", signed=True)
            return bytes((first,)) + data + bytes((size + 1,))
    raise ValueError("no 64-bit integer")


def _encode_string(value: bytes) -> bytes:
    size = len(value)
    if size < 0x40:
        return b"%c%b%c" % (0x80 | size, value, size + 1)
    if size < 0x1000:
        body = (0xE000 | size).to_bytes(2, "big") + value
    else:
        body = bytes((_STRING_32,)) + size.to_bytes(4, "little") + value
    return body + _back_length(len(body))


def _encode_text(value: bytes) -> bytes:
    """A string in the form Redis would choose: as an integer if it reads as one."""
    if 0 < len(value) <= _INTEGER_TEXT_MAX and (value.isdigit() or value[:1] == b"-"):
        digits = value.removeprefix(b"-")
        if digits.isdigit():
            number = int(value)
            # The text must be the only one for this number: no leading zero, no "-0".
            if -(1 << 63) <= number < 1 << 63 and b"%d" % number == value:
                return _encode_integer(number)
    return _encode_string(value)


_SMALL: Final = tuple(_encode_integer(number) for number in range(0x80))


def encode(elements: Iterable[Element]) -> bytes:
    """A listpack of these elements, byte for byte as Redis would build it."""
    parts = [b""]
    append = parts.append
    small = _SMALL
    for element in elements:
        if isinstance(element, bytes):
            append(_encode_text(element))
        elif 0 <= element < 0x80:
            append(small[element])
        else:
            append(_encode_integer(element))
    count = len(parts) - 1
    body = b"".join(parts)
    head = (_HEADER + len(body) + 1).to_bytes(4, "little")
    return head + min(count, _COUNT_UNKNOWN).to_bytes(2, "little") + body + b"\xff"
