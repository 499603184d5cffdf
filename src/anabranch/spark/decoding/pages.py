"""Reads a stream page by page with XRANGE: for servers whose entries have no positions."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.spark.connection.client import ServerClient
from anabranch.spark.decoding.exports import Ints
from anabranch.spark.decoding.wire_entries import WireEntries

FIRST_PAGE: Final = 100
"""Entries of the first XRANGE; values may be large."""

_PAGE_MAX: Final = 10_000  # larger replies are slower, not quicker
_GROWTH: Final = 10


class ParsedEntries:
    """Entries that hiredis has parsed: each an ID and a flat list of names and values."""

    positions: Ints | None = None

    def __init__(self, reply: Sequence[Sequence[Any]]) -> None:
        """Of a reply of XRANGE, which is not empty."""
        ids = pa.array([entry[0] for entry in reply], pa.binary()).cast(pa.string())
        halves = pc.split_pattern(ids, "-").flatten().cast(pa.uint64())
        # Arrow's own way to numpy imports pandas.
        numbers = np.frombuffer(halves.buffers()[1], np.uint64, len(halves))
        self.ids = numbers[::2].copy(), numbers[1::2].copy()
        words = list(chain.from_iterable([entry[1] for entry in reply]))
        self._names = pa.array(words[::2], pa.binary())
        self._values = pa.array(words[1::2], pa.binary())
        self._ends = np.cumsum([len(entry[1]) // 2 for entry in reply])

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def nbytes(self) -> int:
        """About how many bytes the entries have."""
        return int(self._names.nbytes + self._values.nbytes)

    def values(self, names: Sequence[bytes]) -> list[pa.Array]:
        """For each name the first value of that field, null without one."""
        coded = self._names.dictionary_encode()
        codes = np.frombuffer(coded.indices.buffers()[1], np.int32, len(coded))
        known = {name: code for code, name in enumerate(coded.dictionary.to_pylist())}
        rows = np.repeat(np.arange(len(self)), np.diff(self._ends, prepend=0))
        found = []
        for name in names:
            fields = np.flatnonzero(codes == known.get(name, -1))
            place = np.full(len(self), -1)
            # Of a field that is there twice the first one stays, as the last one in this order.
            place[rows[fields[::-1]]] = fields[::-1]
            found.append(self._values.take(pa.array(place, mask=place < 0)))
        return found

    def fields(self) -> tuple[Ints, pa.Array, pa.Array]:
        """All fields in their order: where each entry's begin (and the end), names, values."""
        return np.concatenate(([0], self._ends)), self._names, self._values


Entries: TypeAlias = WireEntries | ParsedEntries
"""A run of entries of one region, in the order of that region."""

Page = tuple[list[Any] | None, ParsedEntries | None]
"""Reply of XINFO STREAM (None: there is no such stream); entries (None: there are no more)."""


def next_page(count: int, nbytes: int, bytes_max: int) -> int:
    """How many entries to ask for after a page of `count` that had `nbytes`."""
    return max(1, min(count * _GROWTH, _PAGE_MAX, count * bytes_max // max(nbytes, 1)))


def begin_page(
    client: ServerClient, key: bytes, after: str, upto: str, count: int
) -> Callable[[], Page]:
    """Ask for the state of a stream and its first entries after an ID, up to another.

    Returns a function that waits for them; call it before sending anything else. It raises
    `ServerRefused` and `ServerUnreachable`.
    """
    replies = client.begin(
        (("XINFO", "STREAM", key), ("XRANGE", key, f"({after}", upto, "COUNT", count))
    )

    def page() -> Page:
        with _uncollected():
            info, rows = client.checked(replies())
            return info, ParsedEntries(rows) if rows else None

    return page


@contextmanager
def _uncollected() -> Iterator[None]:
    """Switch the garbage collector off for a while.

    A page is ten thousand lists, none of them garbage, and for each thousand Python would search
    all objects that Spark has imported: that took half of the processor time of such a read.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
