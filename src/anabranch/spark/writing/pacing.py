"""Delays rows until they are due by the times in a column, for option ``speed``.

The clock starts at the first row that the stream lacks: a task that continues a failed one does not
wait again for the rows of that one.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from anabranch.spark.connection.client import connect
from anabranch.spark.options import WriteOptions
from anabranch.spark.writing.layout import PACE

_TICK_S: Final = 0.01  # rows that are due within this time are written together


@dataclass(frozen=True, slots=True)
class Present:
    """The rows that a stream has already."""

    until_ms: float = -np.inf
    """All rows up to this time."""
    rows: int = 0
    """So many rows at the beginning."""


def paced(
    batches: Iterable[pa.RecordBatch],
    speed: float,
    present: Callable[[str, str], Present],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    lane: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of `batches`, in their order, each when it is due.

    Rows have a column ``stream`` and one called `PACE`, which does not decrease. `speed`: seconds
    of that in one second. `present` is asked once for each stream and each value of column `lane`
    in it; without one that is empty.
    """
    known: dict[tuple[str, str], Present] = {}
    passed: defaultdict[tuple[str, str], int] = defaultdict(int)
    start: tuple[float, float] | None = None
    latest = -np.inf
    for batch in batches:
        if not batch.num_rows:
            continue
        due = batch.column(PACE).to_numpy(zero_copy_only=False).copy()
        for place, rows in _by_place(batch, lane):
            if place not in known:
                known[place] = present(*place)
            due[rows[due[rows] <= known[place].until_ms]] = -np.inf
            due[rows[: max(0, known[place].rows - passed[place])]] = -np.inf
            passed[place] += len(rows)
        due = np.maximum.accumulate(np.maximum(due, latest))  # keeps the order in any case
        latest = due[-1]
        rest = batch.drop_columns([PACE])
        at = 0
        while at < len(due):
            if start is None and due[at] > -np.inf:
                start = now(), float(due[at])
            reached = -np.inf if start is None else start[1] + (now() - start[0]) * 1000 * speed
            stop = int(np.searchsorted(due, reached, side="right"))
            if stop > at:
                yield rest.slice(at, stop - at)
                at = stop
            else:
                sleep(max(_TICK_S, float(due[at] - reached) / 1000 / speed))


def _by_place(batch: pa.RecordBatch, lane: str | None) -> Iterator[tuple[tuple[str, str], Any]]:
    """The rows of each stream and lane, by number."""
    names = ["stream"] if lane is None else ["stream", lane]
    coded = [batch.column(name).dictionary_encode() for name in names]
    codes = np.zeros(batch.num_rows, np.int64)
    for each in coded:
        codes = codes * len(each.dictionary) + each.indices.to_numpy(zero_copy_only=False)
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        first = [batch.column(name)[int(rows[0])].as_py() for name in names]
        yield (first[0], "" if lane is None else first[1]), rows


def present_rows(options: WriteOptions, producer: str, stream: str, lane: str) -> Present:
    """The rows that the server has, by the newest ID or by the ledger's record of a producer."""
    with connect(options.server) as client:
        if options.preserve_ids:
            newest = client.command("XREVRANGE", stream, "+", "-", "COUNT", 1, repeatable=True)
            return Present(until_ms=float(newest[0][0].partition(b"-")[0])) if newest else Present()
        if client.has_bulk:
            name = producer if options.lane_column is None else f"{producer}/{lane}"
            (records,) = client.ask([("AB.LEDGER", stream)])
            for record in records or ():
                if record[0] == name.encode():
                    return Present(rows=record[2])
    return Present()
