"""What is expected of figures, by their names. Nothing fails because of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .figures import Figure


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit: the highest value that is right, or the lowest."""

    limit: float
    is_lowest: bool = False

    def holds(self, value: float) -> bool:
        """Whether a value is on the right side; the limit itself is."""
        return value >= self.limit if self.is_lowest else value <= self.limit


@dataclass(frozen=True, slots=True)
class Verdict:
    """A figure with its goal, if it has one; `passed` is None where nothing can be said."""

    figure: Figure
    goal: Goal | None
    passed: bool | None


GOALS = {
    "lag, p50": Goal(2.0),
    "lag, p99": Goal(15.0),
    "connected after the link works": Goal(1.0),
    "converged after that, nothing to catch up": Goal(0.1),
    "caught up with a backlog": Goal(8.0),
    "traffic after the log was cut, 1 % of keys changed": Goal(0.02),
    "applied per second of one core, batches of 256": Goal(1_000_000, is_lowest=True),
    "applied per second of one core, one by one": Goal(100_000, is_lowest=True),
    "wire, three sensor fields, batches of 256": Goal(0.6),
    "wire, 150-byte JSON, batches of 256": Goal(0.25),
    "wire, 100 random bytes, batches of 256": Goal(1.06),
    "wire beyond content, three sensor fields, one by one": Goal(160),
    "wire beyond content, 150-byte JSON, one by one": Goal(160),
    "wire beyond content, 100 random bytes, one by one": Goal(160),
    "extra traffic for causal order, three regions writing": Goal(0.03),
    "memory per entry beyond standalone, short streams": Goal(4),
    "memory per entry beyond standalone, one long stream": Goal(2),
    # None; but the heap of a process is never quite as large as it was.
    "memory per removed entry, a peer down": Goal(1),
    "memory per deleted key, a peer down": Goal(200),
    "disk per deleted key, a peer down": Goal(40),
    "first read of a returning region, beyond recovery": Goal(1.0),
}
"""Limits in the unit of the figure."""


def judge(figures: Iterable[Figure]) -> list[Verdict]:
    """Compare figures with their goals."""
    verdicts = []
    for figure in figures:
        goal = GOALS.get(figure.name)
        passed = None if goal is None or figure.is_less else goal.holds(figure.value)
        verdicts.append(Verdict(figure, goal, passed))
    return verdicts
