"""All measurements, in the order in which they are made."""

from __future__ import annotations

from benchmarks.shared.program import Measurement

from . import latency
from .sizes import dimensions


def catalogue() -> list[Measurement]:
    """Return all measurements: one for each thing that grows, then the latencies."""
    growing = [Measurement(one.name, one.measure) for one in dimensions()]
    return [*growing, Measurement("latency", latency.at_half_load)]
