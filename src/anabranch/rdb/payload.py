"""The frame of DUMP and RESTORE: a value, two bytes of RDB version, eight of CRC.

::

    type byte | value | version, little-endian | CRC-64 of all before, little-endian

Redis takes a payload whose eight CRC bytes are all zero without checking, so do we.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from anabranch.rdb.crc64 import crc64
from anabranch.rdb.errors import PayloadChecksumError, PayloadFormatError
from anabranch.rdb.kinds import StreamType
from anabranch.rdb.lengths import Cursor
from anabranch.rdb.stream_codec import encode_steps
from anabranch.rdb.values import (
    Value,
    decode_value,
    decode_value_steps,
    encode_small_steps,
    encode_value,
)
from anabranch.scheduling import Steps, in_one_go
from anabranch.stream.image import NodeImage, PendingImage, StreamImage

RDB_VERSION: Final = 14
"""The newest known version: that of Redis 8.8."""
RDB_VERSION_MIN: Final = 10
"""The oldest version that is written: that of Redis 7.0. Older ones are read."""

DECODED_BYTES_MIN: Final = 256 << 20
DECODED_RATIO: Final = 128
"""The items of a limited value may take 256 MB of memory beside their texts, or 128 times the bytes
of the payload if that is more. Items take up to 32 times their packed form, and LZF makes equal
ones 88 times smaller; real values of a size that matters stay far below."""

_CRC_BYTES: Final = 8
_FOOTER_BYTES: Final = 2 + _CRC_BYTES
_UNCHECKED: Final = bytes(_CRC_BYTES)
_PIECE_BYTES: Final = 1 << 16
"""The checksum of so many bytes takes much less than a millisecond."""


def encode_body(value: Value, *, rdb_version: int) -> bytes:
    """Type byte and value for servers that know ``rdb_version`` (10 ... 14), without a frame.

    A stream gets the newest type of that version. An older type cannot store everything: below 13
    idempotent producers are left out, below 11 active times. NACKed entries below 14 raise
    ValueError, because without them the group would lose these entries. Strings are not compressed.
    """
    if not RDB_VERSION_MIN <= rdb_version <= RDB_VERSION:
        raise ValueError(f"cannot write RDB version {rdb_version}")
    return encode_value(value, stream_type_of(rdb_version))


def encode_small_payload(value: bytes | list[bytes] | set[bytes]) -> Steps[list[bytes]]:
    """What DUMP answers for all but streams, in short steps and in pieces.

    The first step copies a set, which may then change; a list must stay as it is.
    """
    parts = yield from encode_small_steps(value)
    return (yield from _framed(parts, RDB_VERSION))


def encode_stream_payload(
    image: StreamImage, nodes: Iterable[NodeImage], pending: Sequence[Iterable[PendingImage]]
) -> Steps[list[bytes]]:
    """What DUMP answers for a stream, in short steps and in pieces; see :func:`encode_steps`."""
    stream_type = stream_type_of(RDB_VERSION)
    parts = yield from encode_steps(image, nodes, pending, stream_type)
    parts[0] = bytes((stream_type,)) + parts[0]
    return (yield from _framed(parts, RDB_VERSION))


def frame(body: bytes, rdb_version: int) -> bytes:
    """A payload around a type byte and a value that ``rdb_version`` knows."""
    return b"".join(in_one_go(_framed([body], rdb_version)))


def _framed(parts: list[bytes], rdb_version: int) -> Steps[list[bytes]]:
    """A body in pieces with its footer, in larger pieces; ``parts`` is used up."""
    parts.append(rdb_version.to_bytes(2, "little"))
    parts.reverse()
    pieces: list[bytes] = []
    crc = 0
    while parts:
        piece = [parts.pop()]
        size = len(piece[0])
        while parts and size < _PIECE_BYTES:
            piece.append(parts.pop())
            size += len(piece[-1])
        pieces.append(b"".join(piece))
        for at in range(0, size, _PIECE_BYTES):
            crc = crc64(pieces[-1][at : at + _PIECE_BYTES], crc)
            yield
    end = crc.to_bytes(_CRC_BYTES, "little")
    if len(pieces) > 1 and len(pieces[-1]) < _PIECE_BYTES:
        end = pieces.pop() + end
    pieces[-1] += end
    return pieces


def decode_payload_steps(
    payload: bytes, take: Callable[[NodeImage], None], *, is_limited: bool = False
) -> Steps[Value]:
    """The value inside a payload, in short steps.

    Raises :class:`PayloadChecksumError` or :class:`PayloadFormatError`, nothing else. ``take`` gets
    the nodes of a stream, which its image then lacks. ``is_limited`` raises
    :class:`PayloadSizeError` for a value that would take far more memory than the payload: see
    :data:`DECODED_RATIO`.
    """
    body_size, _ = yield from _checked(payload)
    decoded_max = max(DECODED_BYTES_MIN, DECODED_RATIO * len(payload)) if is_limited else None
    cursor = Cursor(payload, 0, body_size, decoded_max=decoded_max)
    value = yield from decode_value_steps(cursor, cursor.byte(), take)
    _refuse_rest(cursor)
    return value


def decode_body(body: bytes) -> Value:
    """The value in a type byte and a value; raises :class:`PayloadFormatError`."""
    cursor = Cursor(body)
    value = decode_value(cursor, cursor.byte())
    _refuse_rest(cursor)
    return value


def _refuse_rest(cursor: Cursor) -> None:
    if cursor.remaining:
        raise PayloadFormatError("bytes left after the value")


def unframe(payload: bytes) -> tuple[bytes, int]:
    """Type byte and value, and the RDB version; raises :class:`PayloadChecksumError`."""
    body_size, version = in_one_go(_checked(payload))
    return payload[:body_size], version


def stream_type_of(rdb_version: int) -> StreamType:
    """The newest type of stream that a version has."""
    if rdb_version >= 14:
        return StreamType.V5
    if rdb_version >= 13:
        return StreamType.V4
    if rdb_version >= 11:
        return StreamType.V3
    return StreamType.V2


def _checked(payload: bytes) -> Steps[tuple[int, int]]:
    """Size of type byte and value, and the RDB version, once the checksum is right."""
    body_size = len(payload) - _FOOTER_BYTES
    if body_size < 0:
        raise PayloadChecksumError("too short")
    version = int.from_bytes(payload[body_size : body_size + 2], "little")
    if version > RDB_VERSION:
        raise PayloadChecksumError(f"RDB version {version} is newer than {RDB_VERSION}")
    stored = payload[-_CRC_BYTES:]
    if stored != _UNCHECKED:
        crc = 0
        for at in range(0, len(payload) - _CRC_BYTES, _PIECE_BYTES):
            crc = crc64(payload[at : min(at + _PIECE_BYTES, len(payload) - _CRC_BYTES)], crc)
            yield
        if crc.to_bytes(_CRC_BYTES, "little") != stored:
            raise PayloadChecksumError("the checksum does not match")
    return body_size, version
