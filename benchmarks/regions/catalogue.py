"""All measurements, in the order in which they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from . import catching_up, cost, latency, traffic, weight
from .figures import Figure


class Measure(Protocol):
    """Runs regions and returns figures; `quick` is with less of everything."""

    def __call__(self, *, quick: bool) -> list[Figure]:
        """Measure."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A name for the command line, and what is done."""

    name: str
    measure: Measure


def catalogue() -> list[Measurement]:
    """Return all measurements."""
    return [
        Measurement("lag", latency.steady_lag),
        Measurement("healing", catching_up.healing),
        Measurement("backlog", catching_up.backlog),
        Measurement("cut log", catching_up.cut_log),
        Measurement("returning", catching_up.returning),
        Measurement("wire", traffic.wire),
        Measurement("causal order", traffic.causal_order),
        Measurement("cost", cost.local_write),
        Measurement("lost peer", latency.lost_peer),
        Measurement("live entries", weight.live_entries),
        Measurement("removed", weight.removed),
        Measurement("endurance", weight.endurance),
    ]
