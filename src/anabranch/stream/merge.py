"""Merges several region logs into one sequence in ID order, by runs.

Usually many neighbouring entries come from one region. So the merge does not compare entry by
entry: it cuts the spans of a log where another log has its next entry. With one region nothing is
cut. Entries of several regions with equal IDs are ordered by region number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from anabranch.compiling import mypyc_attr
from anabranch.stream.block import Block
from anabranch.stream.region_log import Span


@mypyc_attr(acyclic=True)
class _LogSpans:
    """The current span of one log; ``low``/``high`` shrink as it is consumed."""

    def __init__(self, rank: int, spans: Iterator[Span]) -> None:
        self.rank = rank
        self.spans = spans
        self.block: Block
        self.low = 0
        self.high = 0

    def advance(self) -> bool:
        for block, low, high in self.spans:
            self.block, self.low, self.high = block, low, high
            return True
        return False


def merge_spans(sources: Sequence[Iterator[Span]]) -> Iterator[Span]:
    """Merge ascending spans of several logs (given in region order) into one ascending sequence."""
    for _, span in _merged(sources):
        yield span


def merge_labelled(sources: Mapping[int, Iterator[Span]]) -> Iterator[tuple[int, Span]]:
    """Merge ascending spans of several logs, given by region; each span with its region."""
    labels = list(sources)
    for rank, span in _merged(list(sources.values())):
        yield labels[rank], span


def _merged(sources: Sequence[Iterator[Span]]) -> Iterator[tuple[int, Span]]:
    active = [
        source for rank, spans in enumerate(sources) if (source := _LogSpans(rank, spans)).advance()
    ]
    while len(active) > 1:
        active.sort(key=lambda source: (source.block.ids[source.low], source.rank))
        first, second = active[0], active[1]
        bound = second.block.ids[second.low]
        cut = (
            first.block.index_after(bound)
            if first.rank < second.rank
            else first.block.index_from(bound)
        )
        cut = min(max(cut, first.low + 1), first.high)
        yield first.rank, (first.block, first.low, cut)
        first.low = cut
        if cut == first.high and not first.advance():
            del active[0]
    for source in active:
        yield source.rank, (source.block, source.low, source.high)
        for span in source.spans:
            yield source.rank, span


def merge_spans_reversed(sources: Sequence[Iterator[Span]]) -> Iterator[Span]:
    """Merge descending spans of several logs; inside of a span the entries ascend."""
    active = [
        source for rank, spans in enumerate(sources) if (source := _LogSpans(rank, spans)).advance()
    ]
    while len(active) > 1:
        active.sort(key=lambda source: (-source.block.ids[source.high - 1], -source.rank))
        first, second = active[0], active[1]
        bound = second.block.ids[second.high - 1]
        cut = (
            first.block.index_from(bound)
            if first.rank > second.rank
            else first.block.index_after(bound)
        )
        cut = max(min(cut, first.high - 1), first.low)
        yield first.block, cut, first.high
        first.high = cut
        if cut == first.low and not first.advance():
            del active[0]
    for source in active:
        yield source.block, source.low, source.high
        yield from source.spans


def limited_labelled(spans: Iterator[tuple[int, Span]], limit: int) -> Iterator[tuple[int, Span]]:
    """Cut a sequence of spans with their regions after ``limit`` entries (-1: no limit)."""
    if limit < 0:
        yield from spans
        return
    for replica_id, (block, low, high) in spans:
        if limit <= high - low:
            if limit:
                yield replica_id, (block, low, low + limit)
            return
        limit -= high - low
        yield replica_id, (block, low, high)


def limited(spans: Iterator[Span], limit: int, *, newest_first: bool = False) -> Iterator[Span]:
    """Cut a sequence of spans after ``limit`` entries (-1: no limit).

    Entries with one ID stay together: a reader that continues after the last ID would miss the
    others.
    """
    if limit < 0:
        yield from spans
        return
    for block, low, high in spans:
        if limit <= high - low:
            if limit:
                yield (block, high - limit, high) if newest_first else (block, low, low + limit)
            if limit == high - low:
                last_id = block.ids[low if newest_first else high - 1]
                yield from _equal_ids(spans, last_id, newest_first=newest_first)
            return
        limit -= high - low
        yield block, low, high


def _equal_ids(spans: Iterator[Span], entry_id: int, *, newest_first: bool) -> Iterator[Span]:
    """The entries that follow with the same ID. Each is of another log, so a span begins there."""
    for block, low, high in spans:
        at = high - 1 if newest_first else low
        if block.ids[at] != entry_id:
            return
        yield block, at, at + 1
        if high - low > 1:
            return
