"""What was deleted of what a query has read: the holes of a log, remembered in the offset.

A deleted entry leaves a hole: its position is never used again, in any region. So what was deleted
between two looks is the difference of two sets of positions, and the server need not remember a
deletion. A set is a few spans, because neighbours are one span, and everything below the first live
entry is one. It is a part of the offset: a batch that is repeated reports the same deletions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, Self

from anabranch.spark.options import OptionError

INSERT: Final = "insert"
DELETE: Final = "delete"
TRIM: Final = "trim"
"""What the column for changes says of a row."""

SPANS_MAX: Final = 200_000
"""Of one log: about a megabyte of an offset, which is stored with each batch."""

Spans = tuple[tuple[int, int], ...]
"""Positions ``[first, stop)``, ascending, none touching the next."""


def joined(spans: Iterable[tuple[int, int]]) -> Spans:
    """The same positions as few spans, from spans in any order."""
    found: list[tuple[int, int]] = []
    for first, stop in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        elif first < stop:
            found.append((first, stop))
    return tuple(found)


def within(spans: Spans, low: int, high: int) -> Spans:
    """Those in ``[low, high)``; O(log n + what is found)."""
    at = max(bisect_right(spans, low, key=_first) - 1, 0)
    found = []
    while at < len(spans) and spans[at][0] < high:
        first, stop = max(spans[at][0], low), min(spans[at][1], high)
        if first < stop:
            found.append((first, stop))
        at += 1
    return tuple(found)


def without(spans: Spans, others: Spans) -> Iterator[tuple[int, int]]:
    """The positions that only the first has."""
    for low, high in spans:
        for first, stop in within(others, low, high):
            if low < first:
                yield low, first
            low = stop
        if low < high:
            yield low, high


def size_of(spans: Iterable[tuple[int, int]]) -> int:
    """How many positions there are."""
    return sum(stop - first for first, stop in spans)


def _first(span: tuple[int, int]) -> int:
    return span[0]


@dataclass(frozen=True, slots=True)
class Holes:
    """The positions of a log below a cursor that no entry has."""

    deleted: int
    """The key was deleted when entries below this position were there."""
    trimmed: int
    """Trimming, or a deletion of the key, has removed what was below this position."""
    spans: Spans

    def to_list(self) -> list[Any]:
        """The form in an offset: the ends of spans as distances, which are short."""
        ends = [0, *(end for span in self.spans for end in span)]
        return [self.deleted, self.trimmed, [after - before for before, after in pairwise(ends)]]

    @classmethod
    def of(cls, deleted: object, trimmed: object, distances: list[Any]) -> Self:
        """From a decoded offset; raises `ValueError`."""
        ends = list(accumulate(map(int, distances)))
        spans = tuple(zip(ends[::2], ends[1::2], strict=True))
        return cls(int(str(deleted)), int(str(trimmed)), spans)

    def check(self, place: str) -> None:
        """Raise `OptionError` if they are too many for an offset."""
        if len(self.spans) > SPANS_MAX:
            raise OptionError(
                f"{place} has more than {SPANS_MAX:,} holes between its entries, too many for an "
                "offset with changes=true: trim the stream, or read it without changes and compare "
                "positions (AB.EXPORT) instead"
            )


@dataclass(frozen=True, slots=True)
class Removal:
    """Entries that were read, and removed since: one row for each position ``[first, stop)``.

    Entries that never existed, or that were removed before they were read, may be among them only
    if they were removed after the batch that should read them was planned.
    """

    stream: str
    region: str
    kind: str
    """`DELETE`, or `TRIM`."""
    first: int
    stop: int


def removals(stream: str, region: str, known: Holes, seen: Holes, below: int) -> Iterator[Removal]:
    """What was removed between two looks, of the entries below a position."""
    for first, stop in without(within(seen.spans, 0, below), known.spans):
        bounds = (first, min(seen.deleted, stop), min(max(seen.trimmed, seen.deleted), stop), stop)
        for kind, (low, high) in zip((DELETE, TRIM, DELETE), pairwise(bounds), strict=True):
            low = max(low, first)
            if low < high:
                yield Removal(stream, region, kind, low, high)
