"""Reads lines of RESP inside of other bytes, byte by byte: quick once compiled.

An index past the last byte raises :class:`IndexError`, so callers treat it like
:class:`ScanError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import read_i64_le

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

CR: Final = 13
LF: Final = 10
_DOLLAR: Final = 36
_STAR: Final = 42
_ZERO: Final = 48
_DIGITS_MAX: Final = 18
"""With so many digits a number fits into a register."""
_SIZE_MAX: Final = 9_999_999_999
_WORD: Final = 8


class ScanError(ValueError):
    """The bytes are not what the scan expects."""


def behind(data: bytes, at: i64, expected: bytes) -> i64:
    """Where some bytes end that must be at this place."""
    size: i64 = len(expected)
    if at + size > len(data):
        raise ScanError
    done: i64 = 0
    while done + _WORD <= size:
        if read_i64_le(data, at + done) != read_i64_le(expected, done):
            raise ScanError
        done += _WORD
    while done < size:
        if data[at + done] != expected[done]:
            raise ScanError
        done += 1
    return at + size


def number_at(data: bytes, at: i64) -> tuple[i64, i64]:
    """The number that is the line at this place, and where the line ends.

    It is written as a server writes it, without needless zeros.
    """
    begin = at
    number: i64 = 0
    byte: i64 = data[at]
    while byte != CR:
        byte -= _ZERO
        if not 0 <= byte <= 9 or at - begin == _DIGITS_MAX or (number == 0 and at > begin):
            raise ScanError
        number = 10 * number + byte
        at += 1
        byte = data[at]
    if at == begin or data[at + 1] != LF:
        raise ScanError
    return number, at + 2


def pairs_at(data: bytes, at: i64, end: i64) -> i64:
    r"""Check that a row fills this place: ``*2n\r\n$5\r\nfield\r\n...``; returns 2n, above 0."""
    if data[at] != _STAR:
        raise ScanError
    words, at = number_at(data, at + 1)
    if words == 0 or words % 2 or words > _SIZE_MAX:
        raise ScanError
    left = words
    while left and at < end:
        if data[at] != _DOLLAR:
            raise ScanError
        size, at = number_at(data, at + 1)
        at += size
        if size > _SIZE_MAX or data[at] != CR or data[at + 1] != LF:
            raise ScanError
        at += 2
        left -= 1
    if left or at != end:
        raise ScanError
    return words
