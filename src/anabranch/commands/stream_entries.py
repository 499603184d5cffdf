"""Spans of entries as reply bytes: slices of blocks, no loop over entries where none is needed."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.resp.encode import array_header
from anabranch.stream.region_log import Span

__all__ = ["entries_ascending", "entries_descending"]


def entries_ascending(spans: Iterable[Span]) -> bytes:
    """An array of entries in the order of the spans."""
    count = 0
    parts: list[bytes] = [b""]
    for block, low, high in spans:
        count += high - low
        parts.append(block.slice(low, high))
    parts[0] = array_header(count)
    return b"".join(parts)


def entries_descending(spans: Iterable[Span]) -> bytes:
    """An array of entries, newest first, from spans that come newest first."""
    parts: list[bytes] = [b""]
    for block, low, high in spans:
        fragments = block.fragments(low, high)
        fragments.reverse()
        parts += fragments
    parts[0] = array_header(len(parts) - 1)
    return b"".join(parts)
