"""Work for a client that waits for its end: an inquiry in another region, or a snapshot."""

from __future__ import annotations

from msgspec import Struct, field

from anabranch.keyspace.last_effects import Place

EQUAL = "equal"
DIFFERS = "differs"
IN_FLIGHT = "in-flight"


class Inquiry(Struct):
    """Whether the inquiry is over, and its result."""

    is_done: bool = False
    problem: str = ""
    """The error reply if the inquiry has failed; empty if it has not."""

    def end(self, problem: str = "") -> None:
        """End the inquiry, as failed if there is a problem."""
        self.problem = problem
        self.is_done = True


class Verdict(Inquiry):
    """The result of comparing the keys of a region with the own ones."""

    keys: dict[Place, str] = field(default_factory=dict)
    """The results of single keys: of all named keys, or of those that are not equal."""
    equal: int = 0
    in_flight: int = 0
    """How many keys are equal, and how many were in flight."""
