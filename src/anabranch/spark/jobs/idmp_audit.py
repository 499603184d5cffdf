"""Reports refused duplicates, producers near their limits, and rows that were written twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.spark.client import facts_of, stream_key
from anabranch.spark.options import ReadOptions
from anabranch.spark.producers import Double, Producer, doubles, producers_of
from anabranch.spark.replicas import Replica, Replicas

__all__ = ["IdmpAudited", "Memory", "ProducerMemory", "idmp_audit"]


@dataclass(frozen=True, slots=True)
class Memory:
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
    """A producer near a limit: the server may forget IDs that a repetition needs."""

    region: str
    stream: str
    producer: str
    iids: int
    maxsize: int
    remembers_s: float
    """From its oldest remembered ID to now: a repetition that comes later is taken for new."""
    forgotten_in_s: float
    """Until the last of its IDs has come of age, if nothing is added."""


@dataclass(frozen=True, slots=True)
class IdmpAudited:
    """The result."""

    regions: tuple[str, ...]
    memories: tuple[Memory, ...]
    """Of streams that have, or had, idempotent producers."""
    producers: int
    """Different ones, bulk producers as well."""
    near_capacity: tuple[ProducerMemory, ...]
    """Their oldest IDs give way to new ones before they come of age, or nearly so."""
    near_expiry: tuple[ProducerMemory, ...]
    """All that is known of them is about to be forgotten."""
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

    `region_urls`: name to address; without it the regions are found by asking the server of the
    option ``url``. `streams`: keys; all that match `pattern`, or all, if none is named. `near`: the
    part of capacity or duration that counts as nearly used up. `progress` is told what begins.
    `options` are connection options of a read. No Spark session is needed. Raises
    `ReplicaError`, `ServerUnreachable`, `ServerRefused` and `OptionError`.
    """
    server = ReadOptions.parse({**(options or {}), "subscribePattern": "*"}).server
    with Replicas.connected(server, region_urls, least=1) as replicas:
        say = progress or (lambda _: None)
        names = replicas.streams(streams, pattern)
        memories = []
        for replica in replicas.all:
            say(f"asking {replica.name or replica.client.address} about {len(names)} streams")
            memories += [each for each in _memories(replica, names) if each.added]
        now_ms = {each.name: _now_ms(each) for each in replicas.all}
        say("asking for their producers")
        producers = producers_of(replicas, names)
        regions = replicas.names
    memory_of = {(each.region, each.stream): each for each in memories}
    full: list[ProducerMemory] = []
    stale: list[ProducerMemory] = []
    for each in producers:
        memory = memory_of.get((each.replica, each.stream))
        if memory is None or each.oldest_ms is None or each.newest_ms is None:
            continue
        told = _told(each, memory, now_ms[each.replica])
        if each.iids >= memory.maxsize * (1 - near):
            full.append(told)
        if told.forgotten_in_s <= memory.duration_s * near:
            stale.append(told)
    found = doubles(producers)
    return IdmpAudited(
        regions=regions,
        memories=tuple(memories),
        producers=len({(each.stream, each.producer) for each in producers}),
        near_capacity=tuple(full),
        near_expiry=tuple(stale),
        twice=tuple(each for each in found if each.live > 1),
        collapsed=tuple(each for each in found if each.live <= 1),
    )


def _memories(replica: Replica, streams: Sequence[str]) -> list[Memory]:
    replies: list[Any] = replica.client.ask(
        [("XINFO", "STREAM", stream_key(each)) for each in streams]
    )
    return [
        Memory(
            *(replica.name, stream, facts["idmp-duration"], facts["idmp-maxsize"]),
            *(facts["pids-tracked"], facts["iids-tracked"]),
            *(facts["iids-added"], facts["iids-duplicates"]),
        )
        for stream, reply in zip(streams, replies, strict=True)
        if reply is not None
        for facts in [facts_of(reply)]
    ]


def _now_ms(replica: Replica) -> int:
    seconds, us = replica.call("TIME")
    return int(seconds) * 1000 + int(us) // 1000


def _told(producer: Producer, memory: Memory, now_ms: int) -> ProducerMemory:
    assert producer.oldest_ms is not None
    assert producer.newest_ms is not None
    return ProducerMemory(
        *(producer.replica, producer.stream, producer.producer),
        *(producer.iids, memory.maxsize),
        remembers_s=(now_ms - producer.oldest_ms) / 1000,
        forgotten_in_s=max(producer.newest_ms + memory.duration_s * 1000 - now_ms, 0) / 1000,
    )
