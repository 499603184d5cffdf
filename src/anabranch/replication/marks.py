"""Marks of deletions that some member may not have on its disk: for how long, and when too many.

Marks cost memory in every region until the last member has them, so an operator has to hear of it
when a member that stays away makes others keep very many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from anabranch.keyspace.replica import Dot, covers

__all__ = ["MarkWatch"]

AGAIN_MS: Final = 60_000.0
"""Too many marks are told of so often."""


class MarkWatch:
    """Looks at the unstable marks of a region again and again. Times are in ms."""

    def __init__(self) -> None:
        self._awaited: dict[int, int] = {}  # what was applied when the oldest mark was seen first
        self._since_ms = 0.0
        self._told_ms: float | None = None  # when we told that there are too many, if there are

    def look(
        self,
        marks: Mapping[Dot, None],
        vector: Mapping[int, int],
        now_ms: float,
        most: int,
        note: Callable[[str, int], None],
    ) -> None:
        """``marks``, the oldest first, are those of a region that has applied ``vector``.

        ``note`` is told when there are more than ``most`` (0 for any number), once a minute while
        it is so, and when it is not any more, with a tenth to spare.
        """
        oldest = next(iter(marks), None)
        if oldest is None or not covers(self._awaited, oldest):
            self._awaited, self._since_ms = dict(vector), now_ms
        if most and len(marks) > most:
            if self._told_ms is None or now_ms - self._told_ms >= AGAIN_MS:
                self._told_ms = now_ms
                note("many_marks", len(marks))
        elif self._told_ms is not None and (not most or len(marks) * 10 <= most * 9):
            self._told_ms = None
            note("fewer_marks", len(marks))

    def oldest_ms(self, marks: Mapping[Dot, None], now_ms: float) -> float:
        """For how long the oldest mark has been there, as far as this process has seen it."""
        return now_ms - self._since_ms if marks else 0.0
