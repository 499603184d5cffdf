"""The records that servers keep of producers, and conflicts between regions.

A region that does not have an entry yet accepts it again from a producer that failed over. The
servers find that out when they exchange effects, and AB.PRODUCERS shows it: the same idempotent ID
of two regions, or records of two regions for the same batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.spark.client import facts_of, stream_key, text_of
from anabranch.spark.replicas import Replicas

__all__ = ["Double", "Producer", "doubles", "producers_of"]


@dataclass(frozen=True, slots=True, order=True)
class Double:
    """A message or batch of a producer that more than one region accepted."""

    stream: str
    producer: str
    what: str
    """``idempotent ID ...``, or ``batch 7, rows 0 to 99``."""
    regions: tuple[str, ...]
    """The accepting region's number, with the epoch if that is not the first."""
    ids: tuple[str, ...]
    """The entries, for an idempotent ID."""
    live: int
    """The present count of copies."""


@dataclass(frozen=True, slots=True)
class Producer:
    """The record of one producer of one stream on one replica."""

    replica: str
    stream: str
    producer: str
    iids: int
    oldest_ms: int | None
    newest_ms: int | None
    """When the first and the last of its idempotent IDs were recorded."""
    doubles: tuple[Double, ...]


def producers_of(replicas: Replicas, streams: Sequence[str]) -> list[Producer]:
    """The records of all replicas. Raises `ServerRefused`, `ServerUnreachable`."""
    commands = [("AB.PRODUCERS", stream_key(each)) for each in streams]
    return [
        Producer(
            *(replica.name, stream, text_of(facts["producer"])),
            *(facts["iids"], facts["oldest-ms"], facts["newest-ms"]),
            tuple(_doubles(stream, facts)),
        )
        for replica in replicas.all
        for stream, rows in zip(streams, replica.client.ask(commands), strict=True)
        for facts in map(facts_of, rows or ())
    ]


def _doubles(stream: str, facts: Mapping[str, Any]) -> Iterator[Double]:
    producer = text_of(facts["producer"])
    for iid, entries in facts["conflicts"]:
        yield Double(
            stream,
            producer,
            f"idempotent ID {_shown(iid)}",
            tuple(_origin(region, epoch) for region, epoch, *_ in entries),
            tuple(entry_id.decode() for _, _, entry_id, *_ in entries),
            sum(bool(live) for *_, live in entries),
        )
    batches: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for region, epoch, batch, rows, *_ in facts["batches"]:
        if rows:
            batches[batch].append((_origin(region, epoch), rows))
    for batch, accepted in sorted(batches.items()):
        if len(accepted) > 1:
            rows = sorted(rows for _, rows in accepted)[-2]  # rows that at least two regions have
            what = f"batch {batch}, rows 0 to {rows - 1}"
            regions = tuple(region for region, _ in accepted)
            yield Double(stream, producer, what, regions, (), len(accepted))


def _shown(iid: bytes) -> str:
    """IDs that are derived from content are sixteen arbitrary bytes."""
    shown = text_of(iid)
    return shown if shown.isascii() and shown.isprintable() else f"0x{iid.hex()}"


def _origin(region: int, epoch: int) -> str:
    return f"{region}.{epoch}" if epoch else str(region)


def doubles(producers: Iterable[Producer]) -> list[Double]:
    """All conflicts, each once, regardless of which region reported it."""
    found: dict[tuple[str, str, str], Double] = {}
    for double in (double for each in producers for double in each.doubles):
        place = double.stream, double.producer, double.what
        # A region that is behind shows more copies, one of which will be removed.
        if place not in found or double.live < found[place].live:
            found[place] = double
    return sorted(found.values())
