"""A batch: effects of one turn of one region as bytes. The unit of the log and of replication.

::

    "AB" | version | flags | region | epoch | first number | count | wall ms | body bytes | XXH3-64
      2       1        1       1        4          8           4         8          4          8

All integers are little-endian; the checksum is over everything else, header and body. The body is
msgpack: ``[dependencies, effects]``. Effects are as :mod:`anabranch.effects.codec` writes them.
Dependencies, ``[replica_id, number, ...]``, are the context of the effects: what the region had
applied of other replica IDs when it made them, nothing on a server of its own. With the flag
``COMPRESSED`` the body is a zstd frame of that.

Effects that concern other regions are numbered without gaps, ``count`` numbers from ``first
number``: one for each effect, in an :class:`kinds.AddRun` one for each entry. A batch of local
effects has the flag ``LOCAL``, count 0, and the next unused number. Batches of both kinds follow
in the order of the turn. All batches of a turn except the last have the flag ``CONTINUES``, because
a turn is recovered as a whole or not at all. ``UNIT_CONTINUES`` says that another numbered batch of
the turn follows. Other regions get only the numbered batches of a turn (:func:`wire_form`) and
apply them as a whole or not at all.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from librt.strings import (
    BytesWriter,
    read_i32_le,
    read_i64_be,
    read_i64_le,
    write_i32_le,
    write_i64_le,
)
from xxhash import xxh3_64, xxh3_64_digest, xxh3_64_intdigest

from anabranch import zstd
from anabranch.compiling import mypyc_attr
from anabranch.effects import kinds
from anabranch.effects.codec import BODY_BYTES_MAX, effect_of
from anabranch.errors import UNREADABLE
from anabranch.keyspace.replica import epoch_of, region_of, replica_id_of
from anabranch.stream.fields import NUMBER_MAX

MAGIC: Final = b"AB"
BATCH_VERSION: Final = 1
LOCAL: Final = 1
CONTINUES: Final = 2
COMPRESSED: Final = 4
UNIT_CONTINUES: Final = 8
_KNOWN_FLAGS: Final = LOCAL | CONTINUES | COMPRESSED | UNIT_CONTINUES

_HEADER: Final = struct.Struct("<2sBBBIQIQI")
# Where fields are that are read alone:
_FLAGS_AT: Final = 3
_REGION_AT: Final = 4
_EPOCH_AT: Final = 5
_FIRST_AT: Final = 9
_COUNT_AT: Final = 17
_WALL_MS_AT: Final = 21
# A field is read and written with a sign:
_LOW_32: Final = (1 << 32) - 1
_HIGHEST_OF_32: Final = 1 << 31
_HIGHEST_OF_64: Final = 1 << 63
_SHORT_MAX: Final = (1 << 62) - 1  # in machine code greater numbers are objects
_CHECKSUM: Final = struct.Struct("<Q")
_BEGINNING: Final = MAGIC + bytes([BATCH_VERSION])
_LARGE_BYTES: Final = 4096
"""From this size on copying a body costs more than a second call of the hash function."""
_CHECKSUM_AT: Final = _HEADER.size
HEADER_BYTES: Final = _CHECKSUM_AT + _CHECKSUM.size

REPLICA_IDS_MAX: Final = 1 << 17
"""The most replica IDs in a batch or a message, far more than the epochs of any cluster."""

_Edge = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
_Edges = Annotated[list[_Edge], msgspec.Meta(max_length=2 * REPLICA_IDS_MAX)]

_decode: Final = msgspec.msgpack.Decoder(tuple[_Edges, list[list[Any]]]).decode


class BatchError(Exception):
    """Bytes that are not a whole, sound batch; the text says why."""


class NewerBatchError(BatchError):
    """A sound batch in a format that this server does not know."""


class Batch(NamedTuple):
    """A batch that was read; ``effects`` are arrays still, see :func:`effects_in`."""

    replica_id: int
    """The replica ID of the region that made the batch."""
    first: int
    numbered: int
    """The count of numbers that its effects take, from ``first`` on."""
    wall_ms: int
    flags: int
    size: int
    """All bytes, header included."""
    effects: list[list[Any]]
    dependencies: dict[int, int]
    """The context: for each other replica ID the last effect that its region had applied."""

    @property
    def region(self) -> int:
        """The number of the region that made it."""
        return region_of(self.replica_id)

    @property
    def epoch(self) -> int:
        """The epoch in which that region made it."""
        return epoch_of(self.replica_id)

    @property
    def context(self) -> list[int]:
        """The dependencies as they stand in the body: ``[replica_id, number, ...]``."""
        return [each for pair in self.dependencies.items() for each in pair]

    @property
    def last(self) -> int:
        """The number of its last effect; one less than ``first`` if it has none."""
        return self.first + self.numbered - 1

    @property
    def is_local(self) -> bool:
        """Whether its effects are local."""
        return bool(self.flags & LOCAL)

    @property
    def continues(self) -> bool:
        """Whether its turn continues in the next batch."""
        return bool(self.flags & CONTINUES)


@mypyc_attr(acyclic=True)
class SentBatch:
    """A numbered batch as other regions get it, and the facts in its header; see :class:`Batch`."""

    def __init__(
        self, data: bytes, replica_id: int, first: int, last: int, wall_ms: int, end: int
    ) -> None:
        self.data = data
        """Its bytes, in the :func:`wire_form`."""
        self.replica_id = replica_id
        self.first = first
        self.last = last
        self.wall_ms = wall_ms
        self.end = end
        """The position behind it in the log of this region; 0 for a batch that is in none."""


def batch_pieces(
    body: list[bytes],
    *,
    region: int,
    epoch: int,
    first: int,
    count: int,
    wall_ms: int,
    flags: int,
) -> list[bytes]:
    """The batch with the parts of a packed body, which are not copied if there are several.

    Its effects take ``count`` numbers.
    """
    # Machine code writes the fields of _HEADER and _CHECKSUM without making objects.
    size = 0
    for part in body:
        size += len(part)
    writer = BytesWriter()
    writer.write(_BEGINNING)
    writer.append(flags)
    writer.append(region)
    write_i32_le(writer, epoch - ((epoch & _HIGHEST_OF_32) << 1))
    write_i64_le(writer, _signed(first))
    write_i32_le(writer, count - ((count & _HIGHEST_OF_32) << 1))
    write_i64_le(writer, _signed(wall_ms))
    write_i32_le(writer, size - ((size & _HIGHEST_OF_32) << 1))
    header = writer.getvalue()
    if size < _LARGE_BYTES:
        digest = xxh3_64_digest(header + body[0])  # only a long one has several parts
    else:
        state = xxh3_64(header)
        for part in body:
            state.update(part)
        digest = state.digest()
    write_i64_le(writer, read_i64_be(digest, 0))
    if len(body) == 1:
        return [writer.getvalue() + body[0]]
    return [writer.getvalue(), *body]


def pack(body: list[bytes], compressor: Compressor | None) -> tuple[int, list[bytes]]:
    """Compress a body if that makes it shorter; returns the flags, and the parts for the batch."""
    if compressor is not None and (smaller := compressor.shorter_in_parts(body)) is not None:
        return COMPRESSED, [smaller]
    return 0, body


def _signed(number: int) -> int:
    """A number of 64 bits as one with a sign; members may send any."""
    return number if number <= _SHORT_MAX else number - ((number & _HIGHEST_OF_64) << 1)


def wire_form(data: bytes) -> bytes:
    """One numbered batch in the form for other regions, with the flags of numbered batches."""
    flags = data[_FLAGS_AT]
    wanted = flags & ~(CONTINUES | UNIT_CONTINUES)
    if flags & UNIT_CONTINUES:
        wanted |= CONTINUES
    if flags == wanted:
        return data
    return _with_flags(data, wanted)


def kept_form(data: bytes) -> bytes:
    """One batch of another region in the form of the own log; the reverse of :func:`wire_form`."""
    flags = data[_FLAGS_AT]
    if not flags & CONTINUES or flags & UNIT_CONTINUES:
        return data
    return _with_flags(data, flags | UNIT_CONTINUES)


def _with_flags(data: bytes, flags: int) -> bytes:
    _, _, _, region, epoch, first, count, wall_ms, _ = _HEADER.unpack_from(data)
    (batch,) = batch_pieces(
        [data[HEADER_BYTES:]],
        region=region,
        epoch=epoch,
        first=first,
        count=count,
        wall_ms=wall_ms,
        flags=flags,
    )
    return batch


def fingerprint(data: bytes) -> bytes:
    """The checksum of a batch in its :func:`wire_form`: distinguishes batches of equal numbers."""
    return data[_CHECKSUM_AT:HEADER_BYTES]


def saved_bytes(data: bytes) -> int:
    """The bytes that compression has saved in a batch, which is known to be whole."""
    if not data[_FLAGS_AT] & COMPRESSED:
        return 0
    size = _HEADER.unpack_from(data)[-1]
    head = data[HEADER_BYTES : HEADER_BYTES + zstd.HEADER_BYTES_MAX]
    return zstd.announced_bytes(head) - int(size)


def is_local(data: bytes) -> bool:
    """Whether a batch, known to be whole, is of local effects."""
    return bool(data[_FLAGS_AT] & LOCAL)


def is_sound(data: bytes) -> bool:
    """Whether the checksum of a batch, of the size in its header, fits."""
    if not data.startswith(MAGIC):
        return False
    (expected,) = _CHECKSUM.unpack_from(data, _CHECKSUM_AT)
    return _checksum_of(data[:_CHECKSUM_AT], _body(data, HEADER_BYTES, len(data))) == int(expected)


def _checksum_of(header: bytes, body: bytes | memoryview) -> int:
    """The checksum of a header and a body; a large body is not copied."""
    if len(body) < _LARGE_BYTES:
        return int(xxh3_64_intdigest(header + body))
    state = xxh3_64(header)
    state.update(body)
    return int(state.intdigest())


def _body(data: bytes | memoryview, at: int, end: int) -> bytes | memoryview:
    """The body of a batch, from an offset to another; a large one is not copied."""
    if end - at < _LARGE_BYTES:
        return bytes(data[at:end])
    return memoryview(data)[at:end]


def batch_size(data: bytes, at: int) -> int | None:
    """How long the batch is that begins at an offset; None if not even its header is there."""
    if len(data) - at < HEADER_BYTES:
        return None
    return HEADER_BYTES + int(_HEADER.unpack_from(data, at)[8])


def sent_batch(data: bytes, end: int = 0) -> SentBatch:
    """A whole batch that is in the :func:`wire_form`; ``end`` as in :class:`SentBatch`."""
    # Machine code reads the fields without making objects, which struct does.
    epoch: int = read_i32_le(data, _EPOCH_AT)
    first: int = read_i64_le(data, _FIRST_AT)
    count: int = read_i32_le(data, _COUNT_AT)
    wall_ms: int = read_i64_le(data, _WALL_MS_AT)
    replica_id = replica_id_of(data[_REGION_AT], epoch & _LOW_32)
    return SentBatch(data, replica_id, first, first + (count & _LOW_32) - 1, wall_ms, end)


def decode_batch(data: bytes | memoryview, at: int = 0) -> Batch:
    """The batch that begins at an offset; :class:`BatchError` if there is none.

    A body that is longer when it is decompressed than :data:`BODY_BYTES_MAX` is refused.
    """
    body_at = at + HEADER_BYTES
    if len(data) < body_at:
        raise BatchError("cut off in the header")
    magic, version, flags, region, epoch, first, count, wall_ms, size = _HEADER.unpack_from(
        data, at
    )
    if magic != MAGIC:
        raise BatchError("no batch begins here")
    end = body_at + size
    if len(data) < end:
        raise BatchError("cut off")
    (expected,) = _CHECKSUM.unpack_from(data, at + _CHECKSUM_AT)
    body = _body(data, body_at, end)
    found = _checksum_of(bytes(data[at : at + _CHECKSUM_AT]), body)
    if found != expected:
        raise BatchError(f"checksum {found:016x} instead of {expected:016x}")
    if version != BATCH_VERSION or flags & ~_KNOWN_FLAGS:
        raise NewerBatchError(f"version {version} with flags {flags:#x}, which we do not know")
    try:
        if flags & COMPRESSED:
            body = zstd.expanded(body, BODY_BYTES_MAX)
        context, effects = _decode(body)
    except (*UNREADABLE, zstd.ZstdError) as problem:
        raise NewerBatchError(f"not a list of effects: {problem}") from None
    if len(context) % 2:
        raise NewerBatchError("a number of dependencies that makes no pairs")
    dependencies = dict(zip(context[::2], context[1::2], strict=True))
    replica_id = replica_id_of(region, epoch)
    return Batch(replica_id, first, count, wall_ms, flags, end - at, effects, dependencies)


def effects_in(batch: Batch) -> list[kinds.Effect]:
    """Decode the effects of a batch; :class:`anabranch.effects.codec.EffectFormatError`."""
    return [effect_of(array) for array in batch.effects]


# -- zstd at fast levels, for batches and snapshot records above some length ------------------
#
# Entries of a stream resemble one another, also in their framing, so many entries together
# compress well. Short bodies are not compressed.


WORTHWHILE_BYTES: Final = 512
"""Below this the frame costs more than it saves."""

_LEVEL: Final = 1

_SHORT_BYTES: Final = 4096
"""Shorter bodies are compressed without Huffman codes: half the time, a tenth to a fifth longer."""

_SHORT_LEVEL: Final = -1

_LONG_BYTES: Final = 1 << 20
"""Of a longer body some samples are compressed first, because nothing else runs meanwhile."""

_SAMPLES: Final = 16
_SAMPLE_BYTES: Final = 8 * 1024


class Compressor:
    """Compresses bodies that are long enough for it to pay, and no shorter than ``least`` bytes."""

    def __init__(self, least: int = 0) -> None:
        self._least = max(least, WORTHWHILE_BYTES)
        self._frames = zstd.FrameCompressor(_LEVEL)
        self._short_frames = zstd.FrameCompressor(_SHORT_LEVEL)

    def shorter(self, body: bytes) -> bytes | None:
        """The compressed body; None if it is not shorter. Raises :class:`MemoryError`."""
        if len(body) < self._least:
            return None
        if len(body) > _LONG_BYTES and not self._may_shrink(body):
            return None
        compressor = self._short_frames if len(body) < _SHORT_BYTES else self._frames
        smaller = compressor.compress(body)
        return smaller if len(smaller) < len(body) else None

    def shorter_in_parts(self, body: list[bytes]) -> bytes | None:
        """The compressed body, given in parts that are not joined; None if it is not shorter."""
        if len(body) == 1:
            return self.shorter(body[0])
        size = sum(map(len, body))
        if not any(self._may_shrink(part) for part in body if len(part) > _LONG_BYTES):
            return None
        smaller = zstd.compressed_in_parts(body, _LEVEL)
        return smaller if len(smaller) < size else None

    def _may_shrink(self, body: bytes) -> bool:
        """Whether any of some samples, evenly spread over the body, becomes shorter."""
        step = (len(body) - _SAMPLE_BYTES) // (_SAMPLES - 1)
        lows = range(0, step * _SAMPLES, step)
        return any(self.shorter(body[low : low + _SAMPLE_BYTES]) is not None for low in lows)
