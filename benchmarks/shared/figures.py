"""What a measurement returns: named figures with a unit, and how samples become one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Points:
    """What a chart draws of a figure: a value for each size, by the name of the server."""

    sizes: list[int]
    values: dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure; `low` and `high` where it is the median of several rounds."""

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    note: str = ""
    is_less: bool = False
    """Measured with less than what the goal speaks of: it proves nothing."""
    at_most: float | None = None
    """Its goal, where that follows from what was measured beside it."""
    points: Points | None = None

    def within(self, at_most: float, points: Points) -> Figure:
        """Return this figure with a goal of its own and with what a chart draws."""
        return replace(self, at_most=at_most, points=points)


def of_rounds(
    name: str, values: Sequence[float], unit: str, note: str = "", *, is_less: bool = False
) -> Figure:
    """Return the median of the values of all rounds, with the lowest and the highest."""
    return Figure(name, statistics.median(values), unit, min(values), max(values), note, is_less)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share (0 to 1) of all values does not exceed."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]
