"""Reports refused duplicates, producers near their limits, and rows that were written twice.

A region that does not have an entry yet accepts it again from a producer that failed over. The
servers find that out when they exchange effects, and AB.PRODUCERS shows it: the same idempotent ID
of two regions, or records of two regions for the same batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.spark.connection.client import facts_of, now_ms, stream_key, text_of
from anabranch.spark.connection.region_connections import RegionConnection, RegionConnections
from anabranch.spark.jobs.signatures import IdmpAuditJob, JobStep, taking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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

    def __str__(self) -> str:
        """For people."""
        places = zip(self.regions, self.ids or ("",) * len(self.regions), strict=True)
        accepted = " and ".join(f"{at} as {entry}" if entry else at for at, entry in places)
        word = "TWICE" if self.live > 1 else "collapsed"
        return f"{word}: {self.stream} {self.producer}: {self.what}, accepted by regions {accepted}"


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

    def __str__(self) -> str:
        """For people."""
        return (
            f"{_place(self.stream, self.region)}: {self.producers} producers, {self.iids} IDs "
            f"remembered for {self.duration_s} s ({self.maxsize} of each), {self.refused} "
            "duplicates refused"
        )


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

    def __str__(self) -> str:
        """For people."""
        return (
            f"{_place(f'{self.stream} {self.producer}', self.region)}: {self.iids} of "
            f"{self.maxsize} IDs, which reach back {self.remembers_s:.0f} s; all is forgotten in "
            f"{self.forgotten_in_s:.0f} s"
        )


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

    @property
    def findings(self) -> tuple[Double, ...]:
        """What should not be."""
        return self.twice


@taking(IdmpAuditJob)
def idmp_audit(_spark: SparkSession | None, job: IdmpAuditJob) -> IdmpAudited:
    """Look at the idempotent producers of streams, in all regions or on one server.

    One server knows of conflicts with other regions, too. No session is needed. Raises
    `ReplicaError`, `ServerUnreachable`, `ServerRefused` and `OptionError`.
    """
    memories: list[StreamMemory] = []
    producers: list[ProducerMemory] = []
    names: set[tuple[str, str]] = set()
    doubles: dict[tuple[str, str, str], Double] = {}
    with RegionConnections.connected(job.read.server, job.urls) as replicas:
        streams = replicas.streams(job.streams, job.pattern)
        for replica in replicas.all:
            place = replica.name or replica.client.address
            job.progress(JobStep(f"asking {place} about {len(streams)} streams"))
            for memory, producer, facts in _producers(replica, streams, memories):
                names.add((memory.stream, producer.producer))
                for double in _doubles(memory.stream, producer.producer, facts):
                    key = (memory.stream, producer.producer, double.what)
                    # A region that is behind shows more copies, one of which will be removed.
                    if double.live < doubles.setdefault(key, double).live:
                        doubles[key] = double
                if producer.iids:
                    producers.append(producer)
        regions = replicas.names
    found = sorted(doubles.values())
    limits = {(each.region, each.stream): each.duration_s * job.near for each in memories}
    return IdmpAudited(
        regions=regions,
        memories=tuple(each for each in memories if each.added),
        producers=len(names),
        near_capacity=tuple(
            each for each in producers if each.iids >= each.maxsize * (1 - job.near)
        ),
        near_expiry=tuple(
            each for each in producers if each.forgotten_in_s <= limits[each.region, each.stream]
        ),
        twice=tuple(each for each in found if each.live > 1),
        collapsed=tuple(each for each in found if each.live <= 1),
    )


def _producers(
    replica: RegionConnection, streams: Sequence[str], memories: list[StreamMemory]
) -> Iterator[tuple[StreamMemory, ProducerMemory, Mapping[str, Any]]]:
    """What one region knows of the producers of streams; adds what it knows of each stream."""
    keys = [stream_key(each) for each in streams]
    infos = replica.client.ask([("XINFO", "STREAM", key) for key in keys])
    rows = replica.client.ask([("AB.PRODUCERS", key) for key in keys])
    now = now_ms(replica.client)
    for stream, info, some in zip(streams, infos, rows, strict=True):
        if info is not None:
            memory = _memory(replica.name, stream, facts_of(info))
            memories.append(memory)
            for facts in map(facts_of, some or ()):
                yield memory, _of_producer(memory, text_of(facts["producer"]), facts, now), facts


def _memory(region: str, stream: str, facts: Mapping[str, Any]) -> StreamMemory:
    return StreamMemory(
        *(region, stream, facts["idmp-duration"], facts["idmp-maxsize"]),
        *(facts["pids-tracked"], facts["iids-tracked"]),
        *(facts["iids-added"], facts["iids-duplicates"]),
    )


def _of_producer(
    memory: StreamMemory, name: str, facts: Mapping[str, Any], now: int
) -> ProducerMemory:
    oldest_ms, newest_ms = facts["oldest-ms"] or now, facts["newest-ms"] or 0  # without any ID
    return ProducerMemory(
        *(memory.region, memory.stream, name, facts["iids"], memory.maxsize),
        remembers_s=(now - oldest_ms) / 1000,
        forgotten_in_s=max(newest_ms + memory.duration_s * 1000 - now, 0) / 1000,
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


def _place(name: str, region: str) -> str:
    return f"{name} at {region}" if region else name


def _shown(iid: bytes) -> str:
    """IDs that are derived from content are sixteen arbitrary bytes."""
    shown = text_of(iid)
    return shown if shown.isascii() and shown.isprintable() else f"0x{iid.hex()}"


def _replica_id(region: int, epoch: int) -> str:
    return f"{region}.{epoch}" if epoch else str(region)
