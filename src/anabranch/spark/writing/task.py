"""Writes the rows of one task into their streams, by the options.

With a ledger (`ledger`), or with one XADD for each row (`adding`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.spark.connection.client import ServerClient, connect
from anabranch.spark.options import WriteOptions
from anabranch.spark.runtime.rounds import leave_imports_alone
from anabranch.spark.writing.adding import Adder, Marks
from anabranch.spark.writing.encode import encode, runs_by_stream
from anabranch.spark.writing.identity import WriteFailed, WriterIdentity
from anabranch.spark.writing.layout import Layout
from anabranch.spark.writing.ledger import LedgerWriter
from anabranch.spark.writing.plan import Plan, Written
from anabranch.spark.writing.recognition import require_same_producer

_BATCH_BYTES_MAX: Final = 128 << 20  # Arrow's offsets have 31 bits, and fields add to every row
_SORTED_ROWS: Final = 10_000


def write(plan: Plan, iterator: Iterator[pa.RecordBatch]) -> Written:
    """Write all rows of one task."""
    leave_imports_alone()
    identity = WriterIdentity.of_task(plan.options, plan.job)
    rows = partitions = 0
    with connect(plan.options.server) as client:
        way = _way(plan.options, client)
        target = _target(way, plan.options, client, identity)
        asked = not plan.options.allow_producer_change and way not in ("id", "none")
        single = None if plan.layout.has_stream else plan.options.stream
        if asked and single is not None:
            partitions = require_same_producer(client, single.encode(), identity, way)
        if plan.options.deterministic_order == "sort":
            iterator = _sorted(iterator, plan.layout)
        for batch in iterator:
            for piece in _pieces(batch):
                rows += piece.num_rows
                encoded = encode(piece, plan.layout)
                for key, run in runs_by_stream(encoded, plan.options.stream):
                    if asked and single is None:
                        with connect(plan.options.server) as another:  # replies are still expected
                            found = require_same_producer(another, key, identity, way)
                        partitions = max(partitions, found)
                    target.append(key, run)
        target.finish(None if single is None else single.encode())
    about = (target.known, plan.waited_s, target.memory_s)
    return Written(identity.batch, rows, *about, partitions)


def _way(options: WriteOptions, client: ServerClient) -> str:
    """How repeated rows are recognised."""
    if options.preserve_ids:
        return "id"
    return options.idempotence or ("ledger" if client.has_bulk else "position")


def _target(
    way: str, options: WriteOptions, client: ServerClient, identity: WriterIdentity
) -> LedgerWriter | Adder:
    trim = _trim(options)
    if way == "ledger":
        if not client.has_bulk:
            raise WriteFailed(
                f"idempotence=ledger needs AB.IMPORT, which the server at {client.address} "
                "does not know; idempotence=position works with Redis 8.6"
            )
        return LedgerWriter(
            client,
            producer=identity.task,
            batch=identity.batch,
            trim=trim,
            rows_max=options.max_rows_in_flight,
            skip_old=identity.chosen,
        )
    marks = Marks(way, identity.task, identity.batch, trim)
    if marks.windowed and not client.has_marks:
        raise WriteFailed(
            f"the server at {client.address} has neither AB.IMPORT nor idempotent producers "
            "(Redis 8.6), so rows of a repeated task would be there twice. Give option "
            "idempotence=none to accept that"
        )
    return Adder(client, marks, rows_max=options.max_rows_in_flight)


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
        bodies = [encode(batch, layout).bodies for batch in batches]
        sortable = table.set_column(
            table.schema.get_field_index("fields"), "fields", pa.chunked_array(bodies)
        )
    # Numbers, because Arrow takes names that begin with a point or a bracket for paths.
    numbers = [str(each) for each in range(sortable.num_columns)]
    keys = [(each, "ascending") for each in numbers]
    order = pc.sort_indices(sortable.rename_columns(numbers), sort_keys=keys)
    yield from table.take(order).combine_chunks().to_batches(max_chunksize=_SORTED_ROWS)
