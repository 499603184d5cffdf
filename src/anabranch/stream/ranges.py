"""Sets of effect numbers, as few intervals: numbers of delivered or acknowledged entries.

Intervals are half-open ``(low, high]``: ``(4, 7]`` are the numbers 5, 6 and 7. Neighbours are
merged, so a set that grows at its end stays one interval.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise

from anabranch.compiling import mypyc_attr


@mypyc_attr(acyclic=True)
class Ranges:
    """Disjoint intervals, ascending, none touching the next."""

    __slots__ = ("highs", "lows")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self.lows: list[int] = []
        self.highs: list[int] = []
        for low, high in pairs:
            self.add(low, high)

    def __bool__(self) -> bool:
        return bool(self.lows)

    def __len__(self) -> int:
        """The count of intervals, not of numbers."""
        return len(self.lows)

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self.lows, number) - 1
        return at >= 0 and number <= self.highs[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.lows, self.highs, strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self.lows == other.lows and self.highs == other.highs

    __hash__ = None  # type: ignore[assignment]  # they change

    def add(self, low: int, high: int) -> None:
        """Add the numbers ``low + 1`` to ``high``; O(1) at the end, a memory move elsewhere."""
        if high <= low:
            return
        lows, highs = self.lows, self.highs
        if not highs or low > highs[-1]:
            lows.append(low)
            highs.append(high)
            return
        first = bisect_left(highs, low)  # the first interval that reaches this one
        stop = bisect_right(lows, high)  # the first one that begins after this one
        if first < stop:
            low = min(low, lows[first])
            high = max(high, highs[stop - 1])
        lows[first:stop] = [low]
        highs[first:stop] = [high]

    def add_numbers(self, numbers: Iterable[int]) -> None:
        """Add single numbers, quickest when they ascend."""
        low = high = -1
        for number in numbers:
            if number == high + 1:
                high = number
                continue
            self.add(low, high)
            low, high = number - 1, number
        self.add(low, high)

    def update(self, other: Ranges) -> None:
        """Add all numbers of another set."""
        for at, low in enumerate(other.lows):  # costs less than to begin an iteration
            self.add(low, other.highs[at])

    def without(self, other: Ranges | None) -> Ranges:
        """The numbers of this set that are not in the other one."""
        if not other:
            return self
        rest = Ranges()
        for low, high in self:
            for gap in gaps((other,), low, high):
                rest.add(*gap)
        return rest

    def copy(self) -> Ranges:
        """An independent copy."""
        twin = Ranges()
        twin.lows = self.lows.copy()
        twin.highs = self.highs.copy()
        return twin

    def end_below(self, number: int) -> int:
        """The greatest end of an interval that is below a number; 0 if there is none."""
        at = bisect_left(self.highs, number) - 1
        return self.highs[at] if at >= 0 else 0

    def flat(self) -> list[int]:
        """``[low, high, low, high, ...]``, for storing."""
        return [edge for pair in self for edge in pair]

    @classmethod
    def of_numbers(cls, numbers: Iterable[int]) -> Ranges:
        """The set of some numbers, which ascend."""
        twin = cls()
        twin.add_numbers(numbers)
        return twin

    @classmethod
    def of_flat(cls, edges: list[int]) -> Ranges:
        """The set that :meth:`flat` has returned in this form."""
        twin = cls()
        twin.lows = edges[::2]
        twin.highs = edges[1::2]
        return twin

    def check(self) -> None:
        """Assert every invariant."""
        edges = self.flat()
        assert all(a < b for a, b in pairwise(edges))


def gaps(sets: Collection[Ranges], low: int, high: int) -> Iterator[tuple[int, int]]:
    """The intervals of ``(low, high]`` that are in none of the sets, ascending.

    The union of the sets is not made: each step looks into each set by bisection.
    """
    while low < high:
        end = low  # of the intervals that contain the next number
        begin = high  # of those above it
        for ranges in sets:
            at = bisect_right(ranges.highs, low)
            if at == len(ranges.lows):
                continue
            if ranges.lows[at] <= low:
                end = max(end, ranges.highs[at])
            else:
                begin = min(begin, ranges.lows[at])
        if end == low:
            yield low, begin
            end = begin
        low = end
