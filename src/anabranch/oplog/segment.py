"""One file of the log: a header, then batches.

A *position* counts the bytes of batches since the log began, across segments; a file's name and
header (see :mod:`anabranch.oplog.file_kind`) contain the position of its first batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from anabranch.effects.codec import EffectFormatError
from anabranch.effects.kinds import Synced
from anabranch.oplog import file_kind
from anabranch.oplog.batch import (
    HEADER_BYTES,
    MAGIC,
    Batch,
    BatchError,
    NewerBatchError,
    decode_batch,
    effects_in,
)
from anabranch.oplog.errors import CorruptLogError, NewerFormatError

__all__ = [
    "FORMAT_VERSION",
    "SEGMENT_HEADER_BYTES",
    "Damage",
    "batches_behind",
    "batches_in",
    "first_position_of",
    "is_unfinished",
    "segment_header",
    "segment_name",
    "sound_batch_after",
    "turns_in",
    "why_unborn",
]

FORMAT_VERSION: Final = 2
"""Files of version 1 may have no manifest beside them (:mod:`anabranch.oplog.manifest`)."""

SEGMENT_HEADER_BYTES: Final = file_kind.HEADER_BYTES
_KIND: Final = file_kind.FileKind(
    "log file", b"ANABRLOG", "log-", ".ablog", FORMAT_VERSION, lowest_reader=1
)


class Damage(NamedTuple):
    """The end of the sound part of a segment, if the file continues behind it, and the reason."""

    offset: int
    what: str
    broken: int
    """The first offset that may be unsound: sound batches of an unfinished turn end there."""
    is_newer: bool = False
    """The next batch is not damaged but in a newer format."""


segment_name = _KIND.name
"""The name of the file whose first batch has this position; names sort as positions do."""

first_position_of = _KIND.position_of
"""The position in the name of a segment; None for other files."""

segment_header = _KIND.header
"""The header of a new file, by the position of its first batch."""


def check_segment_header(data: bytes, name: str, first_position: int) -> None:
    """Raise unless these bytes begin with the header of that segment, readable by us."""
    position = _KIND.read_header(data, name)
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
    """``(offset, batches)`` of whole turns; an unfinished turn is a :class:`Damage`, too."""
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


def why_unborn(data: bytes, name: str, first_position: int, before: tuple[int, int] | None) -> str:
    """Why the newest segment counts as not made; empty if it counts.

    A crash may come while the segment is made. ``before`` is the first position and the file size
    of the segment before it. If that one continues after the beginning of the newest, then the
    server had failed to make the newest, and had deleted it, but the deletion was not synced.
    """
    try:
        _KIND.read_header(data, name)
        if len(data) == SEGMENT_HEADER_BYTES and before is not None:
            begin, size = before
            if begin + size - SEGMENT_HEADER_BYTES > first_position:
                return "the file before it was written to since it was begun"
    except CorruptLogError as problem:
        if is_unfinished(data, first_position, Damage(0, problem.what, 0)):
            return problem.what
    except NewerFormatError:
        pass
    return ""


def is_unfinished(data: bytes, first_position: int, damage: Damage) -> bool:
    """Whether unsound bytes are an unfinished end; otherwise they are damage.

    See :mod:`anabranch.oplog.sync_notes`.
    """
    broken = first_position + max(damage.broken - SEGMENT_HEADER_BYTES, 0)
    for _, batch in batches_behind(data, damage.broken):
        if batch is None:
            return False
        if not batch.is_local:
            continue
        try:
            notes = [each for each in effects_in(batch) if isinstance(each, Synced)]
        except EffectFormatError:
            return False
        if any(note.position > broken for note in notes):
            return False
    return True


def batches_behind(data: bytes, offset: int) -> Iterator[tuple[int, Batch | None]]:
    """``(offset, batch)`` of sound batches after damage; a last None is of a newer format."""
    view = memoryview(data)
    at = sound_batch_after(data, offset)
    while at is not None and at < len(data):
        try:
            batch = decode_batch(view, at)
        except NewerBatchError:
            yield at, None
            return
        except BatchError:
            at = sound_batch_after(data, at)
        else:
            yield at, batch
            at += batch.size


def sound_batch_after(data: bytes, offset: int) -> int | None:
    """The offset of the next sound batch after damage; None if there is none."""
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
