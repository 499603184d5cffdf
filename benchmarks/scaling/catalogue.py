"""All measurements, in the order in which they are made."""

from __future__ import annotations

from benchmarks.shared.program import Measurement

from . import budget, idle, latency
from .sizes import dimensions


def catalogue() -> list[Measurement]:
    """Return all measurements: one for each thing that grows, then what does not grow."""
    growing = [Measurement(one.name, one.measure) for one in dimensions()]
    return [
        *growing,
        Measurement("latency", latency.at_half_load),
        Measurement("idle", idle.at_rest),
        Measurement("ten million, within the budget", budget.within, is_extra=True),
        Measurement("ten million, beyond the budget", budget.beyond, is_extra=True),
    ]
