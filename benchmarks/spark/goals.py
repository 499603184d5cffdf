"""What is expected of figures, by their names."""

from __future__ import annotations

from benchmarks.shared.goals import Goal

GOALS = {
    "batch read, typed, 1 partition": Goal(6.0, is_lowest=True),
    "batch read, typed, 2 partitions": Goal(8.0, is_lowest=True),
    "batch read, fields, 1 partition": Goal(4.0, is_lowest=True),
    "batch read, fields, 2 partitions": Goal(5.0, is_lowest=True),
    "batch read of more, typed, 1 partition": Goal(6.0, is_lowest=True),
    "batch read of more, typed, 2 partitions": Goal(8.0, is_lowest=True),
    "batch read of more, fields, 1 partition": Goal(4.0, is_lowest=True),
    "batch read of more, fields, 2 partitions": Goal(5.0, is_lowest=True),
    "batch read, one column, 2 partitions": Goal(8.0, is_lowest=True),
    "batch read, typed, beside tuples": Goal(10.0, is_lowest=True),
    "batch read of many streams": Goal(2.0),
    "batch read, 8 optional fields": Goal(1.0, is_lowest=True),
    "batch read, 10 optional fields": Goal(1.0, is_lowest=True),
    "batch read, 20 optional fields": Goal(1.0, is_lowest=True),
    "processor time, three of 5,000 names": Goal(1.5),
    "processor time, 10 % bad values": Goal(3.0),
    "batch read of Redis": Goal(1.0, is_lowest=True),
    "sink with ledger, 1 partition": Goal(6.9, is_lowest=True),
    "sink with ledger, 2 partitions": Goal(8.0, is_lowest=True),
    "exactly once beside not": Goal(0.9, is_lowest=True),
    "server CPU of an exported entry": Goal(1.0),
    "longest wait of others, exporting": Goal(10.0),
    "longest wait of others, importing": Goal(10.0),
    "from XADD through a query, p50": Goal(250.0),
    "from XADD through a query, p95": Goal(500.0),
    "CPU of an idle query": Goal(2.0),
    "commands of an idle query": Goal(10.0),
    "maxEntriesPerTrigger, per batch": Goal(5.0),
    "audit of two regions": Goal(5.0),
    "first result of a program": Goal(12.0),
    "archive without Java": Goal(3.0),
    "verify without Java": Goal(3.0),
    "compact without Java": Goal(3.0),
    # Ten times the entries; a heap is never quite as large as it was.
    "memory of a longer read": Goal(1.25),
}
"""Limits in the unit of the figure."""
