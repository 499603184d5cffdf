"""One file of the log: a header, then batches.

::

    "ANABRLOG" | version | lowest reader | features | first position | XXH3-64 of all before
         8          2           2             4             8                    8

A *position* counts the bytes of batches since the log began, across segments; a file is named
after the position of its first batch. ``features`` are bits a reader must know to read the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from anabranch.oplog.batch import (
    HEADER_BYTES,
    MAGIC,
    Batch,
    BatchError,
    NewerBatchError,
    decode_batch,
)
from anabranch.oplog.errors import CorruptLogError, NewerFormatError

__all__ = [
    "FORMAT_VERSION",
    "SEGMENT_HEADER_BYTES",
    "Damage",
    "batches_in",
    "first_position_of",
    "is_torn",
    "segment_header",
    "segment_name",
    "sound_batch_after",
    "turns_in",
]

FORMAT_VERSION: Final = 1
_KNOWN_FEATURES: Final = 0
_FILE_MAGIC: Final = b"ANABRLOG"
_HEADER: Final = struct.Struct("<8sHHIQ")
_CHECKSUM: Final = struct.Struct("<Q")
SEGMENT_HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size
_PREFIX, _SUFFIX = "log-", ".ablog"


class Damage(NamedTuple):
    """Where the sound part of a segment ends before the file does, and why."""

    offset: int
    what: str
    broken: int
    """Where the first unsound byte may be: batches of an unfinished turn lie before it."""
    is_newer: bool = False
    """Nothing is damaged: this is a batch of a newer server."""


def segment_name(first_position: int) -> str:
    """The name of the file whose first batch has this position; names sort as positions do."""
    return f"{_PREFIX}{first_position:020d}{_SUFFIX}"


def first_position_of(name: str) -> int | None:
    """The other way round; None for files that are no segments."""
    if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
        return None
    digits = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    return int(digits) if digits.isdecimal() and digits.isascii() else None


def segment_header(first_position: int) -> bytes:
    """The header of a new file."""
    header = _HEADER.pack(_FILE_MAGIC, FORMAT_VERSION, FORMAT_VERSION, 0, first_position)
    return header + _CHECKSUM.pack(xxh3_64_intdigest(header))


def check_segment_header(data: bytes, name: str, first_position: int) -> None:
    """Raise unless these bytes begin with the header of that segment, readable by us."""
    if len(data) < SEGMENT_HEADER_BYTES:
        raise CorruptLogError(name, 0, "the file is shorter than its header")
    magic, version, lowest, features, position = _HEADER.unpack_from(data)
    if magic != _FILE_MAGIC:
        raise CorruptLogError(name, 0, "this is no log file")
    (expected,) = _CHECKSUM.unpack_from(data, _HEADER.size)
    found = xxh3_64_intdigest(data[: _HEADER.size])
    if found != expected:
        raise CorruptLogError(
            name, 0, f"the header has checksum {found:016x} instead of {expected:016x}"
        )
    if lowest > FORMAT_VERSION or features & ~_KNOWN_FEATURES:
        raise NewerFormatError(
            f"{name} was written by a newer server (format {version}, readable from {lowest} on, "
            f"features {features:#x}; this one knows format {FORMAT_VERSION}). Nothing was "
            "changed; start the newer version again, or export the data with it"
        )
    if position != first_position:
        raise CorruptLogError(name, 0, f"the header says position {position}")


def batches_in(data: bytes) -> Iterator[tuple[int, Batch] | Damage]:
    """``(offset, batch)`` of a segment's batches, and last a :class:`Damage` if there is one."""
    view = memoryview(data)
    at = SEGMENT_HEADER_BYTES
    while at < len(data):
        try:
            batch = decode_batch(view, at)
        except BatchError as problem:
            yield Damage(at, str(problem), at, isinstance(problem, NewerBatchError))
            return
        yield at, batch
        at += batch.size


def turns_in(data: bytes) -> Iterator[tuple[int, list[Batch]] | Damage]:
    """``(offset, batches)`` of whole turns; a turn without its end is a :class:`Damage` too."""
    begin = SEGMENT_HEADER_BYTES
    turn: list[Batch] = []
    for item in batches_in(data):
        if isinstance(item, Damage):
            yield item._replace(offset=begin) if turn else item
            return
        at, batch = item
        if not turn:
            begin = at
        turn.append(batch)
        if not batch.continues:
            yield begin, turn
            turn = []
    if turn:
        yield Damage(begin, "the end of the turn is missing", len(data))


def is_torn(data: bytes, damage: Damage) -> bool:
    """Whether the newest segment just ends there, as after a crash: nothing sound is behind it."""
    return sound_batch_after(data, damage.broken) is None


def sound_batch_after(data: bytes, offset: int) -> int | None:
    """Where, behind a damage, the next sound batch begins; None if there is none.

    A file whose end was not written before a crash has none: this tells a torn tail from damage.
    """
    view = memoryview(data)
    at = data.find(MAGIC, offset + 1)
    while at >= 0 and len(data) - at >= HEADER_BYTES:
        try:
            decode_batch(view, at)
        except NewerBatchError:
            return at
        except BatchError:
            at = data.find(MAGIC, at + 1)
        else:
            return at
    return None
