"""Entries that this region has processed while another may have accepted the same message.

If a conflict removes such an entry, the remaining entry need not be delivered again. This is
remembered until no conflict of the entry can be resolved any more: When the entry is below the
watermark, every effect without the entry in its context has arrived here. When these effects are
below the watermark, too, every region has resolved the conflicts that follow, and the resolutions
have arrived here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anabranch.stream.ranges import Ranges

__all__ = ["Place", "Processed"]

Place = tuple[int, bytes, bytes]
"""Database, key, group."""


class Processed:
    """By group and by replica ID, the numbers of entries that were acknowledged in this region."""

    __slots__ = ("_leaving", "_leaving_at", "_ranges")

    def __init__(self) -> None:
        self._ranges: dict[tuple[Place, int], Ranges] = {}
        self._leaving: dict[tuple[Place, int], Ranges] = {}  # stable since
        self._leaving_at: dict[int, int] = {}  # what was applied here then

    def __len__(self) -> int:
        """Intervals."""
        return sum(map(len, self._ranges.values())) + sum(map(len, self._leaving.values()))

    def add(self, where: Place, replica_id: int, low: int, high: int) -> None:
        """Record that the numbers above ``low`` up to ``high`` were acknowledged."""
        self._ranges.setdefault((where, replica_id), Ranges()).add(low, high)

    def __contains__(self, entry: tuple[Place, tuple[int, int]]) -> bool:
        where, (replica_id, number) = entry
        return any(
            number in table.get((where, replica_id), ()) for table in (self._ranges, self._leaving)
        )

    def prune(self, watermark: Mapping[int, int], vector: Mapping[int, int]) -> None:
        """Drop what is not needed below the watermark; ``vector``: what is applied here."""
        if self._leaving:
            if any(number > watermark.get(each, 0) for each, number in self._leaving_at.items()):
                return
            self._leaving = {}
        for place, ranges in list(self._ranges.items()):
            done = Ranges([(0, watermark.get(place[1], 0))])
            rest = ranges.without(done)
            if rest == ranges:
                continue
            self._leaving[place] = ranges.without(rest)
            if rest:
                self._ranges[place] = rest
            else:
                del self._ranges[place]
        self._leaving_at = dict(vector)

    def limit(self, most: int) -> None:
        """Keep so many intervals, the newest of each group."""
        while len(self) > most:
            tables = (self._leaving, self._ranges)
            table, place = max(
                ((table, place) for table in tables for place in table),
                key=lambda found: len(found[0][found[1]]),
            )
            edges = table[place].flat()
            table[place] = Ranges.of_flat(edges[len(edges) // 4 * 2 or 2 :])
            if not table[place]:
                del table[place]

    def written(self) -> list[list[Any]]:
        """Everything as plain values; :meth:`read` takes it back."""
        return [[*where, replica_id, ranges.flat()] for (where, replica_id), ranges in self._all()]

    def _all(self) -> Iterator[tuple[tuple[Place, int], Ranges]]:
        for place in {**self._ranges, **self._leaving}:
            ranges = self._ranges.get(place, Ranges()).copy()
            ranges.update(self._leaving.get(place, Ranges()))
            yield place, ranges

    def read(self, written: list[list[Any]]) -> None:
        """Read what :meth:`written` returned; all of it counts as unstable again."""
        for db, key, group, replica_id, edges in written:
            self._ranges[(db, key, group), replica_id] = Ranges.of_flat(edges)
