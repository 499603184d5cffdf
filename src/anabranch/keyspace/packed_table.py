"""A table of many small rows in few objects.

A row of a dictionary takes some hundred bytes beside its contents. Here some dozen rows are one
*chunk*: bytes with a msgpack map of keys and rows. Chunks are ordered by their keys, and a change
replaces the chunk. So a row takes little more than its own bytes, and a look-up some microseconds.
Chunks never change: who keeps a list of them has the table as it was.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from operator import lt
from typing import Any, Final

import msgspec

__all__ = ["ROWS_MAX", "PackedTable", "Rows"]

ROWS_MAX: Final = 32
"""The most rows of a chunk."""

Rows = dict[bytes, Any]
"""Rows by key. Rows of a chunk are still encoded, as :class:`msgspec.Raw`."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[bytes, msgspec.Raw]).decode


class PackedTable:
    """Rows by key; a row is any value that msgpack can hold."""

    __slots__ = ("_chunks", "_first_keys", "_rows")

    def __init__(self) -> None:
        self._first_keys: list[bytes] = []  # of the chunks, ascending
        self._chunks: list[bytes] = []
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[bytes]:
        """All keys, ascending."""
        for rows in self.pages():
            yield from rows

    @property
    def chunks(self) -> list[bytes]:
        """All chunks, in the order of their keys; a copy."""
        return self._chunks[:]

    def get(self, key: bytes) -> bytes | None:
        """The encoded row of a key, or None."""
        if not self._chunks:
            return None
        row = _decode(self._chunks[self._chunk_of(key)]).get(key)
        return None if row is None else bytes(row)

    def pages(self) -> Iterator[Rows]:
        """The rows of one chunk after the other; the table may change between two of them."""
        at = 0
        while at < len(self._chunks):
            first_key = self._first_keys[at]
            yield _decode(self._chunks[at])
            at = bisect_right(self._first_keys, first_key)

    def update(
        self, rows: Mapping[bytes, Any], join: Callable[[bytes, Any], Any] | None = None
    ) -> None:
        """Add rows, or replace them.

        ``join`` makes one row of a known one, which is encoded, and of a new one.
        """
        for at, keys in self._shares(rows):
            known: Rows = _decode(self._chunks[at]) if self._chunks else {}
            before = len(known)
            for key in keys:
                row = rows[key]
                if join is not None and (older := known.get(key)) is not None:
                    row = join(bytes(older), row)
                known[key] = row
            self._replace(at, known, before)

    def remove(self, keys: Collection[bytes]) -> None:
        """Remove the rows of these keys, as far as there are any."""
        if not self._chunks:
            return
        for at, some in self._shares(keys):
            known = _decode(self._chunks[at])
            before = len(known)
            for key in some:
                known.pop(key, None)
            if len(known) < before:
                self._replace(at, known, before)
            if not self._chunks:
                return

    def check(self) -> None:
        """Assert every invariant of the table."""
        keys = list(self)
        assert len(keys) == self._rows
        assert all(map(lt, keys, keys[1:]))
        assert self._first_keys == [next(iter(_decode(chunk))) for chunk in self._chunks]
        assert all(len(_decode(chunk)) <= ROWS_MAX for chunk in self._chunks)

    def _shares(self, keys: Collection[bytes]) -> Iterator[tuple[int, list[bytes]]]:
        """The index of each chunk to which some of these keys belong, and these, ascending.

        The chunk may be replaced before the next one is asked for.
        """
        ascending = sorted(keys)
        low = 0
        while low < len(ascending):
            at = self._chunk_of(ascending[low])
            high = len(ascending)
            if at + 1 < len(self._chunks):
                high = bisect_left(ascending, self._first_keys[at + 1], low)
            yield at, ascending[low:high]
            low = high

    def _chunk_of(self, key: bytes) -> int:
        """The index of the chunk to which a key belongs."""
        return max(bisect_right(self._first_keys, key) - 1, 0)

    def _replace(self, at: int, rows: Rows, before: int) -> None:
        """Put these rows in the place of a chunk that had ``before`` rows."""
        keys = sorted(rows)
        # At the end chunks are filled, because keys often ascend; elsewhere all get equal shares.
        share = ROWS_MAX
        if at + 1 < len(self._chunks):
            pieces = -(-len(keys) // ROWS_MAX)
            share = max(-(-len(keys) // pieces), 1) if pieces else 1
        starts = range(0, len(keys), share)
        self._first_keys[at : at + 1] = [keys[start] for start in starts]
        self._chunks[at : at + 1] = [
            _encode({key: rows[key] for key in keys[start : start + share]}) for start in starts
        ]
        self._rows += len(keys) - before
