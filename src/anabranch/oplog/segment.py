"""One file of the log: a header, then batches.

A *position* counts the bytes of batches since the log began, across segments; a file's name and
header (see :mod:`anabranch.oplog.file_kind`) contain the position of its first batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
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
    batch_size,
    decode_batch,
    effects_in,
    is_sound,
)
from anabranch.oplog.errors import CorruptLogError
from anabranch.oplog.storage import Storage

FORMAT_VERSION: Final = 2
"""Files of version 1 may have no manifest beside them (:mod:`anabranch.oplog.manifest`)."""

SEGMENT_HEADER_BYTES: Final = file_kind.HEADER_BYTES
_KIND: Final = file_kind.FileKind("log file", b"ANABRLOG", "log-", ".ablog", FORMAT_VERSION)


DISUSED: Final = "the file before it was written to since it was begun"
"""Why :func:`is_disused` leaves a segment out."""


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


def is_disused(data: bytes, later: Sequence[str]) -> bool:
    """Whether a segment that begins within the one before it is only left over.

    The server had failed to make it and had deleted it, but the deletion was not synced.
    """
    return len(data) == SEGMENT_HEADER_BYTES and not later


def is_unfinished(
    data: bytes, first_position: int, damage: Damage, later: Iterable[bytes] = ()
) -> bool:
    """Whether unsound bytes are an unfinished end; otherwise they are damage.

    ``later`` are the contents of the segments behind this one.
    """
    broken = first_position + max(damage.broken - SEGMENT_HEADER_BYTES, 0)
    return not _is_noted(broken, data, damage.broken) and not is_noted(broken, later)


def is_noted(position: int, later: Iterable[bytes]) -> bool:
    """Whether a note in these segments covers a position: the log was on the disk behind it.

    See :mod:`anabranch.oplog.log`. True, too, if a note may be in a newer format.
    """
    return any(_is_noted(position, data, 0) for data in later)


def _is_noted(position: int, data: bytes, offset: int) -> bool:
    """Whether something behind an offset of the segment notes a sync beyond a position."""
    for _, batch in batches_behind(data, offset):
        if batch is None:
            return True
        if not batch.is_local:
            continue
        try:
            notes = [each for each in effects_in(batch) if isinstance(each, Synced)]
        except EffectFormatError:
            return True
        if any(note.position > position for note in notes):
            return True
    return False


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


READ_BYTES: Final = 1 << 20


def stored_batches(
    storage: Storage, first: int, end: int, position: int
) -> Iterator[tuple[int, bytes]]:
    """``(position, bytes)`` of the batches from a position on.

    The file is named by the position of its ``first`` batch, and its last batch ends at ``end``.
    Raises :class:`OSError`, and :class:`CorruptLogError` where a batch is not as it was written:
    some get a new checksum before they are sent (:func:`anabranch.oplog.batch.wire_form`), which
    would vouch for the damage.
    """
    name = segment_name(first)
    with closing(storage.open(name)) as file:
        file.seek(SEGMENT_HEADER_BYTES + position - first)
        data = b""
        at = 0
        left = end - position
        while left or at < len(data):
            size = batch_size(data, at)
            if size is None or at + size > len(data):
                # A long batch is read at once: adding pieces to it would copy it each time.
                lacking = 0 if size is None else at + size - len(data)
                more = file.read(min(left, max(lacking, READ_BYTES)))
                if not more:
                    size = storage.size(name)
                    raise CorruptLogError(storage.shown(name), size, "a batch does not end here")
                left -= len(more)
                data = data[at:] + more
                at = 0
                continue
            batch = data[at : at + size]
            if not is_sound(batch):
                offset = SEGMENT_HEADER_BYTES + position - first
                raise CorruptLogError(
                    storage.shown(name), offset, "this is no batch as it was written"
                )
            yield position, batch
            position += size
            at += size
