"""All measurements, in the order in which they are made."""

from __future__ import annotations

from benchmarks.shared.program import Measurement

from . import catching_up, cost, diverging, latency, mixed, tags, traffic, weight


def catalogue() -> list[Measurement]:
    """Return all measurements."""
    return [
        Measurement("lag", latency.steady_lag),
        Measurement("healing", catching_up.healing),
        Measurement("backlog", catching_up.backlog),
        Measurement("cut log", catching_up.cut_log),
        Measurement("returning", catching_up.returning),
        Measurement("alarm", diverging.alarm),
        Measurement("wire", traffic.wire),
        Measurement("causal order", traffic.causal_order),
        Measurement("cost", cost.local_write),
        Measurement("lost peer", latency.lost_peer),
        Measurement("live entries", weight.live_entries),
        Measurement("removed", weight.removed),
        Measurement("held tags", tags.held_tags),
        Measurement("endurance", weight.endurance),
        Measurement("mixed load", mixed.mixed_load, is_extra=True),
    ]
