"""Tables into streams: the writers that Spark runs, and who a task is.

What decides between exactly once and at least once is a task's *identity*: the query, the batch and
the partition, which are the same in every attempt of the task and after every restart from the
checkpoint. With it the stream's ledger (`ledger`) or its idempotent producers (`adding`) recognise
rows that came before.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from anabranch.spark.adding import Adder, ByColumn, ByContent, ById, ByPosition, Marks, Unmarked
from anabranch.spark.client import Client, connect
from anabranch.spark.encode import Layout, Rows, encode, runs_by_stream
from anabranch.spark.ledger import Ledger, WriteFailed
from anabranch.spark.options import OptionError, WriteOptions
from anabranch.spark.task import Task

__all__ = ["Identity", "Written", "batch_writer", "stream_writer"]

_BATCH_BYTES_MAX: Final = 128 << 20  # Arrow's offsets have 31 bits, and fields add to every row
_SORTED_ROWS: Final = 10_000


def batch_writer(
    options: Mapping[str, str] | WriteOptions, schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of ``df.write``; raises `OptionError` and `EncodeError`."""
    if overwrite:
        raise OptionError(
            'mode("overwrite") would have to delete the stream first: delete the key yourself, and '
            'write with mode("append")'
        )
    return _BatchWriter(_Plan.of(options, schema))


def stream_writer(
    options: Mapping[str, str] | WriteOptions, schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of ``df.writeStream``; raises `OptionError` and `EncodeError`."""
    if overwrite:
        raise OptionError(
            'outputMode("complete") rewrites the whole result in every batch, and a stream only '
            'grows: use outputMode("append") or outputMode("update")'
        )
    plan = _Plan.of(options, schema)
    if plan.options.batch_id is not None:
        raise OptionError(
            "option batchId is for batch writes: a streaming query numbers its batches itself, and "
            "one number for all would take every batch but the first for a repetition"
        )
    return _StreamWriter(plan)


# -------------------------------------------------------------------------------------- identity


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes, the same in every attempt."""

    producer: str
    """``spark/<query>/<sink>``; the partition is added where rows are told apart by place."""
    partition: int
    batch: int
    chosen: bool
    """The batch number comes from the user, who then may well give an old one."""

    @property
    def task(self) -> str:
        """Producer and partition."""
        return f"{self.producer}/{self.partition}"

    @classmethod
    def of_task(cls, options: WriteOptions, job: str | None) -> Self:
        """Of the task that runs this. `job` is what stands for the query in a plain batch write.

        A streaming write of which Spark does not tell them is refused: guessing would be
        duplicates.
        """
        task = Task.running()
        if task is None:
            raise WriteFailed("a writer only works within a task of Spark")
        known = (task.query or options.producer_id) and task.batch is not None
        if job is None and not known and _needs_identity(options):
            raise WriteFailed(
                "this Spark does not tell its tasks which query and batch they belong to (local "
                "properties sql.streaming.queryId and streaming.sql.batchId), so repeated rows "
                "could not be recognised. Write in foreachBatch with options producerId and "
                "batchId, or choose idempotence=none"
            )
        number = options.batch_id if options.batch_id is not None else task.batch or 0
        name = options.producer_id or task.query or job
        return cls(
            f"spark/{name}/{options.sink_id}",
            task.partition,
            number,
            options.batch_id is not None,
        )


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task did."""

    batch: int
    rows: int
    """Rows of the task."""
    known: int
    """Of these, rows that were in the stream before, as far as the server tells."""


# --------------------------------------------------------------------------------------- writing


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the driver decides, and sends to every task."""

    options: WriteOptions
    layout: Layout
    job: str

    @classmethod
    def of(cls, options: Mapping[str, str] | WriteOptions, schema: StructType) -> Self:
        """Check everything that can be known before the first row."""
        if not isinstance(options, WriteOptions):
            options = WriteOptions.parse(options)
        if (options.idempotence == "column") != (options.idempotence_column is not None):
            raise OptionError("idempotence=column and idempotenceColumn belong together")
        if options.preserve_ids and options.idempotence not in (None, "none"):
            raise OptionError(
                "preserveIds=true tells rows apart by their IDs; leave option idempotence out"
            )
        if options.stream is None and "stream" not in schema.names:
            raise OptionError("where to? Give option stream, or a column called stream")
        layout = Layout.of(
            schema.names,
            mapping=options.field_mapping,
            token=options.idempotence_column,
            null_value=options.null_value,
            keep_ids=options.preserve_ids,
        )
        return cls(options, layout, uuid.uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch], job: str | None) -> Written:
        """All rows of one task."""
        identity = Identity.of_task(self.options, job)
        rows = 0
        with connect(self.options.server) as client:
            target = self._target(client, identity)
            if self.options.deterministic_order == "sort":
                iterator = _sorted(iterator, self.layout)
            for batch in iterator:
                for piece in _pieces(batch):
                    rows += piece.num_rows
                    encoded = encode(piece, self.layout)
                    for key, run in runs_by_stream(encoded, self.options.stream):
                        if isinstance(target, Ledger):
                            target.append(key, run.parts())
                        else:
                            target.append(key, run)
            if isinstance(target, Ledger):
                single = None if self.layout.has_stream else self.options.stream
                target.finish(None if single is None else single.encode())
            else:
                target.finish()
        return Written(identity.batch, rows, target.known)

    def _target(self, client: Client, identity: Identity) -> Ledger | Adder:
        options = self.options
        way = "id" if options.preserve_ids else options.idempotence
        if way is None:
            way = "ledger" if client.has_bulk else "position"
        trim = _trim(options)
        patience = {
            "rows_max": options.max_rows_in_flight,
            "retries": options.server.retries,
            "pause_ms": options.server.retry_interval_ms,
        }
        if way == "ledger":
            if not client.has_bulk:
                raise WriteFailed(
                    f"idempotence=ledger needs AB.IMPORT, which the server at {client.address} "
                    "does not know; position, content and column work with Redis 8.6"
                )
            return Ledger(
                client,
                producer=identity.task,
                batch=identity.batch,
                trim=trim,
                skip_old=identity.chosen,
                **patience,
            )
        marks = _marks(way, identity, trim)
        if marks.windowed and client.command("COMMAND", "INFO", "XCFGSET") in ([], [None], None):
            raise WriteFailed(
                f"the server at {client.address} has neither AB.IMPORT nor idempotent producers "
                "(Redis 8.6), so rows of a repeated task would be there twice. Give option "
                "idempotence=none to accept that"
            )
        check = options.idempotence_window == "require"
        return Adder(client, marks, check_window=check, **patience)


def _needs_identity(options: WriteOptions) -> bool:
    return options.idempotence != "none" and not options.preserve_ids


def _marks(way: str, identity: Identity, trim: tuple[bytes, ...]) -> Marks:
    match way:
        case "id":
            return ById(trim)
        case "none":
            return Unmarked(trim)
        case "column":
            return ByColumn(identity.producer, trim)
        case "content":
            return ByContent(identity.task, identity.batch, trim)
        case _:
            return ByPosition(identity.task, identity.batch, trim)


def _trim(options: WriteOptions) -> tuple[bytes, ...]:
    if options.max_len is not None:
        return (b"MAXLEN", options.trim.encode(), b"%d" % options.max_len)
    if options.min_id is not None:
        return (b"MINID", options.trim.encode(), options.min_id.encode())
    return ()


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch, halved until a piece is small enough for Arrow's offsets."""
    if batch.nbytes <= _BATCH_BYTES_MAX or batch.num_rows < 2:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def _sorted(iterator: Iterator[pa.RecordBatch], layout: Layout) -> Iterator[pa.RecordBatch]:
    """All rows of the task by the values of their columns, first column first."""
    batches = [batch for batch in iterator if batch.num_rows]
    if not batches:
        return
    table = pa.Table.from_batches(batches)
    sortable = table
    if not layout.payload:
        bodies = [_bodies(batch, layout) for batch in batches]
        sortable = table.set_column(
            table.schema.get_field_index("fields"), "fields", pa.chunked_array(bodies)
        )
    keys = [(name, "ascending") for name in sortable.column_names]
    order = pc.sort_indices(sortable, sort_keys=keys)
    yield from table.take(order).combine_chunks().to_batches(max_chunksize=_SORTED_ROWS)


def _bodies(batch: pa.RecordBatch, layout: Layout) -> pa.BinaryArray:
    rows: Rows = encode(batch, layout)
    return rows.bodies


class _BatchWriter(DataSourceArrowWriter):
    """One ``save()``."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write a partition.

        Repeated tasks add nothing; a repeated job does, unless producerId and batchId name it.
        """
        return self._plan.write(iterator, self._plan.job)

    def commit(self, messages: list[Any]) -> None:
        """Rows are in as they are written."""

    def abort(self, messages: list[Any]) -> None:
        """What was written stays: readers may have seen it, and a repetition goes on behind it."""


class _StreamWriter(DataSourceStreamArrowWriter):
    """One query; Spark makes this object anew for every batch."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write a partition of a batch."""
        return self._plan.write(iterator, None)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Rows are in as they are written; see that the tasks and Spark meant the same batch."""
        others = {each.batch for each in messages if each is not None} - {batchId}
        if others and _needs_identity(self._plan.options):
            raise WriteFailed(
                f"tasks took batch {batchId} for batch {sorted(others)[0]}: this version of Spark "
                "numbers batches otherwise, and repeated rows would not be recognised"
            )

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """What was written stays: the batch is repeated, and its ledger knows what is in."""
