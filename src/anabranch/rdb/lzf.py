"""LZF, the small compression that RDB strings may have.

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
_MATCH_MIN: Final = 3
_MATCH_MAX: Final = 264
_DISTANCE_MAX: Final = 8192
_STEP_BYTES: Final = 8192  # compressed


def decompress(data: bytes, length: int) -> bytes:
    """Undo :func:`compress`; ``length`` is the exact size of the result."""
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


def compress(data: bytes) -> bytes | None:
    """Compress, or None if that does not make it smaller."""
    out = bytearray()
    seen: dict[bytes, int] = {}  # three bytes -> their last position
    literal_start = index = 0
    end = len(data)
    while index <= end - _MATCH_MIN:
        triple = data[index : index + _MATCH_MIN]
        match = seen.get(triple, -1)
        seen[triple] = index
        if match < 0 or index - match > _DISTANCE_MAX:
            index += 1
            continue
        _literals(out, data, literal_start, index)
        count = _match_length(data, match, index)
        distance = index - match - 1
        if count < 9:
            out.append(((count - 2) << 5) | (distance >> 8))
        else:
            out.append((7 << 5) | (distance >> 8))
            out.append(count - 9)
        out.append(distance & 0xFF)
        index += count
        literal_start = index
    _literals(out, data, literal_start, end)
    return bytes(out) if len(out) < end else None


def _literals(out: bytearray, data: bytes, start: int, end: int) -> None:
    while start < end:
        stop = min(start + _LITERAL_MAX, end)
        out.append(stop - start - 1)
        out += data[start:stop]
        start = stop


def _match_length(data: bytes, match: int, index: int) -> int:
    """The length of the equal text at ``match`` and ``index``; the first 3 bytes are equal."""
    maximum = min(_MATCH_MAX, len(data) - index)
    count = _MATCH_MIN
    while (
        count + 16 <= maximum
        and data[match + count : match + count + 16] == data[index + count : index + count + 16]
    ):
        count += 16
    while count < maximum and data[match + count] == data[index + count]:
        count += 1
    return count
