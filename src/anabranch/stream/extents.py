"""Room in a file: which parts are taken, and which may be taken again.

Sizes are rounded up to units. What is freed is kept by size; a part that is wanted comes from those
of its size, or is cut from the smallest larger one, or is added at the end. When nothing is taken
any more, the file begins anew.
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
        """Bytes that are taken, in whole units."""

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
        """Give back the part at an offset that :meth:`take` returned for this size."""
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
