"""What bulk producers have written: for each producer ID the present batch and its progress.

Unlike the idempotent IDs of :mod:`anabranch.stream.producer` this needs no window: a producer names
its batch and the count of rows that are written, so one record determines whether a repetition adds
anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from anabranch.compiling import mypyc_attr


class Accepted(NamedTuple):
    """The newest batch of one producer."""

    batch: int
    rows: int
    """The count of its rows that are written, from the first one on."""
    crc: int
    """CRC-32 of the bytes of these rows, in order: detects a repetition with other rows."""
    at_ms: int


@mypyc_attr(acyclic=True)
class BulkLedger:
    """The records of one stream; the record that was unused for the longest time comes first."""

    def __init__(self) -> None:
        self.records: dict[bytes, Accepted] = {}

    def accept(self, pid: bytes, record: Accepted) -> None:
        """Record the newest batch of a producer, with its count of written rows."""
        self.records.pop(pid, None)
        self.records[pid] = record

    def renew(self, records: dict[bytes, Accepted]) -> None:
        """Replace all records, by producer ID."""
        self.records = dict(sorted(records.items(), key=lambda each: (each[1].at_ms, each[0])))

    def unused_since(self, moment_ms: int) -> Iterator[bytes]:
        """Producers whose records were last used before a moment."""
        for pid, record in self.records.items():
            if record.at_ms >= moment_ms:
                break
            yield pid

    def copy(self) -> BulkLedger:
        """An independent copy."""
        other = BulkLedger()
        other.records = self.records.copy()
        return other
