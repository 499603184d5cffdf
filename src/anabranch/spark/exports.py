"""Decodes replies of AB.EXPORT: runs of the server's blocks.

IDs, positions and the ends of entries become arrays over all runs. The bytes of the entries are not
copied, except to decompress a reply.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import zstandard

from anabranch.errors import AnabranchError

__all__ = ["Export", "Ints", "PayloadError", "concatenated", "parse_export"]

_VERSION: Final = 2
_NONE, _ZSTD = 0, 1
_HEADER: Final = struct.Struct("<BBHIQ")
_CHUNK: Final = struct.Struct("<IBBBBqQQQ")
_PACKED, _PLAIN = 0, 1
_HAS_POSITIONS: Final = 1
_SEQ_BITS: Final = 24

Ints = npt.NDArray[np.int64]


class PayloadError(AnabranchError):
    """An export is malformed."""


@dataclass(frozen=True, slots=True)
class Export:
    """One reply of AB.EXPORT, with decoded arrays and joined fragments."""

    next_position: int
    ms: Ints
    seq: npt.NDArray[np.uint64]
    positions: Ints
    ends: Ints
    data: list[memoryview]

    def __len__(self) -> int:
        return len(self.ms)


def parse_export(payload: bytes) -> Export:
    """Decode the outer form of AB.EXPORT's reply; raises `PayloadError`."""
    try:
        return _parse_export(memoryview(payload))
    except (struct.error, ValueError, OverflowError, zstandard.ZstdError, MemoryError) as error:
        raise PayloadError(f"the reply of AB.EXPORT is cut off or damaged ({error})") from None


def _parse_export(payload: memoryview) -> Export:
    version, codec, _, chunks, next_position = _HEADER.unpack_from(payload)
    if version != _VERSION or codec not in (_NONE, _ZSTD):
        raise PayloadError(
            f"the server exports in form {version}.{codec}, this package reads {_VERSION}.{_NONE} "
            f"and {_VERSION}.{_ZSTD}: "
            "install the anabranch release of the server on Spark's side"
        )
    at = _HEADER.size
    if codec == _ZSTD:
        payload, at = memoryview(_expanded(payload[at:])), 0
    columns = _Columns()
    data: list[memoryview] = []
    joined = 0
    for _ in range(chunks):
        count, form, width, flags, _, base_ms, first, end_base, size = _CHUNK.unpack_from(
            payload, at
        )
        at += _CHUNK.size
        if form == _PACKED and width == 2 and not flags & _HAS_POSITIONS:
            columns.words.append(payload[at : (ends_at := at + 8 * count)])
            columns.usual_ends.append(payload[ends_at : (at := ends_at + 2 * count)])
            columns.facts.append((count, base_ms, first, joined - end_base))
        else:
            offset = joined - end_base
            at = columns.add(payload, at, (count, form, width, flags, base_ms, first, offset))
        columns.counts.append(count)
        data.append(payload[at : (at := at + size)])
        joined += size
    if at < len(payload):
        raise PayloadError("the reply of AB.EXPORT is longer than it says")
    if at > len(payload) or not all(columns.counts):
        raise PayloadError(_DISAGREE)
    export = columns.export(next_position, data)
    counts = np.cumsum(columns.counts, dtype=np.int64)
    if (export.ends[counts - 1] != np.cumsum([len(part) for part in data], dtype=np.int64)).any():
        raise PayloadError(_DISAGREE)
    return export


def _expanded(smaller: memoryview) -> bytes:
    body: bytes = zstandard.ZstdDecompressor().decompress(smaller, allow_extra_data=False)
    return body


_DISAGREE: Final = "the reply of AB.EXPORT is cut off or damaged (lengths disagree)"


class _Columns:
    """The numbers of chunks, in the order of their arrival.

    Chunks are short, and a call of numpy costs as much as the numbers of one of them. So chunks of
    the usual form are collected first, and computed together.
    """

    def __init__(self) -> None:
        """No chunk so far."""
        self.counts: list[int] = []
        """Of every chunk."""
        self.words: list[memoryview] = []
        self.usual_ends: list[memoryview] = []
        """The IDs and ends of usual chunks: packed IDs, consecutive positions, short ends."""
        self.facts: list[tuple[int, int, int, int]] = []
        """Of each of these count, base of milliseconds, first position, what its ends lack."""
        self._ms: list[Ints] = []
        self._seq: list[npt.NDArray[np.uint64]] = []
        self._positions: list[Ints] = []
        self._ends: list[Ints] = []

    def _compute(self) -> None:
        """Compute the collected chunks."""
        if not self.facts:
            return
        counts, base_ms, firsts, offsets = np.array(self.facts, np.int64).T
        words = np.frombuffer(b"".join(self.words), "<u8")
        ends = np.frombuffer(b"".join(self.usual_ends), "<u2")
        self._ms.append((words >> _SEQ_BITS).astype(np.int64) + np.repeat(base_ms, counts))
        self._seq.append(words & np.uint64((1 << _SEQ_BITS) - 1))
        before = np.cumsum(counts) - counts
        self._positions.append(np.arange(len(words)) + np.repeat(firsts - before, counts))
        self._ends.append(ends + np.repeat(offsets, counts))
        self.words.clear()
        self.usual_ends.clear()
        self.facts.clear()

    def add(
        self, payload: memoryview, at: int, facts: tuple[int, int, int, int, int, int, int]
    ) -> int:
        """Any other chunk, whose arrays begin at an offset; returns where its data do."""
        self._compute()
        count, form, width, flags, base_ms, first, offset = facts
        if form == _PACKED:
            words = np.frombuffer(payload, "<u8", count, at)
            self._ms.append((words >> _SEQ_BITS).astype(np.int64) + base_ms)
            self._seq.append(words & np.uint64((1 << _SEQ_BITS) - 1))
            at += 8 * count
        elif form == _PLAIN:
            self._ms.append(np.frombuffer(payload, "<i8", count, at))
            self._seq.append(np.frombuffer(payload, "<u8", count, at + 8 * count))
            at += 16 * count
        else:
            raise PayloadError(f"the reply of AB.EXPORT has IDs in an unknown form ({form})")
        if flags & _HAS_POSITIONS:
            self._positions.append(np.frombuffer(payload, "<i8", count, at))
            at += 8 * count
        else:
            self._positions.append(np.arange(first, first + count, dtype=np.int64))
        if width not in (2, 8):
            raise PayloadError(f"the reply of AB.EXPORT has ends of {width} bytes")
        local = np.frombuffer(payload, f"<u{width}", count, at).astype(np.int64)
        self._ends.append(local + offset)
        return at + width * count

    def export(self, next_position: int, data: list[memoryview]) -> Export:
        """All of it."""
        self._compute()
        return Export(
            next_position,
            concatenated(self._ms, np.int64),
            concatenated(self._seq, np.uint64),
            concatenated(self._positions, np.int64),
            concatenated(self._ends, np.int64),
            data,
        )


def concatenated(arrays: Sequence[npt.NDArray[Any]], kind: type) -> npt.NDArray[Any]:
    """One behind the other; an array of the kind if there is none."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, kind)
