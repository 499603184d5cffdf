"""Allocates parts of a file, and reuses freed parts.

Sizes are rounded up to units. Freed parts are kept by size. A request gets a freed part of its
size, or a piece of the smallest larger one, or a new part at the end of the file. When no part is
in use any more, the file begins anew.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Extents"]

UNIT: Final = 256
"""Bytes."""


class Extents:
    """The parts of one file."""

    __slots__ = ("_free", "end", "taken")

    def __init__(self) -> None:
        self._free: dict[int, list[int]] = {}  # offsets in units, by size in units
        self.end = 0
        """Where the file ends, in bytes."""
        self.taken = 0
        """Bytes in use, in whole units."""

    def allocate(self, size: int) -> int:
        """Return the offset of a part of at least so many bytes."""
        units = -(-size // UNIT)
        self.taken += units * UNIT
        if units not in self._free:
            larger = [each for each in self._free if each > units]
            if not larger:
                offset = self.end
                self.end += units * UNIT
                return offset
            found = min(larger)
            at = self._pop(found)
            self._free.setdefault(found - units, []).append(at + units)
            return at * UNIT
        return self._pop(units) * UNIT

    def free(self, offset: int, size: int) -> None:
        """Free the part at an offset that :meth:`allocate` returned for this size."""
        units = -(-size // UNIT)
        self.taken -= units * UNIT
        if not self.taken:
            self._free.clear()
            self.end = 0
            return
        self._free.setdefault(units, []).append(offset // UNIT)

    def _pop(self, units: int) -> int:
        offsets = self._free[units]
        at = offsets.pop()
        if not offsets:
            del self._free[units]
        return at
