"""Writes LZF, which the server only reads: RDB strings as other servers compress them."""

from __future__ import annotations

from anabranch.rdb.lengths import length_bytes

_COPY_MIN, _COPY_MAX, _DISTANCE_MAX, _LITERAL_MAX = 3, 264, 8192, 32


def lzf(data: bytes) -> bytes:
    """The data as literals, and as copies of what has come before."""
    out = bytearray()
    seen: dict[bytes, int] = {}  # three bytes -> their last position
    literal = bytearray()
    at = 0
    while at < len(data):
        triple = data[at : at + _COPY_MIN]
        source = seen.get(triple, -1)
        seen[triple] = at
        if len(triple) < _COPY_MIN or source < 0 or at - source > _DISTANCE_MAX:
            literal.append(data[at])
            at += 1
            continue
        out += _literals(literal)
        literal.clear()
        count = _COPY_MIN
        while count < min(_COPY_MAX, len(data) - at) and data[source + count] == data[at + count]:
            count += 1
        distance = at - source - 1
        out.append(min(count - 2, 7) << 5 | distance >> 8)
        out += bytes([count - 9] if count >= 9 else [])
        out.append(distance & 0xFF)
        at += count
    return bytes(out + _literals(literal))


def _literals(data: bytes) -> bytes:
    pieces = [data[at : at + _LITERAL_MAX] for at in range(0, len(data), _LITERAL_MAX)]
    return b"".join(bytes([len(piece) - 1]) + piece for piece in pieces)


def lzf_string(data: bytes) -> bytes:
    """A compressed string of RDB."""
    packed = lzf(data)
    return b"\xc3" + length_bytes(len(packed)) + length_bytes(len(data)) + packed
