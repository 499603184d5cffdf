"""Limits for figures, and what comes of comparing. Nothing fails because of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def judge(figures: Iterable[Figure], goals: Mapping[str, Goal]) -> list[Verdict]:
    """Compare figures with their own goals, or with those found by the names of the figures."""
    verdicts = []
    for figure in figures:
        goal = goals.get(figure.name) if figure.at_most is None else Goal(figure.at_most)
        passed = None if goal is None or figure.is_less else goal.holds(figure.value)
        verdicts.append(Verdict(figure, goal, passed))
    return verdicts
