"""Spans of entries as reply bytes: slices of blocks, no loop over entries where none is needed."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.resp.encode import array_header
from anabranch.stream.region_log import Span

__all__ = ["entries_ascending", "entries_descending"]


def entries_ascending(spans: Iterable[Span]) -> bytes:
    """An array of entries in the order of the spans."""
    count = 0
    parts: list[bytes | bytearray] = [b""]
    for block, low, high in spans:
        count += high - low
        parts.append(block.slice(low, high))
    parts[0] = array_header(count)
    return b"".join(parts)


def entries_descending(spans: Iterable[Span]) -> bytes:
    """An array of entries, newest first, from spans that come newest first."""
    parts: list[bytes | bytearray] = [b""]
    for block, low, high in spans:
        data = block.data
        ends = block.ends[low:high]
        begins = [block.ends[low - 1] if low else 0, *ends]
        parts += [
            data[begin:end] for begin, end in zip(begins[-2::-1], reversed(ends), strict=True)
        ]
    parts[0] = array_header(len(parts) - 1)
    return b"".join(parts)
