"""All measurements, in the order in which they are made."""

from __future__ import annotations

from benchmarks.shared.program import Measurement

from . import alone, auditing, reading, serving, starting, streaming, weight, writing


def catalogue() -> list[Measurement]:
    """Return all measurements.

    Starting comes before there is a session, which the others share and which would run beside it.
    """
    return [
        Measurement("start", starting.cold),
        Measurement("without Java", alone.commands),
        Measurement("serving", serving.cost),
        Measurement("stalls", serving.stalls),
        Measurement("reading", reading.batch),
        Measurement("reading more", reading.more),
        Measurement("one column", reading.column),
        Measurement("many streams", reading.many),
        Measurement("shapes", reading.shapes),
        Measurement("casts", reading.casts),
        Measurement("fallback", reading.fallback),
        Measurement("writing", writing.batch),
        Measurement("exactly once", writing.exactly_once),
        Measurement("latency", streaming.latency),
        Measurement("limit", streaming.limit),
        Measurement("audit", auditing.audit_of_two),
        Measurement("memory", weight.while_reading),
        Measurement("ten million", weight.ten_million, is_extra=True),
    ]
