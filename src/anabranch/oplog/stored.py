"""Batches that are read back from a file of the log while the log is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from anabranch.oplog.batch import batch_size, is_sound
from anabranch.oplog.errors import CorruptLogError
from anabranch.oplog.segment import SEGMENT_HEADER_BYTES, segment_name
from anabranch.oplog.storage import Storage

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
                    raise _shorter(storage, name)
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


def _shorter(storage: Storage, name: str) -> CorruptLogError:
    """The error for a file that ends within a batch."""
    size = storage.size(name)
    return CorruptLogError(storage.shown(name), size, "a batch does not end here")
