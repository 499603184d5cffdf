"""Spans of entries as reply bytes: slices of blocks, mostly without a loop over entries."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.resp.encode import array_header
from anabranch.stream.region_log import Span
from anabranch.stream.stream import Stream


def read_into(parts: list[bytes], stream: Stream, start: int, end: int, limit: int) -> int:
    """Append the bytes of entries, ascending, to the parts of a reply; returns how many entries."""
    if len(stream.logs) == 1:
        return stream.local.read(start, end, limit, parts)
    count = 0
    for block, low, high in stream.spans(start, end, limit):
        parts.append(block.slice(low, high))
        count += high - low
    return count


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
    count = 0
    parts: list[bytes] = [b""]
    for block, low, high in spans:
        count += high - low
        fragments = block.fragments(low, high)
        fragments.reverse()
        parts.append(
            b"".join(fragments)
        )  # reverse within a span, while the processor has it cached
    parts[0] = array_header(count)
    return b"".join(parts)
