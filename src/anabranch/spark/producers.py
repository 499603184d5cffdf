"""What servers remember of producers, and what more than one region accepted of them.

A region that has not heard of an entry accepts it again from a producer that failed over. Servers
notice when they hear of each other's (AB.PRODUCERS): the same idempotent ID of two regions, or two
regions' records of the same batch.
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
    """Something of a producer that is in a stream twice, or was until one copy was removed."""

    stream: str
    producer: str
    what: str
    """``idempotent ID ...``, or ``batch 7, rows 0 to 99``."""
    regions: tuple[str, ...]
    """Who accepted it: the region's number, with the epoch if that is not the first."""
    ids: tuple[str, ...]
    """The entries, for an idempotent ID."""
    live: int
    """How many copies there are now."""


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
    doubles: tuple[Double, ...]


def producers_of(replicas: Replicas, streams: Sequence[str]) -> list[Producer]:
    """What every replica remembers. Raises `ServerRefused`, `ServerUnreachable`."""
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
            rows = sorted(rows for _, rows in accepted)[-2]  # so many at least two of them have
            what = f"batch {batch}, rows 0 to {rows - 1}"
            regions = tuple(region for region, _ in accepted)
            yield Double(stream, producer, what, regions, (), len(accepted))


def _shown(iid: bytes) -> str:
    """Those that are derived from an entry's content are sixteen bytes of anything."""
    shown = text_of(iid)
    return shown if shown.isascii() and shown.isprintable() else f"0x{iid.hex()}"


def _origin(region: int, epoch: int) -> str:
    return f"{region}.{epoch}" if epoch else str(region)


def doubles(producers: Iterable[Producer]) -> list[Double]:
    """What was accepted more than once, each told once, whoever noticed it."""
    found: dict[tuple[str, str, str], Double] = {}
    for double in (double for each in producers for double in each.doubles):
        place = double.stream, double.producer, double.what
        # Who has heard less shows more copies, of which one is about to go.
        if place not in found or double.live < found[place].live:
            found[place] = double
    return sorted(found.values())
