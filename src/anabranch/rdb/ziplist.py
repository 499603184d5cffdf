"""Ziplists: what lists were packed in before Redis 7; read only.

Header: total bytes (4), offset of the last entry (4), number of entries (2; 65535: unknown), all
little-endian. Each entry: the size of the entry before (1 byte, or 0xFE and 4 bytes), its form, its
data. At last a byte 0xFF.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anabranch.rdb.errors import PayloadFormatError

_HEADER: Final = 10
_COUNT_UNKNOWN: Final = 0xFFFF
_END: Final = 0xFF
_PIECE: Final = 2000  # entries
_PREVIOUS_LARGE: Final = 0xFE
_STRING_32: Final = 0x80
_INTEGER_SIZES: Final = {0xC0: 2, 0xD0: 4, 0xE0: 8, 0xF0: 3, 0xFE: 1}
_IMMEDIATE: Final = range(0xF1, 0xFE)  # the integers 0 ... 12 within the form byte


def pieces(data: bytes) -> Iterator[list[bytes]]:
    """All entries as text, in lists that do not take long to decode.

    Sizes, links to the entry before and the end mark are verified.
    """
    if len(data) <= _HEADER or int.from_bytes(data[:4], "little") != len(data):
        raise PayloadFormatError("ziplist: wrong size")
    count = 0
    position = _HEADER
    previous = 0  # size of the entry before
    last = _HEADER
    try:
        while data[position] != _END:
            entries: list[bytes] = []
            while data[position] != _END and len(entries) < _PIECE:
                last = position
                linked = data[position]
                position += 1
                if linked == _PREVIOUS_LARGE:
                    linked = int.from_bytes(data[position : position + 4], "little")
                    position += 4
                if linked != previous:
                    raise PayloadFormatError("ziplist: wrong link")
                entry, position = _entry(data, position)
                entries.append(entry)
                previous = position - last
            count += len(entries)
            yield entries
    except IndexError:
        raise PayloadFormatError("ziplist: cut short") from None
    if position + 1 != len(data) or int.from_bytes(data[4:8], "little") != last:
        raise PayloadFormatError("ziplist: wrong end")
    if int.from_bytes(data[8:10], "little") not in (count, _COUNT_UNKNOWN):
        raise PayloadFormatError("ziplist: wrong count")


def _entry(data: bytes, position: int) -> tuple[bytes, int]:
    """The entry whose form byte is at ``position``, and where it ends."""
    form = data[position]
    position += 1
    if form < 0xC0:
        if form < 0x40:
            size = form
        elif form < 0x80:
            size = (form & 0x3F) << 8 | data[position]
            position += 1
        elif form == _STRING_32:
            size = int.from_bytes(data[position : position + 4], "big")
            position += 4
        else:
            raise PayloadFormatError("ziplist: unknown form")
        after = position + size
        if after > len(data):
            raise PayloadFormatError("ziplist: cut short")
        return data[position:after], after
    if form in _IMMEDIATE:
        return b"%d" % (form - _IMMEDIATE.start), position
    if form not in _INTEGER_SIZES:
        raise PayloadFormatError("ziplist: unknown form")
    after = position + _INTEGER_SIZES[form]
    return b"%d" % int.from_bytes(data[position:after], "little", signed=True), after
