"""What is expected of figures, by their names."""

from __future__ import annotations

from benchmarks.shared.goals import Goal

GOALS = {
    "lag, p50": Goal(2.0),
    "lag, p99": Goal(15.0),
    "connected after the link works": Goal(1.0),
    "converged after that, nothing to catch up": Goal(0.1),
    "caught up with a backlog": Goal(8.0),
    "traffic after the log was cut, 1 % of keys changed": Goal(0.02),
    "CPU of applying an entry, depth 1": Goal(1.0),
    "CPU of applying an entry, depth 256": Goal(1.0),
    "XADD p99 with a dead peer against none": Goal(1.2),
    "XADD p99 with a peer that stands still against none": Goal(1.2),
    "from divergence to alarm": Goal(2),
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
    "memory after many adds and deletes": Goal(1.1),
    "longest wait under mixed load": Goal(20.0),
    "first read of a returning region, beyond recovery": Goal(1.0),
}
"""Limits in the unit of the figure."""
