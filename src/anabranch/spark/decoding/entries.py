"""Runs of entries, and those that hiredis has parsed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.spark.decoding.exports import Ints


class Entries(Protocol):
    """A run of entries of one region, in the order of that region."""

    ms: npt.NDArray[np.uint64]
    seq: npt.NDArray[np.uint64]
    positions: Ints | None

    def __len__(self) -> int:
        """How many entries."""

    @property
    def nbytes(self) -> int:
        """About how many bytes they have."""

    def values(self, names: Sequence[bytes]) -> list[pa.Array]:
        """For each name a binary array: the first value of that field, null without one."""

    def fields(self) -> tuple[Ints, pa.Array, pa.Array]:
        """All fields in their order: where each entry's begin (and the end), names, values."""


class ParsedEntries:
    """Entries that hiredis has parsed: each a flat list of names and values."""

    def __init__(
        self,
        ms: npt.NDArray[np.uint64],
        seq: npt.NDArray[np.uint64],
        positions: Ints | None,
        rows: list[list[bytes]],
    ) -> None:
        """`rows` has one flat list for each ID."""
        self.ms = ms
        self.seq = seq
        self.positions = positions
        self._rows = rows

    @classmethod
    def of_xrange(cls, reply: Sequence[Sequence[Any]]) -> ParsedEntries:
        """From a reply of XRANGE: IDs and flat lists."""
        ids = [entry[0].split(b"-") for entry in reply]
        return cls(
            np.array([int(ms) for ms, _ in ids], np.uint64),
            np.array([int(seq) for _, seq in ids], np.uint64),
            None,
            [entry[1] for entry in reply],
        )

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        """About how many bytes the entries have."""
        return sum(sum(map(len, row)) for row in self._rows)

    def values(self, names: Sequence[bytes]) -> list[pa.Array]:
        """For each name a binary array: the first value of that field, null without one."""
        # Of a field that is there twice the first one stays, as the last one in this order.
        rows = [dict(zip(row[-2::-2], row[::-2], strict=True)) for row in self._rows]
        return [pa.array([row.get(name) for row in rows], pa.binary()) for name in names]

    def fields(self) -> tuple[Ints, pa.Array, pa.Array]:
        """All fields in their order: where each entry's begin (and the end), names, values."""
        offsets = np.zeros(len(self._rows) + 1, np.int64)
        np.cumsum([len(row) // 2 for row in self._rows], out=offsets[1:])
        return (
            offsets,
            pa.array([name for row in self._rows for name in row[::2]], pa.binary()),
            pa.array([value for row in self._rows for value in row[1::2]], pa.binary()),
        )
