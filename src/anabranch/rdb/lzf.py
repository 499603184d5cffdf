"""LZF, the small compression that RDB strings may have; read only.

A compressed text is a row of items. First byte below 32: that many plus one bytes follow as they
are. Otherwise a copy from what was already written: the upper three bits are its length minus 2 (7:
add the next byte), the lower five and one more byte are the distance minus 1.
"""

from __future__ import annotations

from typing import Final

from anabranch.rdb.errors import PayloadFormatError
from anabranch.scheduling import Steps, in_one_go

EXPANSION_MAX: Final = 88  # the densest item: 3 bytes for a copy of 264

_LITERAL_MAX: Final = 32
_STEP_BYTES: Final = 8192  # compressed


def decompress(data: bytes, length: int) -> bytes:
    """The text; ``length`` is its exact size. Raises :class:`PayloadFormatError`."""
    return in_one_go(decompress_steps(data, length))


def decompress_steps(data: bytes, length: int) -> Steps[bytes]:
    """Decompress in short steps; raises :class:`PayloadFormatError`."""
    if length > len(data) * EXPANSION_MAX:
        raise PayloadFormatError("LZF: impossible length")
    out = bytearray()
    index = 0
    end = len(data)
    while index < end:
        try:
            index = _decompress_some(data, index, min(index + _STEP_BYTES, end), out, length)
        except IndexError:
            raise PayloadFormatError("LZF: cut short") from None
        yield
    if index != end or len(out) != length:
        raise PayloadFormatError("LZF: shorter than declared")
    return bytes(out)


def _decompress_some(data: bytes, index: int, end: int, out: bytearray, length: int) -> int:
    """Undo the items that begin before ``end``; returns where the last one ends."""
    while index < end:
        control = data[index]
        index += 1
        if control < _LITERAL_MAX:
            after = index + control + 1
            out += data[index:after]
            index = after
        else:
            count = (control >> 5) + 2
            if count == 9:
                count += data[index]
                index += 1
            start = len(out) - ((control & 31) << 8) - data[index] - 1
            index += 1
            if start < 0:
                raise PayloadFormatError("LZF: copy from before the beginning")
            piece = out[start : start + count]
            if len(piece) < count:  # the copy overlaps what it writes: a repetition
                piece = (piece * (count // len(piece) + 1))[:count]
            out += piece
        if len(out) > length:
            raise PayloadFormatError("LZF: longer than declared")
    return index
