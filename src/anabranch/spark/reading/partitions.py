"""Cuts what a batch reads into partitions, each of which is a task of Spark.

The ranges of a batch are laid end to end, by stream and region, and the line is cut into parts of
equal length. So a partition holds many small ranges or a part of a large one, and the number of
tasks does not depend on the number of streams. The cut is a pure function of the ranges and their
number: a batch that is repeated after a crash has the same partitions with the same rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from anabranch.spark.options import ReadOptions
from anabranch.spark.reading.holes import Removal, within
from anabranch.spark.reading.offsets import Range, Vector, parse_id


@dataclass(frozen=True, slots=True)
class Frontier:
    """One row has a time in column ``ts``, and NULL elsewhere.

    No entry of the regions that are read will have an ID below that time. The row moves the
    watermark of a region that is silent and connected.
    """

    ms: int


Partition = tuple[Range | Removal | Frontier, ...]
"""What one task reads, one after the other: entries, or rows without an entry."""


_TASKS_OF_CORE: Final = 2  # so that a core which is done early has something left to do
_LEAST: Final = 5_000  # entries; a task for fewer costs more than it saves


def partition_count(options: ReadOptions, entries: int, cores: int) -> int:
    """Into how many partitions to cut a batch of so many positions.

    ``minPartitions`` is the number itself, so that it can be the same on machines of any size.
    """
    count = options.min_partitions or min(_TASKS_OF_CORE * cores, -(-entries // _LEAST))
    if options.max_records_per_partition is not None:
        count = max(count, -(-entries // options.max_records_per_partition))
    return max(count, 1)


def partitions_of(start: Vector, end: Vector) -> list[Partition]:
    """What the batch between two offsets reads; a pure function of the two."""
    parts: list[Partition] = [*cut(end.ranges(start), end.splits)]
    if removals := tuple(end.removals(start)):
        parts.append(removals)
    if end.frontier_ms is not None and end.frontier_ms != start.frontier_ms:
        parts.append((Frontier(end.frontier_ms),))
    return parts


def cut(ranges: Sequence[Range], count: int) -> list[tuple[Range, ...]]:
    """At most `count` partitions, equally long in positions; together they are all ranges.

    A range by ID is cut by spans of time, because nothing else about it is known in advance.
    """
    lengths = [len(each) or 1 for each in ranges]
    total = sum(lengths)
    count = min(count, total)
    bounds = [total * number // count for number in range(count)]
    partitions: list[list[Range]] = [[] for _ in bounds]
    begin = 0
    for each, length in zip(ranges, lengths, strict=True):
        first, last = (bisect_right(bounds, at) - 1 for at in (begin, begin + length - 1))
        inner = [bound - begin for bound in bounds[first + 1 : last + 1]]
        pieces = _pieces(each, inner) if inner else [each]
        for number, piece in enumerate(pieces, first):
            if piece is not None:
                partitions[number].append(piece)
        begin += length
    return [tuple(each) for each in partitions if each]


def _pieces(whole: Range, inner: list[int]) -> Iterator[Range | None]:
    """A range cut at these distances from its beginning; None where nothing lies between."""
    if not whole.by_id:
        for low, high in pairwise([whole.first + at for at in (0, *inner, len(whole))]):
            removed = within(whole.removed, low, high)
            yield replace(whole, first=low, stop=high, removed=removed)
        return
    first, last = parse_id(whole.after), parse_id(whole.upto)
    span = last[0] - first[0]
    ids = [max(first, (first[0] + span * at // len(whole), 0)) for at in inner]
    for after, upto in pairwise([first, *ids, last]):
        piece = replace(whole, after="{}-{}".format(*after), upto="{}-{}".format(*upto))
        yield piece if after < upto else None
