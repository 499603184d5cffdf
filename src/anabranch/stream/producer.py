"""Idempotent producers: which (producer ID, idempotent ID) pairs a stream remembers.

Per producer an insertion-ordered table of idempotent IDs, bounded by count (``maxsize``) and by
wall-clock age (``duration_s``). Age counts from insertion, not from the entry's ID as in Redis, so
one far-future ID does not make the stream remember for ever; and an ID past its age is unknown at
look-up even before :meth:`Producers.expired` has swept it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from anabranch.compiling import mypyc_attr

DURATION_DEFAULT_S = 100
DURATION_MAX_S = 86_400
MAXSIZE_DEFAULT = 100
MAXSIZE_MAX = 10_000

_Table = dict[bytes, tuple[int, int]]  # iid -> (entry ID, inserted at ms), oldest first


@mypyc_attr(acyclic=True)
class Producers:
    """The producers of one stream and the two lifetime counters XINFO shows."""

    def __init__(self, duration_s: int, maxsize: int) -> None:
        self.duration_s = duration_s
        self.maxsize = maxsize
        self.tables: dict[bytes, _Table] = {}
        self.tracked = 0
        self.iids_added = 0
        self.duplicates = 0
        self.displaced = 0  # pairs that newer ones displaced since a table was last copied

    def find(self, pid: bytes, iid: bytes, now_ms: int) -> int | None:
        """ID of the entry this pair produced, or None when unknown or too old."""
        table = self.tables.get(pid)
        if table is None:
            return None
        known = table.get(iid)
        if known is None or known[1] + self.duration_s * 1000 <= now_ms:
            return None
        return known[0]

    def remember(self, pid: bytes, iid: bytes, entry_id: int, inserted_ms: int) -> bytes | None:
        """Store a pair as the newest of its producer; returns the displaced pair, if any."""
        table = self.tables.get(pid)
        if table is None:
            table = self.tables[pid] = {}
        if iid in table:  # an expired one may still be there
            del table[iid]
        else:
            self.tracked += 1
        table[iid] = (entry_id, inserted_ms)
        self.iids_added += 1
        if len(table) > self.maxsize:
            for oldest in table:  # machine code takes a fifth of the time of next(iter())
                del table[oldest]
                self.tracked -= 1
                self.displaced += 1
                if self.displaced << 1 > self.maxsize:
                    # A table keeps the places of removed pairs, and the search for its oldest
                    # pair steps over them. A copy has no such places.
                    self.displaced = 0
                    self.tables[pid] = dict(table)
                return oldest
        return None

    def restore(self, pid: bytes, iid: bytes, entry_id: int, inserted_ms: int) -> None:
        """Store a pair of a payload; it was counted when it was added."""
        self.tables.setdefault(pid, {})[iid] = (entry_id, inserted_ms)
        self.tracked += 1

    def configure(self, duration_s: int, maxsize: int) -> None:
        """Change the limits; a change forgets all pairs, as in Redis."""
        if (duration_s, maxsize) != (self.duration_s, self.maxsize):
            self.duration_s = duration_s
            self.maxsize = maxsize
            self.tables.clear()
            self.tracked = 0

    def expired(self, pid: bytes, now_ms: int) -> int:
        """How many of a producer's oldest pairs are past their age."""
        oldest_ms = now_ms - self.duration_s * 1000
        count = 0
        for _, inserted_ms in self.tables.get(pid, {}).values():
            if inserted_ms > oldest_ms:
                break
            count += 1
        return count

    def drop_oldest(self, pid: bytes, count: int) -> None:
        """Drop the ``count`` oldest pairs of a producer, and a producer without pairs."""
        table = self.tables[pid]
        for iid in list(table)[:count]:
            del table[iid]
        self.tracked -= count
        if not table:
            del self.tables[pid]

    def check(self) -> None:
        """Assert every invariant."""
        assert self.tracked == sum(map(len, self.tables.values()))
        assert all(0 < len(table) <= self.maxsize for table in self.tables.values())


# -- bulk producers -------------------------------------------------------------------------------
#
# What bulk producers have written: for each producer ID the present batch and its progress.
#
# Unlike the idempotent IDs above this needs no window: a producer
# names its batch and the count of rows that are written, so one record determines whether a
# repetition adds anything.


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
