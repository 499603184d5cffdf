"""Entries that this region has processed while another may have accepted the same message.

If a conflict removes such an entry, the remaining entry need not be delivered again. This is
remembered until the entry is below the watermark: then every effect without the entry in its
context has arrived here, and the conflicts that follow are resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.stream.ranges import Ranges

GroupPlace = tuple[int, bytes, bytes]
"""Database, key, group."""


class Processed:
    """By group and by replica ID, the numbers of entries that were acknowledged in this region."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: dict[tuple[GroupPlace, int], Ranges] = {}

    def __len__(self) -> int:
        """The count of intervals, not of numbers."""
        return sum(map(len, self._ranges.values()))

    def add(self, where: GroupPlace, replica_id: int, low: int, high: int) -> None:
        """Record that the numbers above ``low`` up to ``high`` were acknowledged."""
        self._ranges.setdefault((where, replica_id), Ranges()).add(low, high)

    def __contains__(self, entry: tuple[GroupPlace, tuple[int, int]]) -> bool:
        where, (replica_id, number) = entry
        return number in self._ranges.get((where, replica_id), ())

    def prune(self, watermark: Mapping[int, int]) -> None:
        """Drop what is below the watermark."""
        for place, ranges in list(self._ranges.items()):
            rest = ranges.without(Ranges([(0, watermark.get(place[1], 0))]))
            if rest:
                self._ranges[place] = rest
            else:
                del self._ranges[place]

    def limit(self, most: int) -> None:
        """Keep so many intervals, the newest of each group."""
        ranges = self._ranges
        while len(self) > most:
            place = max(ranges, key=lambda each: len(ranges[each]))
            edges = ranges[place].flat()
            ranges[place] = Ranges.of_flat(edges[len(edges) // 4 * 2 or 2 :])
            if not ranges[place]:
                del ranges[place]

    def written(self) -> list[list[Any]]:
        """Everything as plain values; :meth:`read` takes it back."""
        return [
            [*where, replica_id, ranges.flat()]
            for (where, replica_id), ranges in self._ranges.items()
        ]

    def read(self, written: list[list[Any]]) -> None:
        """Read what :meth:`written` returned."""
        for db, key, group, replica_id, edges in written:
            self._ranges[(db, key, group), replica_id] = Ranges.of_flat(edges)
