"""Where the logs of deleted streams ended, for readers by position.

A reader that comes back after a stream was deleted, and maybe made again, learns from this how many
entries it has missed: a new stream of the key goes on at these positions, so the difference between
two positions is the number of entries between them. Only what is forgotten (after a time, or
because there is too much of it) leaves a difference that says nothing.

Rows are kept in *runs*: the newest one is a dictionary, older ones are packed and never change. So
a million deletions cost little, and the oldest run is dropped as a whole. A row of a key that was
made again stays until then: its next deletion writes a row into a newer run.

Nothing here decides what an effect does: effects say where positions begin. So after a restart the
server may remember a little more, or for longer, than before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from anabranch.keyspace.deferred_free import DeferredFree
from anabranch.keyspace.incarnations import Incarnations
from anabranch.keyspace.packed_table import PackedRows, PackedTable
from anabranch.keyspace.values import Value
from anabranch.metrics.holdings import DICT_SLOT_BYTES, NAME_BYTES
from anabranch.stream.stream import Stream

RUN_KEYS: Final = 1 << 15
"""Deletions after which a run is packed."""

RUNS_MAX: Final = 32
"""The most packed runs of a database: a look-up takes some microseconds in each."""

BYTES_MAX: Final = 128 << 20
"""The most bytes of all databases together: some two million keys of usual length."""

_SHARES: Final = 8
"""A run ends after this part of the time for which it is kept, so its rows live so much longer."""

_HIGHEST: Final = 1 << 62

_SORTED: Final = 2048
_PACKED: Final = 256
"""Keys in one step: about a millisecond."""

_ROW_BYTES: Final = 2 * NAME_BYTES + 16 + DICT_SLOT_BYTES
"""Of a row that is not packed, beside its key."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, int, int, int]]).decode


class LogEnd(NamedTuple):
    """Where the log of one replica ID ended."""

    replica_id: int
    position: int
    """The position that its next entry would have had."""
    known_from: int
    """Every position from here on was that of an entry."""
    floor: int
    """See :attr:`RegionLog.floor`."""


def ends_of(stream: Stream) -> list[LogEnd]:
    """Where the logs of a stream end now; none where a region has never written."""
    base = stream.incarnation
    return [
        LogEnd(replica_id, base + log.next_position, base + log.known_from, log.floor)
        for replica_id, log in stream.logs.items()
        if log.next_position or not replica_id
    ]


def _row_of(thing: bytes | Value) -> bytes | None:
    if type(thing) is Stream:
        ends = ends_of(thing)
        return _encode(ends) if ends else None
    return thing if type(thing) is bytes else None


class _Period:
    """Deletions of some time, which do not change any more."""

    __slots__ = ("ended_ms", "rows", "table")

    def __init__(self, rows: Mapping[bytes, bytes | Value] | None, ended_ms: int) -> None:
        self.rows = rows  # encoded, or deleted values; None when all are packed
        self.table = PackedTable()
        self.ended_ms = ended_ms  # 0: not known yet

    def get(self, key: bytes) -> bytes | None:
        if self.rows is not None:
            thing = self.rows.get(key)
            return None if thing is None else _row_of(thing)
        return self.table.get(key)

    @property
    def size(self) -> int:
        return self.table.size + (0 if self.rows is None else len(self.rows) * _ROW_BYTES)


class LastPositions:
    """The ends of deleted streams of one database."""

    __slots__ = ("_began_ms", "_deferred_free", "_incarnations", "_key_bytes", "_open", "_runs")

    def __init__(self, incarnations: Incarnations, deferred_free: DeferredFree) -> None:
        self._incarnations = incarnations
        self._deferred_free = deferred_free
        self._open: dict[bytes, bytes] = {}
        self._key_bytes = 0  # of the open run
        self._began_ms = 0  # when the open run began; 0: not known yet
        self._runs: list[_Period] = []  # the oldest first

    def move_to(self, incarnations: Incarnations, deferred_free: DeferredFree) -> None:
        """The database is one of another keyspace now."""
        self._incarnations = incarnations
        self._deferred_free = deferred_free

    def __len__(self) -> int:
        """How many rows there are; those of a key in several runs count each."""
        return len(self._open) + sum(
            len(run.table if run.rows is None else run.rows) for run in self._runs
        )

    @property
    def used_bytes(self) -> int:
        """An estimate of the memory of all of this."""
        return (
            len(self._open) * _ROW_BYTES + self._key_bytes + sum([run.size for run in self._runs])
        )

    def of(self, key: bytes) -> list[LogEnd]:
        """Where the logs of a key ended when it was last deleted, as far as that is known."""
        rows = [row for run in self._runs if (row := run.get(key)) is not None]
        if (newest := self._open.get(key)) is not None:
            rows.append(newest)
        found: dict[int, LogEnd] = {}
        for row in rows:
            for end in map(LogEnd._make, _decode(row)):
                known = found.get(end.replica_id)
                if known is None or known.position <= end.position:
                    found[end.replica_id] = end
        return list(found.values())

    def note(self, key: bytes, stream: Stream) -> None:
        """The stream of a key is going to be forgotten."""
        row = _row_of(stream)
        if row is not None:
            self._incarnations.retire(stream)
            self._add(key, row)

    def note_all(self, values: Mapping[bytes, Value]) -> None:
        """Many values are forgotten at once; they must not change any more.

        Streams among very many are noted bit by bit, before the values are freed.
        """
        if len(values) > _SORTED:
            self._close()
            self._keep(_Period(values, 0))
            return
        for key, value in values.items():
            if type(value) is Stream:
                self.note(key, value)

    def _add(self, key: bytes, row: bytes) -> None:
        if key not in self._open:
            self._key_bytes += len(key) + len(row)
        self._open[key] = row
        if len(self._open) >= RUN_KEYS:
            self._close()

    def _close(self, now_ms: int = 0) -> None:
        rows, self._open = self._open, {}
        self._began_ms = self._key_bytes = 0
        if rows:
            self._keep(_Period(rows, now_ms))

    def _keep(self, run: _Period) -> None:
        self._runs.append(run)
        self._deferred_free.defer(self._packing(run))
        while len(self._runs) > RUNS_MAX and self.drop_oldest():
            pass

    def _packing(self, run: _Period) -> Iterator[bool]:
        """Pack a run in short steps."""
        source = run.rows or {}
        keys = iter(source)
        pieces: list[list[bytes]] = []
        while piece := sorted(islice(keys, _SORTED)):
            pieces.append(piece)
            yield True
        ascending = merge(*pieces)
        while some := list(islice(ascending, _PACKED)):
            rows: PackedRows = {}
            for key in some:
                thing = source[key]
                if type(thing) is Stream:
                    self._incarnations.retire(thing)
                if (row := _row_of(thing)) is not None:
                    rows[key] = row
            run.table.update(rows)
            yield True
        run.rows = None

    # -- forgetting ---------------------------------------------------------------------------

    def forget(self, now_ms: int, retention_ms: int) -> None:
        """Drop what is older; 0 keeps everything. Call this regularly, with the wall clock."""
        for run in reversed(self._runs):
            if run.ended_ms:
                break
            run.ended_ms = now_ms
        if self._open:
            self._began_ms = self._began_ms or now_ms
            if retention_ms and now_ms - self._began_ms >= retention_ms // _SHARES:
                self._close(now_ms)
        while retention_ms and self._runs and self._runs[0].ended_ms + retention_ms <= now_ms:
            if not self.drop_oldest():
                return

    def drop_oldest(self) -> bool:
        """Drop the oldest run; False if there is none that is packed."""
        if not self._runs or self._runs[0].rows is not None:
            return False
        del self._runs[0]
        return True

    def join(self, other: LastPositions) -> None:
        """Add what another region remembers; do not use that afterwards."""
        rows = _Period(other._open, 0)
        theirs = [*other._runs, *([rows] if other._open else [])]
        self._runs[:0] = theirs  # what was noted here stays longer
        for run in theirs:
            if run.rows is not None:
                self._deferred_free.defer(self._packing(run))

    # -- snapshots ----------------------------------------------------------------------------

    def written(self) -> list[tuple[int, list[bytes] | Mapping[bytes, bytes | Value]]]:
        """All runs as they are now: when they ended, and chunks of a table or rows.

        :func:`rows_in` takes a page of such rows; :meth:`restore` takes all of it back.
        """
        runs: list[tuple[int, list[bytes] | Mapping[bytes, bytes | Value]]] = [
            (run.ended_ms, run.table.chunks if run.rows is None else run.rows) for run in self._runs
        ]
        return [*runs, (0, self._open.copy())] if self._open else runs

    def written_of(self, keys: Iterable[bytes]) -> list[tuple[int, Mapping[bytes, bytes]]]:
        """The rows of some keys as one run that has not ended, in the form of :meth:`written`."""
        rows = {key: _encode(ends) for key in keys if (ends := self.of(key))}
        return [(0, rows)] if rows else []

    def restore(self, ended_ms: int, rows: PackedRows) -> None:
        """Take rows of a run back: ascending ones if it has ended, or any."""
        for key, row in rows.items():
            for end in map(LogEnd._make, _decode(row)):
                if min(end) < 0 or not end.known_from <= end.position <= _HIGHEST:
                    raise ValueError(f"a log that ended at {end}")
                self._incarnations.raise_above(end.position)
            if not ended_ms:
                self._add(key, row)
        if ended_ms:
            if not self._runs or self._runs[-1].ended_ms != ended_ms:
                self._runs.append(_Period(None, ended_ms))
            self._runs[-1].table.update(rows)


def rows_in(rows: Mapping[bytes, Any]) -> Iterator[PackedRows]:
    """Rows of :meth:`LastPositions.written` in pages, encoded."""
    things = iter(rows.items())
    while some := list(islice(things, _PACKED)):
        yield {key: row for key, thing in some if (row := _row_of(thing)) is not None}
