"""An inquiry in another region, which takes several messages while a client waits."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.keyspace.last_effects import Place

__all__ = ["DIFFERS", "EQUAL", "IN_FLIGHT", "Inquiry", "Verdict"]

EQUAL = "equal"
DIFFERS = "differs"
IN_FLIGHT = "in-flight"


@dataclass(slots=True)
class Inquiry:
    """Whether it is over, and how it went."""

    is_done: bool = False
    problem: str = ""
    """Why nothing came of it; empty if something did."""

    def fail(self, problem: str) -> None:
        """Nothing came of it."""
        self.problem = problem
        self.is_done = True


@dataclass(slots=True)
class Verdict(Inquiry):
    """How a region's keys compare with ours."""

    keys: dict[Place, str] = field(default_factory=dict)
    """What was found of keys: those that were named, or all but the equal ones."""
    equal: int = 0
    in_flight: int = 0
    """How many of our keys are equal, and on how many some effect was still on its way."""
