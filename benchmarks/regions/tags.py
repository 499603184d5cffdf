"""What the tags of idempotent producers cost: on the way, and held while a peer is down.

The same entries are added with an idempotent ID each and without. What is held is measured with
entries that are trimmed at once, so that hardly anything but tags is left of them.
"""

from __future__ import annotations

from itertools import count

from benchmarks.shared.figures import Figure, of_rounds
from benchmarks.versus_redis import memory
from benchmarks.versus_redis.load import Window, request, windows
from benchmarks.versus_redis.workloads import ADD_LINES, dice

from .cluster import Cluster, Region
from .load import BATCH
from .weight import CACHE, resident

KEY = "bench:tags"
ENTRIES, QUICK_ENTRIES = 20_000, 4_000
HELD, QUICK_HELD = 200_000, 20_000
ROUNDS, QUICK_ROUNDS = 5, 3
KEPT = 1000
"""Entries that the stream is trimmed to."""

CHUNK = 20_000


def held_tags(*, quick: bool) -> list[Figure]:
    """Wire, CPU, memory and disk of an idempotent ID, beyond those of its entry."""
    entries = QUICK_ENTRIES if quick else ENTRIES
    with Cluster(2, *CACHE) as cluster:
        numbers = count()
        sent, cpu = [], []
        for turn in range(1 + (QUICK_ROUNDS if quick else ROUNDS)):
            plain = _replay(cluster, _script(entries))
            tagged = _replay(cluster, _script(entries, numbers))
            if turn:  # the first one warms up
                sent.append((tagged[0] - plain[0]) / entries)
                cpu.append(tagged[1] / plain[1])
        memory_each, disk_each, held = _held(cluster, numbers, QUICK_HELD if quick else HELD)
    note = f"{held:,} held, idempotent IDs of some 10 bytes"
    return [
        of_rounds(f"wire of a tag, batches of {BATCH}", sent, "bytes"),
        of_rounds("CPU of idempotent XADD in a region, no cut", cpu, "of XADD there"),
        Figure("memory per held tag, a peer down", memory_each, "bytes", note=note, is_less=quick),
        Figure("disk per held tag, a peer down", disk_each, "bytes", note="in a snapshot"),
    ]


def _script(entries: int, numbers: count[int] | None = None) -> list[Window]:
    """XADDs of three sensor fields; with idempotent IDs if there are numbers for them."""
    chance = dice()
    make = memory.shapes()[1].make
    adds = []
    for _ in range(entries):
        tag = [] if numbers is None else ["IDMP", "producer-1", f"m{next(numbers):09}"]
        words = ["MAXLEN", "~", str(KEPT), *tag, "*", *make(chance)]
        adds.append(request("XADD", KEY, *words, lines=ADD_LINES))
    return windows(adds, BATCH)


def _replay(cluster: Cluster, script: list[Window]) -> tuple[int, float]:
    """Bytes that were sent to the other region, and CPU seconds of the writer."""
    writer, reader = cluster.regions
    sent, began = writer.count(reader.number, "sent-bytes"), writer.cpu()
    writer.connection.replay(script)
    used = writer.cpu_s(began)
    reader.wait_for(writer.token())
    return writer.count(reader.number, "sent-bytes") - sent, used


def _held(cluster: Cluster, numbers: count[int], entries: int) -> tuple[float, float, int]:
    """Growth of RSS and of a snapshot by tags, per tag, and how many are held."""
    region, peer = cluster.regions
    peer.kill()
    region.ask("CONFIG", "SET", "oplog-max-bytes", 0)
    region.connection.replay(_script(CHUNK, numbers))
    region.rewrite()
    held, before, disk_before = _count(region), resident(region), region.stored_bytes()
    for _ in range(0, entries, CHUNK):
        region.connection.replay(_script(CHUNK, numbers))
    after, more = resident(region), _count(region) - held
    region.rewrite()
    return (after - before) / more, (region.stored_bytes() - disk_before) / more, more


def _count(region: Region) -> int:
    facts = region.ask("AB.INFO")
    assert isinstance(facts, list)
    held = dict(zip(facts[::2], facts[1::2], strict=True))[b"held-tags"]
    assert isinstance(held, int)
    return held
