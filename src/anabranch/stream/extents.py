"""Allocates parts of a file, and reuses freed parts.

Sizes are rounded up to units. Freed parts are joined with free neighbours, and kept by size; a free
part at the end is cut off. A request gets a freed part of its size, or a piece of the smallest
larger one, or a new part at the end of the file.
"""

from __future__ import annotations

from typing import Final

UNIT: Final = 256
"""Bytes."""


class Extents:
    """The used and the free parts of one file."""

    __slots__ = ("_by_end", "_by_size", "_by_start", "_end", "taken")

    def __init__(self) -> None:
        # Free parts, all in units: no two of them touch, and none is at the end.
        self._by_start: dict[int, int] = {}  # sizes
        self._by_end: dict[int, int] = {}  # starts
        self._by_size: dict[int, dict[int, None]] = {}  # starts
        self._end = 0
        self.taken = 0
        """Bytes in use, in whole units."""

    @property
    def end(self) -> int:
        """Where the last part in use ends, in bytes."""
        return self._end * UNIT

    def allocate(self, size: int) -> int:
        """Return the offset of a part of at least so many bytes."""
        units = -(-size // UNIT)
        self.taken += units * UNIT
        found = units if units in self._by_size else self._smallest_above(units)
        if not found:
            start = self._end
            self._end += units
            return start * UNIT
        start, _ = self._by_size[found].popitem()
        self._remove(start, found)
        if found > units:
            self._add(start + units, found - units)
        return start * UNIT

    def free(self, offset: int, size: int) -> None:
        """Free the part at an offset that :meth:`allocate` returned for this size."""
        units = -(-size // UNIT)
        self.taken -= units * UNIT
        start = offset // UNIT
        after = self._by_start.get(start + units)
        if after is not None:
            self._remove(start + units, after)
            units += after
        before = self._by_end.get(start)
        if before is not None:
            self._remove(before, start - before)
            units += start - before
            start = before
        if start + units == self._end:
            self._end = start
        else:
            self._add(start, units)

    def _smallest_above(self, units: int) -> int:
        return min((each for each in self._by_size if each > units), default=0)

    def _add(self, start: int, units: int) -> None:
        self._by_start[start] = units
        self._by_end[start + units] = start
        self._by_size.setdefault(units, {})[start] = None

    def _remove(self, start: int, units: int) -> None:
        del self._by_start[start], self._by_end[start + units]
        starts = self._by_size[units]
        starts.pop(start, None)
        if not starts:
            del self._by_size[units]
