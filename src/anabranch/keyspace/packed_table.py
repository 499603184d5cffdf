"""A table of many small rows in few objects.

A row of a dictionary takes some hundred bytes beside its contents. Here some dozen rows are one
*chunk*: a zstd frame of a msgpack map of keys and rows. Chunks are ordered by their keys, and a
change replaces the chunk. So a row takes less than its own bytes, and a look-up some microseconds.
Chunks never change: who keeps a list of them has the table as it was.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from operator import lt
from sys import getsizeof
from typing import Final

import msgspec

from anabranch import zstd

ROWS_MAX: Final = 32
"""The most rows of a chunk."""

_LEVEL: Final = -1
"""Of zstd: rows resemble one another, so the fastest level is enough."""

_PAGES: Final = 40
"""Chunks that a slice of a :class:`Sweep` examines."""

PackedRows = dict[bytes, bytes]
"""Rows by key."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[bytes, bytes]).decode
_compressor: Final = zstd.FrameCompressor(_LEVEL)


def map_of(chunk: bytes) -> bytes:
    """The msgpack map of a chunk."""
    return zstd.opened(chunk)


def _rows_of(chunk: bytes) -> PackedRows:
    return _decode(map_of(chunk))


def rows_in_chunk(chunk: bytes) -> PackedRows:
    """The rows of a chunk that another region may have made; ValueError if it is none."""
    try:
        rows = _decode(zstd.expanded(chunk))
    except (zstd.ZstdError, msgspec.DecodeError) as problem:
        raise ValueError(f"not a chunk of a table: {problem}") from None
    return rows


def _chunk_of(rows: PackedRows) -> bytes:
    return _compressor.compress(_encode(rows))


def _size_of(first_keys: list[bytes], chunks: list[bytes]) -> int:
    return sum(map(getsizeof, first_keys)) + sum(map(getsizeof, chunks))


class PackedTable:
    """Rows by key; a row is bytes."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of all chunks and first keys."""
        self._first_keys: list[bytes] = []  # of the chunks, ascending
        self._chunks: list[bytes] = []
        self._counts: list[int] = []  # of their rows
        self._rows = 0  # all of these

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[bytes]:
        """All keys, ascending."""
        for rows in self.pages():
            yield from rows

    @property
    def first(self) -> bytes | None:
        """The least key, None if there is none."""
        return self._first_keys[0] if self._chunks else None

    @property
    def chunks(self) -> list[bytes]:
        """All chunks, in the order of their keys; a copy."""
        return self._chunks[:]

    def chunks_of(self, keys: Collection[bytes]) -> list[tuple[bytes, list[bytes]]]:
        """The chunks that have these keys, if any has them, each with its share of the keys."""
        if not self._chunks:
            return [(_chunk_of({}), list(keys))] if keys else []
        return [(self._chunks[at], some) for at, some in self._shares(keys)]

    def get(self, key: bytes) -> bytes | None:
        """The row of a key, or None."""
        if not self._chunks:
            return None
        rows = map_of(self._chunks[self._index_of(key)])
        return _decode(rows).get(key) if key in rows else None

    def pages(self, last: bytes | None = None) -> Iterator[PackedRows]:
        """The rows of one chunk after the other, ascending; those behind a key if one is given.

        The table may change between two of them; what is there all the time is seen once.
        """
        at = 0 if last is None else self._index_of(last)
        while at < len(self._chunks):
            chunk = self._chunks[at]
            rows = _rows_of(chunk)
            if last is not None and self._first_keys[at] <= last:
                rows = {key: row for key, row in rows.items() if key > last}
            if rows:
                last = next(reversed(rows))
                yield rows
                at = self._index_of(last)
                if at < len(self._chunks) and self._chunks[at] is not chunk:
                    continue
            at += 1

    def update(
        self, rows: Mapping[bytes, bytes], join: Callable[[bytes, bytes], bytes] | None = None
    ) -> None:
        """Add rows, or replace them; ``join`` makes one row of a known one and of a new one."""
        for at, keys in self._shares(rows):
            known: PackedRows = _rows_of(self._chunks[at]) if self._chunks else {}
            for key in keys:
                row = rows[key]
                if join is not None and (older := known.get(key)) is not None:
                    row = join(older, row)
                known[key] = row
            self._replace(at, known)

    def remove(self, keys: Collection[bytes]) -> None:
        """Remove the rows of these keys, as far as there are any."""
        if not self._chunks:
            return
        for at, some in self._shares(keys):
            known = _rows_of(self._chunks[at])
            before = len(known)
            for key in some:
                known.pop(key, None)
            if len(known) < before:
                self._replace(at, known)
            if not self._chunks:
                return

    def drop_before(self, key: bytes) -> None:
        """Drop the first chunks, as far as all their keys are below a key."""
        count = len(self._chunks)
        if count and next(reversed(_rows_of(self._chunks[-1]))) >= key:
            count = self._index_of(key)
        self.drop_first(count)

    def drop_first(self, count: int) -> None:
        """Drop so many of the first chunks."""
        self.size -= _size_of(self._first_keys[:count], self._chunks[:count])
        self._rows -= sum(self._counts[:count])
        del self._first_keys[:count], self._chunks[:count], self._counts[:count]

    def check(self) -> None:
        """Assert every invariant of the table."""
        keys = list(self)
        assert len(keys) == self._rows
        assert self._counts == [len(_rows_of(chunk)) for chunk in self._chunks]
        assert all(map(lt, keys, keys[1:]))
        assert self._first_keys == [next(iter(_rows_of(chunk))) for chunk in self._chunks]
        assert all(len(_rows_of(chunk)) <= ROWS_MAX for chunk in self._chunks)
        assert self.size == _size_of(self._first_keys, self._chunks)

    def _shares(self, keys: Collection[bytes]) -> Iterator[tuple[int, list[bytes]]]:
        """The index of each chunk to which some of these keys belong, and these, ascending.

        The chunk may be replaced before the next one is asked for.
        """
        ascending = sorted(keys)
        low = 0
        while low < len(ascending):
            at = self._index_of(ascending[low])
            high = len(ascending)
            if at + 1 < len(self._chunks):
                high = bisect_left(ascending, self._first_keys[at + 1], low)
            yield at, ascending[low:high]
            low = high

    def _index_of(self, key: bytes) -> int:
        """The index of the chunk to which a key belongs."""
        return max(bisect_right(self._first_keys, key) - 1, 0)

    def _replace(self, at: int, rows: PackedRows) -> None:
        """Put these rows in the place of a chunk."""
        keys = sorted(rows)
        # At the end chunks are filled, because keys often ascend; elsewhere all get equal shares.
        share = ROWS_MAX
        if at + 1 < len(self._chunks):
            pieces = -(-len(keys) // ROWS_MAX)
            share = max(-(-len(keys) // pieces), 1) if pieces else 1
        starts = range(0, len(keys), share)
        first_keys = [keys[start] for start in starts]
        chunks = [
            _chunk_of({key: rows[key] for key in keys[start : start + share]}) for start in starts
        ]
        self.size += _size_of(first_keys, chunks)
        self.size -= _size_of(self._first_keys[at : at + 1], self._chunks[at : at + 1])
        self._first_keys[at : at + 1] = first_keys
        self._chunks[at : at + 1] = chunks
        self._rows += len(keys) - sum(self._counts[at : at + 1])
        self._counts[at : at + 1] = [min(share, len(keys) - start) for start in starts]


class Sweep:
    """Looks at all rows of tables, in slices, whenever something has changed for them."""

    def __init__(self, sweep: Callable[[], Iterator[None]]) -> None:
        """``sweep`` examines one chunk after the other, and yields after each."""
        self._sweep = sweep
        self._is_due = False  # since the present round began
        self._steps: Iterator[None] | None = None  # of the present round

    def begin(self) -> None:
        """Begin a round, after the present one."""
        self._is_due = True

    def go_on(self) -> None:
        """Do a slice of the present round."""
        if self._steps is None and self._is_due:
            self._is_due = False
            self._steps = self._sweep()
        if self._steps is not None and sum(1 for _ in islice(self._steps, _PAGES)) < _PAGES:
            self._steps = None
