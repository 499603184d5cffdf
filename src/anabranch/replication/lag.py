"""How far regions are behind: of own effects in bytes and in time, of a peer's in time.

A position in the log tells neither. So the ends of own batches are remembered, with the bytes up to
there and the time they were written: those of the latest batches one by one, of older ones for two
batches together, then four, and so on. That is some hundred marks, and an error of a few percent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["MARKS_PER_LEVEL", "OwnMarks", "ReceiveLag"]

MARKS_PER_LEVEL: Final = 64


class _Mark(NamedTuple):
    number: int
    bytes_before: int
    wall_ms: int
    """When the first effect was written that it stands for."""


class OwnMarks:
    """Ends of own batches; what was written before the first one is estimated from the others."""

    def __init__(self, number: int) -> None:
        """From an effect on; earlier ones were written before this process began."""
        self.number = number
        self._first = number
        self._bytes = 0
        self._levels: list[deque[_Mark]] = [deque()]  # a mark of level n stands for 2 ** n batches

    def add(self, last: int, size: int, wall_ms: int) -> None:
        """Another batch was written."""
        mark = _Mark(last, self._bytes, wall_ms)
        self._bytes += size
        self.number = last
        for level in self._levels:
            level.append(mark)
            if len(level) <= MARKS_PER_LEVEL:
                return
            older = level.popleft()
            mark = older._replace(number=level.popleft().number)
        self._levels.append(deque([mark]))

    def after(self, confirmed: int, wall_ms: int) -> tuple[int, float]:
        """Bytes after a number, and seconds since the first effect after it was written."""
        mark = next((mark for mark in self._oldest_first() if mark.number > confirmed), None)
        if mark is None:
            return 0, 0.0
        size = self._bytes - mark.bytes_before
        if confirmed < self._first:
            size += size * (self._first - confirmed) // max(1, self.number - self._first)
        return size, max(0.0, (wall_ms - mark.wall_ms) / 1000)

    def _oldest_first(self) -> Iterator[_Mark]:
        for level in reversed(self._levels):
            yield from level


class ReceiveLag:
    """For how long effects of a peer have been known of here and not been applied.

    One of them is watched at a time, so this is never more than it really is, and grows as long as
    that one does not come.
    """

    def __init__(self) -> None:
        self._replica_id = 0
        self._awaited = 0
        self._since_ms = 0.0

    def told(self, replica_id: int, theirs: int, ours: int, now_ms: float) -> None:
        """The peer has ``theirs`` effects of its replica ID, of which we have applied ``ours``."""
        if replica_id != self._replica_id or ours >= self._awaited:
            self._replica_id = replica_id
            self._awaited = theirs
            self._since_ms = now_ms

    def seconds(self, ours: int, now_ms: float) -> float:
        """Zero if what was watched has been applied."""
        return 0.0 if ours >= self._awaited else max(0.0, (now_ms - self._since_ms) / 1000)
