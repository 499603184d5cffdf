"""AB.PRODUCERS: the record of each producer of a stream, and conflicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anabranch.engine.context import Context, existing
from anabranch.keyspace.replica import epoch_of, region_of
from anabranch.stream.entry_id import text
from anabranch.stream.producer import Accepted
from anabranch.stream.shared import Dot, Tag
from anabranch.stream.stream import Stream

_ALONE: Dot = (0, 0)


def producers(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.PRODUCERS key: what a stream keeps of each producer: idempotent IDs and batches."""
    return ctx.long_rows(args, _rows(ctx, args[1], existing(ctx.read_stream(args[1]))))


def _rows(ctx: Context, key: bytes, stream: Stream) -> Iterator[dict[str, Any]]:
    for name in sorted({*stream.producers.tables, *stream.ledger.records}):
        ctx.require(key, stream)
        yield _producer(stream, name, _records(stream, name))


def _records(stream: Stream, pid: bytes) -> dict[Dot, Accepted]:
    """The ledger of a producer, including concurrent records of several regions."""
    record = stream.ledger.records.get(pid)
    return {} if record is None else stream.shared.accepted.get(pid, {_ALONE: record})


def _producer(stream: Stream, pid: bytes, records: dict[Dot, Accepted]) -> dict[str, Any]:
    table = stream.producers.tables.get(pid, {})
    times = [recorded_ms for _, recorded_ms in table.values()]
    tags = stream.shared.tags.get(pid, {})
    return {
        "producer": pid,
        "iids": len(table),
        "oldest-ms": min(times, default=None),
        "newest-ms": max(times, default=None),
        "conflicts": [
            [iid, [_accepted(stream, dot, found[dot]) for dot in sorted(found)]]
            for iid, found in tags.items()
            if len(found) > 1
        ],
        "batches": [
            [region_of(dot[0]), epoch_of(dot[0]), *records[dot]] for dot in sorted(records)
        ],
    }


def _accepted(stream: Stream, dot: Dot, tag: Tag) -> list[Any]:
    """One of several entries of an idempotent ID: region, ID, time, and whether it exists."""
    replica_id, _ = dot
    log = stream.logs.get(replica_id)
    is_live = log is not None and log.find(tag.entry_id) is not None
    return [
        region_of(replica_id),
        epoch_of(replica_id),
        text(tag.entry_id),
        tag.at_ms,
        int(is_live),
    ]
