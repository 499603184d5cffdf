"""Whole runs from a seed, and the smallest run that fails in the same way as another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from anabranch.simulator.faults import FAULTS, planned
from anabranch.simulator.simulation import Outcome, Simulation


def prepared(
    seed: int, *, regions: int = 3, minutes: float = 5, faults: Iterable[str] = FAULTS
) -> Simulation:
    """The run of a seed, before it begins; of the faults those happen that the seed draws."""
    return Simulation(seed, regions=regions, minutes=minutes, plan=planned(seed, faults))


def simulate(
    seed: int,
    *,
    regions: int = 3,
    minutes: float = 5,
    faults: Iterable[str] = FAULTS,
    on_progress: Callable[[Simulation], None] | None = None,
) -> Outcome:
    """Run a cluster from a seed; the result says whether all checks held."""
    run = prepared(seed, regions=regions, minutes=minutes, faults=faults)
    if on_progress is not None:
        run.on_progress = on_progress
    return run.run()


def smallest(outcome: Outcome, *, regions: int, minutes: float) -> Outcome:
    """Reduce a failed run to the fewest kinds of faults with which it fails in the same way."""
    best = outcome
    left: Sequence[str] = outcome.faults
    for name in outcome.faults:
        fewer = [each for each in left if each != name]
        found = simulate(outcome.seed, regions=regions, minutes=minutes, faults=fewer)
        if found.problem is not None and found.is_like(outcome):
            best, left = found, fewer
    return best
