"""How many entries a block has, and their positions and numbers.

What these are says :mod:`anabranch.stream.region_log`. Mostly both run evenly, and then they are
not stored.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from anabranch.compiling import mypyc_attr

_NO_SHIFT: Final = -(1 << 62)  # of a block that stores its numbers; no difference is below 0


@mypyc_attr(acyclic=True)
class BlockNumbers:
    """The part of a :class:`anabranch.stream.block.Block` that numbers its entries."""

    __slots__ = ("_closed_count", "first_position", "numbers", "parts", "positions", "shift")

    def __init__(self, first_position: int, shift: int) -> None:
        self.first_position = first_position
        self.parts: list[bytes] | None = []  # the fragments; None once closed
        self._closed_count = 0  # of entries, once closed
        # Positions relative to the first one, as soon as they are not simply 0, 1, 2 ...
        self.positions: list[int] | None = None
        # The number of each entry, as soon as numbers and positions do not ascend alike. Before,
        # ``shift`` is the difference between number and position, afterwards unlike all of them.
        self.numbers: array[int] | None = None
        self.shift = shift

    @property
    def count(self) -> int:
        """The count of entries, dead or live; does not open the block."""
        if self.parts is not None:
            return len(self.parts)
        return self._closed_count

    def position(self, index: int) -> int:
        """The position of an entry: its rank among all that its region ever added to the key."""
        return self.first_position + (index if self.positions is None else self.positions[index])

    def keep_positions(self) -> None:
        """Store every position, because the next entry does not have the next position."""
        if self.positions is None:
            self.positions = list(range(self.count))

    def number(self, index: int) -> int:
        """Number of an entry, see :mod:`anabranch.stream.region_log`."""
        numbers = self.numbers
        return self.position(index) + self.shift if numbers is None else numbers[index]

    def numbers_of(self, low: int, high: int) -> Sequence[int]:
        """Numbers of the entries ``[low, high)``."""
        if self.numbers is not None:
            return self.numbers[low:high]
        first = self.first_position + self.shift
        if self.positions is None:
            return range(first + low, first + high)
        return [first + offset for offset in self.positions[low:high]]

    def index_above(self, number: int) -> int:
        """Index of the first entry, dead or live, with a greater number; O(log n)."""
        if self.numbers is not None:
            return bisect_right(self.numbers, number)
        offset = number - self.first_position - self.shift
        if self.positions is not None:
            return bisect_right(self.positions, offset)
        return min(max(offset + 1, 0), self.count)

    def keep_numbers(self) -> array[int]:
        """Store every number, because the next entry has another distance to its position."""
        return self.numbers or self.store_numbers(array("Q", self.numbers_of(0, self.count)))

    def store_numbers(self, numbers: array[int]) -> array[int]:
        """Store the number of each entry, instead of their distance to the positions."""
        self.numbers = numbers
        self.shift = _NO_SHIFT
        return numbers
