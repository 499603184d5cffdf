"""Intsets: sets of integers, ascending, all of one width; read only.

Width in bytes (4, little-endian: 2, 4 or 8), number of members (4), members.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Final

from anabranch.rdb.errors import PayloadFormatError

__all__ = ["decode"]

_HEADER: Final = 8
_LETTERS: Final = {2: "h", 4: "i", 8: "q"}


def decode(data: bytes) -> list[bytes]:
    """The members as text."""
    if len(data) < _HEADER:
        raise PayloadFormatError("intset: cut short")
    width = int.from_bytes(data[:4], "little")
    count = int.from_bytes(data[4:8], "little")
    if width not in _LETTERS or _HEADER + width * count != len(data):
        raise PayloadFormatError("intset: wrong size")
    members = struct.unpack_from(f"<{count}{_LETTERS[width]}", data, _HEADER)
    if any(right <= left for left, right in pairwise(members)):
        raise PayloadFormatError("intset: out of order")
    return [b"%d" % member for member in members]
