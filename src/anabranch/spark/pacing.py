"""Rows written at the pace of the times in their IDs, faster or slower by a factor.

All rows pass through one task in the order of their IDs, which holds each back until it is due. The
clock starts at the first row that is not there yet: a run that goes on for one that died does not
wait again for what that one wrote.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from anabranch.spark.client import Client, connect
from anabranch.spark.identity import Identity
from anabranch.spark.options import WriteOptions
from anabranch.spark.sink import batch_writer

__all__ = ["PACE", "PacedSink", "Present", "paced"]

PACE: Final = "pace"
"""The column with the time of a row's ID in milliseconds, a double; it is not written."""

_SPEED: Final = "speed"
_TICK_S: Final = 0.01  # rows that are due within it go together


@dataclass(frozen=True, slots=True)
class Present:
    """What a stream has already of the rows that are about to come."""

    until_ms: float = -np.inf
    """All rows up to this time."""
    rows: int = 0
    """So many rows at the beginning."""


def paced(
    batches: Iterable[pa.RecordBatch],
    speed: float,
    present: Callable[[str], Present],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """The rows of `batches`, in their order, each when it is due.

    Rows have a column ``stream`` and one called `PACE`, which does not decrease. `speed`: seconds
    of that in one second. `present` is asked once for each stream.
    """
    known: dict[str, Present] = {}
    passed: defaultdict[str, int] = defaultdict(int)
    start: tuple[float, float] | None = None
    latest = -np.inf
    for batch in batches:
        if not batch.num_rows:
            continue
        due = batch.column(PACE).to_numpy(zero_copy_only=False).copy()
        streams = batch.column("stream").dictionary_encode()
        codes = streams.indices.to_numpy(zero_copy_only=False)
        for code, name in enumerate(streams.dictionary.to_pylist()):
            if name not in known:
                known[name] = present(name)
            rows = np.flatnonzero(codes == code)
            due[rows[due[rows] <= known[name].until_ms]] = -np.inf
            due[rows[: max(0, known[name].rows - passed[name])]] = -np.inf
            passed[name] += len(rows)
        due = np.maximum.accumulate(np.maximum(due, latest))  # whatever is there, order stays
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


class PacedSink(DataSource):
    """``format("anabranch-paced")``: the batch sink, with option ``speed`` and column `PACE`."""

    @classmethod
    def name(cls) -> str:
        """The word for ``format``."""
        return "anabranch-paced"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A batch write of one partition."""
        given = {name: value for name, value in self.options.items() if name.lower() != _SPEED}
        written = StructType([each for each in schema.fields if each.name != PACE])
        return _PacedWriter(given, written, overwrite, float(self.options[_SPEED]))


class _PacedWriter(DataSourceArrowWriter):
    def __init__(
        self, given: Mapping[str, str], schema: StructType, overwrite: bool, speed: float
    ) -> None:
        self._options = WriteOptions.parse(given)
        self._inner = batch_writer(self._options, schema, overwrite)
        self._speed = speed

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the partition, in time."""
        task = Identity.of_task(self._options, "").task.encode()

        def present(stream: str) -> Present:
            with connect(self._options.server) as client:
                return _present(client, stream, None if self._options.preserve_ids else task)

        return self._inner.write(paced(iterator, self._speed, present))

    def commit(self, messages: list[Any]) -> None:
        """As the batch sink does."""
        self._inner.commit(messages)

    def abort(self, messages: list[Any]) -> None:
        """As the batch sink does."""
        self._inner.abort(messages)


def _present(client: Client, stream: str, task: bytes | None) -> Present:
    """By the newest ID, or by the ledger's record of this task."""
    if task is None:
        newest = client.command("XREVRANGE", stream, "+", "-", "COUNT", 1, repeatable=True)
        return Present(until_ms=float(newest[0][0].partition(b"-")[0])) if newest else Present()
    if not client.has_bulk or not client.command("EXISTS", stream, repeatable=True):
        return Present()
    for record in client.command("AB.LEDGER", stream, repeatable=True):
        if record[0] == task:
            return Present(rows=record[2])
    return Present()
