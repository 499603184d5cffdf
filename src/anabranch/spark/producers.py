"""What servers remember of producers, and what more than one region accepted of them.

A region that has not heard of an entry accepts it again from a producer that failed over. Servers
notice when they hear of each other's (AB.PRODUCERS): the same idempotent ID of two regions, or two
regions' records of the same batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.spark.client import facts_of, stream_key, text_of
from anabranch.spark.replicas import Replica, Replicas

__all__ = ["Accepted", "Batch", "Conflict", "Double", "Producer", "doubles", "producers_of"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """One of the entries that stand for the same idempotent ID."""

    region: str
    """Who accepted it: the region's number, with the epoch if that is not the first."""
    id: str
    recorded_ms: int
    live: bool


@dataclass(frozen=True, slots=True)
class Conflict:
    """An idempotent ID that several regions accepted."""

    iid: str
    entries: tuple[Accepted, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """How far a batch of a bulk producer is in, as one region accepted it."""

    region: str
    batch: int
    rows: int
    used_ms: int


@dataclass(frozen=True, slots=True)
class Producer:
    """What one replica remembers of one producer of one stream."""

    replica: str
    stream: str
    producer: str
    iids: int
    oldest_ms: int | None
    newest_ms: int | None
    """When the first and the last of its idempotent IDs were recorded."""
    conflicts: tuple[Conflict, ...]
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True, order=True)
class Double:
    """Something of a producer that is in a stream twice, or was until one copy was removed."""

    stream: str
    producer: str
    what: str
    """``idempotent ID ...``, or ``batch 7, rows 0 to 99``."""
    regions: tuple[str, ...]
    """Who accepted it."""
    ids: tuple[str, ...]
    """The entries, for an idempotent ID."""
    live: int
    """How many copies there are now."""


def producers_of(replicas: Replicas, streams: Sequence[str]) -> list[Producer]:
    """What every replica remembers. Raises `ServerRefused`, `ServerUnreachable`."""
    return [each for replica in replicas.all for each in _of(replica, streams)]


def _of(replica: Replica, streams: Sequence[str]) -> Iterator[Producer]:
    replies = replica.client.ask([("AB.PRODUCERS", stream_key(each)) for each in streams])
    for stream, rows in zip(streams, replies, strict=True):
        for facts in map(facts_of, rows or ()):
            yield Producer(
                replica.name,
                stream,
                text_of(facts["producer"]),
                facts["iids"],
                facts["oldest-ms"],
                facts["newest-ms"],
                tuple(_conflict(*each) for each in facts["conflicts"]),
                tuple(
                    Batch(_origin(region, epoch), batch, rows, used_ms)
                    for region, epoch, batch, rows, _, used_ms in facts["batches"]
                ),
            )


def _conflict(iid: bytes, entries: Iterable[Sequence[Any]]) -> Conflict:
    return Conflict(
        _shown(iid),
        tuple(
            Accepted(_origin(region, epoch), entry_id.decode(), recorded_ms, bool(live))
            for region, epoch, entry_id, recorded_ms, live in entries
        ),
    )


def _shown(iid: bytes) -> str:
    """Those that are derived from an entry's content are sixteen bytes of anything."""
    shown = text_of(iid)
    return shown if shown.isascii() and shown.isprintable() else f"0x{iid.hex()}"


def _origin(region: int, epoch: int) -> str:
    return f"{region}.{epoch}" if epoch else str(region)


def doubles(producers: Iterable[Producer]) -> list[Double]:
    """What was accepted more than once, each told once, whoever noticed it."""
    found: dict[tuple[str, str, str], Double] = {}
    for producer in producers:
        for double in _doubles(producer):
            place = double.stream, double.producer, double.what
            known = found.get(place)
            # Who has heard less shows more copies, of which one is about to go.
            if known is None or double.live < known.live:
                found[place] = double
    return sorted(found.values())


def _doubles(producer: Producer) -> Iterator[Double]:
    for conflict in producer.conflicts:
        entries = conflict.entries
        yield Double(
            producer.stream,
            producer.producer,
            f"idempotent ID {conflict.iid}",
            tuple(each.region for each in entries),
            tuple(each.id for each in entries),
            sum(each.live for each in entries),
        )
    for batch in sorted({each.batch for each in producer.batches}):
        same = [each for each in producer.batches if each.batch == batch and each.rows]
        if len(same) > 1:
            rows = sorted(each.rows for each in same)[-2]  # so many at least two of them have
            yield Double(
                producer.stream,
                producer.producer,
                f"batch {batch}, rows 0 to {rows - 1}",
                tuple(each.region for each in same),
                (),
                len(same),
            )
