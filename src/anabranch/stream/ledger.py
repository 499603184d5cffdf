"""What bulk producers have written: per producer ID the batch it is at, and how far.

Unlike the idempotent IDs of :mod:`anabranch.stream.producer` this needs no window: a producer names
its batch and how many rows of it are in, so one record says whether a repetition adds anything.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["KEEP_MS", "Accepted", "Ledger"]

KEEP_MS = 30 * 24 * 3600 * 1000
"""A record that was not used for so long is dropped."""


class Accepted(NamedTuple):
    """The newest batch of one producer."""

    batch: int
    rows: int
    """How many of its rows are in, from the first on."""
    crc: int
    """CRC-32 of their bytes, in order: tells a repetition with other rows."""
    at_ms: int


class Ledger:
    """The records of one stream, the longest unused first."""

    __slots__ = ("records",)

    def __init__(self) -> None:
        self.records: dict[bytes, Accepted] = {}

    def accept(self, pid: bytes, batch: int, rows: int, crc: int, at_ms: int) -> None:
        """Note progress; forgets what nobody has used for :data:`KEEP_MS`."""
        records = self.records
        records.pop(pid, None)
        records[pid] = Accepted(batch, rows, crc, at_ms)
        while (oldest := next(iter(records))) != pid and records[oldest].at_ms < at_ms - KEEP_MS:
            del records[oldest]

    def copy(self) -> Ledger:
        """An independent copy."""
        other = Ledger()
        other.records = self.records.copy()
        return other
