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

__all__ = ["Export", "Ints", "PayloadError", "parse_export"]

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
    runs: list[_Run] = []
    data: list[memoryview] = []
    counts: list[int] = []
    joined = 0
    before = None
    for _ in range(chunks):
        count, form, width, flags, _, base_ms, first, end_base, size = _CHUNK.unpack_from(
            payload, at
        )
        at += _CHUNK.size
        if (form, width, flags) != before:
            before = form, width, flags
            runs.append(_Run(form, width, flags & _HAS_POSITIONS))
        at = runs[-1].add(payload, at, count, base_ms, first, joined - end_base)
        counts.append(count)
        data.append(payload[at : (at := at + size)])
        joined += size
    if at < len(payload):
        raise PayloadError("the reply of AB.EXPORT is longer than it says")
    if at > len(payload) or not all(counts):
        raise PayloadError(_DISAGREE)
    columns = [each.columns() for each in runs]
    ms, seq, positions, ends = (
        _concatenated([each[number] for each in columns], kind)
        for number, kind in enumerate((np.int64, np.uint64, np.int64, np.int64))
    )
    sizes = np.cumsum([len(each) for each in data], dtype=np.int64)
    if (ends[np.cumsum(counts, dtype=np.int64) - 1] != sizes).any():
        raise PayloadError(_DISAGREE)
    return Export(next_position, ms, seq, positions, ends, data)


def _expanded(smaller: memoryview) -> bytes:
    body: bytes = zstandard.ZstdDecompressor().decompress(smaller, allow_extra_data=False)
    return body


_DISAGREE: Final = "the reply of AB.EXPORT is cut off or damaged (lengths disagree)"


class _Run:
    """The numbers of neighbouring chunks of one form.

    Chunks are short, and a call of numpy costs as much as the numbers of one of them. So they are
    collected first, and computed together.
    """

    def __init__(self, form: int, width: int, has_positions: int) -> None:
        """Of the IDs the form, of ends the bytes. Raises `PayloadError`."""
        if form not in (_PACKED, _PLAIN):
            raise PayloadError(f"the reply of AB.EXPORT has IDs in an unknown form ({form})")
        if width not in (2, 8):
            raise PayloadError(f"the reply of AB.EXPORT has ends of {width} bytes")
        self._form, self._width, self._has_positions = form, width, has_positions
        self._facts: list[tuple[int, ...]] = []
        self._ms: list[memoryview] = []  # packed IDs are here as a whole
        self._seq: list[memoryview] = []
        self._positions: list[memoryview] = []
        self._ends: list[memoryview] = []

    def add(self, payload: memoryview, at: int, *facts: int) -> int:
        """Collect a chunk whose arrays begin at an offset; returns where its data do.

        `facts`: count, base of milliseconds, first position, what its ends lack.
        """
        self._facts.append(facts)
        count, *_ = facts
        size = 8 * count
        self._ms.append(payload[at : (at := at + size)])
        if self._form == _PLAIN:
            self._seq.append(payload[at : (at := at + size)])
        if self._has_positions:
            self._positions.append(payload[at : (at := at + size)])
        self._ends.append(payload[at : (at := at + self._width * count)])
        return at

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """Milliseconds, sequence numbers, positions and ends."""
        counts, base_ms, firsts, offsets = np.array(self._facts, np.int64).T
        if self._form == _PACKED:
            words = np.frombuffer(b"".join(self._ms), "<u8")
            ms = (words >> _SEQ_BITS).astype(np.int64) + np.repeat(base_ms, counts)
            seq = words & np.uint64((1 << _SEQ_BITS) - 1)
        else:
            ms = np.frombuffer(b"".join(self._ms), "<i8")
            seq = np.frombuffer(b"".join(self._seq), "<u8")
        if self._has_positions:
            positions = np.frombuffer(b"".join(self._positions), "<i8")
        else:
            before = np.cumsum(counts) - counts
            positions = np.arange(len(ms)) + np.repeat(firsts - before, counts)
        ends = np.frombuffer(b"".join(self._ends), f"<u{self._width}")
        return ms, seq, positions, ends.astype(np.int64) + np.repeat(offsets, counts)


def _concatenated(arrays: Sequence[npt.NDArray[Any]], kind: type) -> npt.NDArray[Any]:
    """One behind the other; an array of the kind if there is none."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, kind)
