"""Which held tags newer ones displaced from what a stream remembers.

A stream remembers the newest ``idmp-maxsize`` idempotent IDs of a producer. DEL and XCFGSET remove
the tags in their context only. So they may remove newer tags, and leave an older one that these had
displaced: it is among the newest again. The tag itself is still held, because the region of that
DEL lacked it (:mod:`anabranch.keyspace.held_tags`). What has to be known is which held tags were
displaced, and not removed.

Removals take all tags of a replica ID up to a number. So two numbers are enough for a producer of a
stream and a replica ID: tags above the first, up to the second, were displaced, unless they are
remembered or another tag for the same idempotent ID has replaced them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from anabranch.keyspace.last_effects import Place
from anabranch.stream.fields import BYTES, INTEGER, NUMBER, REPLICA_ID, nested, pair, row, table
from anabranch.stream.shared import Dot, Shared

Spans = dict[int, tuple[int, int]]
"""By replica ID: displaced tags have numbers above the first, up to the second."""

DISPLACED: Final = nested(
    row(pair, INTEGER, BYTES), table(BYTES, table(REPLICA_ID, row(pair, NUMBER, NUMBER)))
)

_Generation = dict[Place, dict[bytes, Spans]]


class DisplacedTags:
    """The displaced tags of all streams, by producer, until every member has them.

    There are two generations, so that forgetting costs nothing: all of the older one is dropped
    when every member has what there was at its end.
    """

    __slots__ = ("_newer", "_older", "_older_end")

    def __init__(self) -> None:
        self._newer: _Generation = {}
        self._older: _Generation = {}
        self._older_end: Mapping[int, int] = {}

    def add(self, place: Place, pid: bytes, dots: Iterable[Dot]) -> None:
        """Newer tags have displaced these."""
        spans = self._newer.setdefault(place, {}).setdefault(pid, {})
        for replica_id, number in dots:
            _widen(spans, replica_id, number - 1, number)

    def replace(self, place: Place, spans_of: dict[bytes, Spans]) -> None:
        """From now on these are displaced; do not use the given table afterwards."""
        self._older.pop(place, None)
        self._newer.pop(place, None)
        if spans_of:
            self._newer[place] = dict(spans_of)

    def remove(self, place: Place, covered: Callable[[Dot], bool]) -> None:
        """A removal has the tags in its context."""
        spans_of = self.of(place)
        if spans_of:
            left = {pid: _without(spans, covered) for pid, spans in spans_of.items()}
            self.replace(place, {pid: spans for pid, spans in left.items() if spans})

    def forget(self, place: Place, pid: bytes) -> None:
        """The displaced tags of a producer are too old."""
        for generation in (self._older, self._newer):
            if place in generation:
                generation[place].pop(pid, None)

    def of(self, place: Place) -> dict[bytes, Spans]:
        """What is displaced of a stream, by producer."""
        older, newer = self._older.get(place), self._newer.get(place)
        if older is None or newer is None:
            return older or newer or {}
        both = {pid: dict(spans) for pid, spans in older.items()}
        for pid, spans in newer.items():
            _add(both, pid, spans)
        return both

    def prune(self, watermark: Mapping[int, int], vector: Mapping[int, int]) -> None:
        """Forget the older generation if every member has it; ``vector``: what is applied here."""
        if not (self._older or self._newer):
            return
        if all(number <= watermark.get(each, 0) for each, number in self._older_end.items()):
            self._older, self._newer = self._newer, {}
            self._older_end = dict(vector)

    # -- whole states -------------------------------------------------------------------------

    def written(self) -> list[Any]:
        """Everything as plain values; :meth:`read` takes it back."""
        places = dict.fromkeys([*self._older, *self._newer])
        rows: list[Any] = DISPLACED.write({place: self.of(place) for place in places})
        return rows

    def read(self, rows: list[Any]) -> None:
        """Take over what :meth:`written` gave."""
        for place, spans_of in DISPLACED.read(rows).items():
            for pid, spans in spans_of.items():
                _add(self._newer.setdefault(place, {}), pid, spans)


class Side(NamedTuple):
    """What one of two joined states has of a stream: displaced and remembered tags, its vector."""

    spans_of: dict[bytes, Spans]
    shared: Shared
    vector: Mapping[int, int]

    def displaced(self, pid: bytes, dot: Dot) -> bool:
        """Whether a tag of the other side, which this side does not remember, is displaced here."""
        low, high = self.spans_of[pid].get(dot[0], (0, 0))
        return low < dot[1] <= high

    def lowest(self, pid: bytes, replica_id: int) -> int:
        """Removals have taken all tags of a producer up to this number."""
        numbers = [number for each, number in self.shared.dots(pid) if each == replica_id]
        span = self.spans_of.get(pid, {}).get(replica_id)
        if span is not None:
            numbers.append(span[0] + 1)
        return min(numbers) - 1 if numbers else self.vector.get(replica_id, 0)


def join_displaced(one: Side, other: Side) -> dict[bytes, Spans]:
    """Return what is displaced after a join. Call it before the remembered tags are joined.

    What one side remembers and the other has displaced becomes a remembered tag of both: otherwise
    it would look like one that the other side has removed.
    """
    joined: dict[bytes, Spans] = {}
    for pid in {**one.spans_of, **other.spans_of}:
        spans = joined[pid] = {}
        for replica_id in {**one.spans_of.get(pid, {}), **other.spans_of.get(pid, {})}:
            low = max(one.lowest(pid, replica_id), other.lowest(pid, replica_id))
            highs = [side.spans_of.get(pid, {}).get(replica_id, (0, 0))[1] for side in (one, other)]
            if low < max(highs):
                spans[replica_id] = low, max(highs)
    for some, others in ((one, other), (other, one)):
        for pid in others.spans_of:
            for iid, dots in some.shared.tags.get(pid, {}).items():
                kept = {dot: tag for dot, tag in dots.items() if others.displaced(pid, dot)}
                if kept:  # unless newer tags for the same ID have replaced them
                    others.shared.tags_of(pid).setdefault(iid, kept)
    return {pid: spans for pid, spans in joined.items() if spans}


def _add(spans_of: dict[bytes, Spans], pid: bytes, spans: Spans) -> None:
    known = spans_of.setdefault(pid, {})
    for replica_id, (low, high) in spans.items():
        _widen(known, replica_id, low, high)


def _widen(spans: Spans, replica_id: int, low: int, high: int) -> None:
    known = spans.get(replica_id)
    spans[replica_id] = (low, high) if known is None else (min(low, known[0]), max(high, known[1]))


def _without(spans: Spans, covered: Callable[[Dot], bool]) -> Spans:
    """The rows of a table that a removal leaves."""
    left: Spans = {}
    for replica_id, (low, high) in spans.items():
        if not covered((replica_id, high)):
            numbers = range(low + 1, high + 1)
            skipped = bisect_left(numbers, True, key=lambda each: not covered((replica_id, each)))
            left[replica_id] = low + skipped, high
    return left
