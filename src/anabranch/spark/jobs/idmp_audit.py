"""Reports refused duplicates, producers near their limits, and rows that were written twice.

A region that does not have an entry yet accepts it again from a producer that failed over. The
servers find that out when they exchange effects, and AB.PRODUCERS shows it: the same idempotent ID
of two regions, or records of two regions for the same batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.spark.connection.client import facts_of, now_ms, stream_key, text_of
from anabranch.spark.connection.region_connections import RegionConnections
from anabranch.spark.options import ReadOptions


@dataclass(frozen=True, slots=True, order=True)
class Double:
    """A message or batch of a producer that more than one region accepted."""

    stream: str
    producer: str
    what: str
    """``idempotent ID ...``, or ``batch 7, rows 0 to 99``."""
    regions: tuple[str, ...]
    """The replica IDs that accepted it: a region's number, with the epoch if not the first."""
    ids: tuple[str, ...]
    """The entries, for an idempotent ID."""
    live: int
    """The present count of copies."""


@dataclass(frozen=True, slots=True)
class StreamMemory:
    """The idempotent IDs of one stream, as one region reports them."""

    region: str
    stream: str
    duration_s: int
    maxsize: int
    """What each producer's memory holds at most."""
    producers: int
    iids: int
    added: int
    """Ever."""
    refused: int
    """Duplicates ever refused, of all producers: servers do not count them one by one."""


@dataclass(frozen=True, slots=True)
class ProducerMemory:
    """The idempotent IDs of one producer in one stream, as one region remembers them."""

    region: str
    stream: str
    producer: str
    iids: int
    maxsize: int
    remembers_s: float
    """From its oldest remembered ID to now: a repetition that comes later is taken for new."""
    forgotten_in_s: float
    """Until the last of its IDs expires, if nothing is added."""


@dataclass(frozen=True, slots=True)
class IdmpAudited:
    """The result."""

    regions: tuple[str, ...]
    memories: tuple[StreamMemory, ...]
    """Of streams that have, or had, idempotent producers."""
    producers: int
    """Different ones, bulk producers as well."""
    near_capacity: tuple[ProducerMemory, ...]
    """Their oldest IDs are, or nearly are, replaced by new ones before they expire."""
    near_expiry: tuple[ProducerMemory, ...]
    """All of their IDs expire soon."""
    twice: tuple[Double, ...]
    """Accepted by two regions, and both copies are there."""
    collapsed: tuple[Double, ...]
    """Accepted by two regions, one copy removed since."""


def idmp_audit(
    *,
    region_urls: Mapping[str, str] | None = None,
    streams: Sequence[str] = (),
    pattern: str | None = None,
    near: float = 0.1,
    progress: Callable[[str], None] | None = None,
    options: Mapping[str, str] | None = None,
) -> IdmpAudited:
    """Look at the idempotent producers of streams, in all regions or on a server of its own.

    `region_urls`: name to address; by default there is the server of the option ``url`` alone,
    which knows of conflicts with other regions, too. `streams`: keys; all that match `pattern`, or
    all, if none is named. `near`: the part of capacity or duration that counts as nearly used up.
    `progress` gets a line for each server. `options` are connection options of a read. No session
    is needed. Raises `ReplicaError`, `ServerUnreachable`, `ServerRefused` and `OptionError`.
    """
    server = ReadOptions.parse({**(options or {}), "subscribePattern": "*"}).server
    memories: list[StreamMemory] = []
    producers: set[tuple[str, str]] = set()
    full: list[ProducerMemory] = []
    stale: list[ProducerMemory] = []
    doubles: dict[tuple[str, str, str], Double] = {}
    with RegionConnections.connected(server, region_urls, least=1) as replicas:
        names = replicas.streams(streams, pattern)
        keys = [stream_key(each) for each in names]
        for replica in replicas.all:
            client = replica.client
            if progress is not None:
                progress(f"asking {replica.name or client.address} about {len(names)} streams")
            infos = client.ask([("XINFO", "STREAM", key) for key in keys])
            rows = client.ask([("AB.PRODUCERS", key) for key in keys])
            now = now_ms(client)
            for stream, info, some in zip(names, infos, rows, strict=True):
                if info is None:
                    continue
                memory = _memory(replica.name, stream, facts_of(info))
                memories += [memory] if memory.added else []
                for facts in map(facts_of, some or ()):
                    name = text_of(facts["producer"])
                    producers.add((stream, name))
                    for double in _doubles(stream, name, facts):
                        known = doubles.setdefault((stream, name, double.what), double)
                        # A region that is behind shows more copies, one of which will be removed.
                        if double.live < known.live:
                            doubles[stream, name, double.what] = double
                    if facts["iids"]:
                        remembered = _of_producer(memory, name, facts, now)
                        if remembered.iids >= memory.maxsize * (1 - near):
                            full.append(remembered)
                        if remembered.forgotten_in_s <= memory.duration_s * near:
                            stale.append(remembered)
        regions = replicas.names
    found = sorted(doubles.values())
    return IdmpAudited(
        regions=regions,
        memories=tuple(memories),
        producers=len(producers),
        near_capacity=tuple(full),
        near_expiry=tuple(stale),
        twice=tuple(each for each in found if each.live > 1),
        collapsed=tuple(each for each in found if each.live <= 1),
    )


def _memory(region: str, stream: str, facts: Mapping[str, Any]) -> StreamMemory:
    return StreamMemory(
        *(region, stream, facts["idmp-duration"], facts["idmp-maxsize"]),
        *(facts["pids-tracked"], facts["iids-tracked"]),
        *(facts["iids-added"], facts["iids-duplicates"]),
    )


def _of_producer(
    memory: StreamMemory, name: str, facts: Mapping[str, Any], now: int
) -> ProducerMemory:
    return ProducerMemory(
        *(memory.region, memory.stream, name, facts["iids"], memory.maxsize),
        remembers_s=(now - facts["oldest-ms"]) / 1000,
        forgotten_in_s=max(facts["newest-ms"] + memory.duration_s * 1000 - now, 0) / 1000,
    )


def _doubles(stream: str, producer: str, facts: Mapping[str, Any]) -> Iterator[Double]:
    for iid, entries in facts["conflicts"]:
        yield Double(
            *(stream, producer, f"idempotent ID {_shown(iid)}"),
            tuple(_replica_id(region, epoch) for region, epoch, *_ in entries),
            tuple(entry_id.decode() for _, _, entry_id, *_ in entries),
            sum(bool(live) for *_, live in entries),
        )
    batches: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for region, epoch, batch, rows, *_ in facts["batches"]:
        if rows:
            batches[batch].append((_replica_id(region, epoch), rows))
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


def _replica_id(region: int, epoch: int) -> str:
    return f"{region}.{epoch}" if epoch else str(region)
