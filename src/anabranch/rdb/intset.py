"""Intsets: sets of integers, ascending, all of one width; read only.

Width in bytes (4, little-endian: 2, 4 or 8), number of members (4), members.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from anabranch.rdb.errors import PayloadFormatError

_HEADER: Final = 8
_PIECE: Final = 2000  # members
_LETTERS: Final = {2: "h", 4: "i", 8: "q"}


def pieces(data: bytes) -> Iterator[list[bytes]]:
    """The members as text, in lists that do not take long to decode."""
    if len(data) < _HEADER:
        raise PayloadFormatError("intset: cut short")
    width = int.from_bytes(data[:4], "little")
    count = int.from_bytes(data[4:8], "little")
    if width not in _LETTERS or _HEADER + width * count != len(data):
        raise PayloadFormatError("intset: wrong size")
    last: tuple[int, ...] = ()
    for at in range(0, count, _PIECE):
        size = min(_PIECE, count - at)
        members = struct.unpack_from(f"<{size}{_LETTERS[width]}", data, _HEADER + width * at)
        if any(right <= left for left, right in pairwise(last + members)):
            raise PayloadFormatError("intset: out of order")
        last = members[-1:]
        yield [b"%d" % member for member in members]
