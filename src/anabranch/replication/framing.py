"""Frames: the bytes of messages and batches on a link.

::

    u32 length of what follows | u8 type | payload
                                           BATCH: the bytes of one batch, in their wire form
                                           others: XXH3-64 of type and body | body
                                           then, after both sides have proved to know the
                                           secret: 16 bytes of :mod:`sealing`

Integers are little-endian. The bodies of messages are in :mod:`frames`.

The checksum is necessary because a row with a flipped bit would make regions forget what others
still need. A batch has a checksum of its own.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from librt.strings import BytesWriter, write_i32_le
from xxhash import xxh3_64_digest

CHECKSUM_BYTES: Final = 8

_HEAD: Final = struct.Struct("<IB")


class FrameType(IntEnum):
    """The type of a frame; the number stands in its head."""

    HELLO = 1
    WELCOME = 2
    PROOF = 3
    MEMBERS = 4
    SUB = 5
    BATCH = 6
    ROW = 7
    FETCH = 8
    FETCHED = 9
    CREDIT = 10
    BEHIND = 11
    FULL_SYNC_GET = 12
    FULL_SYNC_BEGIN = 13
    FULL_SYNC = 14
    FULL_SYNC_END = 15
    BYE = 16
    DIGESTS = 17
    DIFFERING = 18
    KEYS_GET = 19
    KEYS = 20


_BATCH: Final = int(FrameType.BATCH)
_HIGHEST_OF_32: Final = 1 << 31


def framed(frame_type: int, body: bytes) -> bytes:
    """A body, or a batch, as a frame."""
    if frame_type == _BATCH:
        return batch_head(len(body)) + body
    head = _HEAD.pack(len(body) + 1 + CHECKSUM_BYTES, frame_type)
    return b"".join((head, checksum(frame_type, body), body))


def batch_head(size: int) -> bytes:
    """What is in a frame before a batch of so many bytes."""
    writer = BytesWriter()  # machine code writes the fields of _HEAD without making objects
    size += 1
    write_i32_le(writer, size - ((size & _HIGHEST_OF_32) << 1))  # it is written with a sign
    writer.append(_BATCH)
    return writer.getvalue()


def checksum(frame_type: int, body: bytes) -> bytes:
    """The checksum of a message."""
    return xxh3_64_digest(body, seed=frame_type)
