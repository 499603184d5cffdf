"""What regions keep in memory: of live entries, of removed ones, and while nothing happens.

The newest batches stay in memory until every other region has them on its disk, 64 MB of them
unless told otherwise; where a region is down it is 1 MB here, or nothing else would be seen.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count

from benchmarks.shared.figures import Figure
from benchmarks.versus_redis.load import Connection, request, windows
from benchmarks.versus_redis.servers import Server, anabranch_recipe
from benchmarks.versus_redis.workloads import ADD_LINES

from .cluster import Cluster, Region
from .load import BATCH, RANDOM, add, add_and_delete

KEY = "bench:weight"
CACHE = ("--region-cache-bytes", "1mb")
LONG_ENTRIES, QUICK_LONG_ENTRIES = 200_000, 20_000
SHORT_STREAMS, QUICK_SHORT_STREAMS = 500, 50
SHORT_ENTRIES = 100
REMOVED, QUICK_REMOVED = 100_000, 20_000
DELETED_KEYS, QUICK_DELETED_KEYS = 20_000, 5_000
COMING_AND_GOING, QUICK_COMING_AND_GOING = 500_000, 30_000
"""Entries: each is added and deleted."""

SLICE = 10_000
QUIET_S, QUICK_QUIET_S = 60.0, 5.0
SETTLE_S = 1.5
PACKING_S = 0.5
WARM_UP = 20_000
FIRST_ID = 1_700_000_000_000


def live_entries(*, quick: bool) -> list[Figure]:
    """MEMORY USAGE of streams that two regions have written, against the same standalone."""
    long = QUICK_LONG_ENTRIES if quick else LONG_ENTRIES
    streams = QUICK_SHORT_STREAMS if quick else SHORT_STREAMS
    plans = {
        "one long stream": [(KEY, long)],
        "short streams": [(f"{KEY}:{number}", SHORT_ENTRIES) for number in range(streams)],
    }
    figures = []
    with (
        Server(anabranch_recipe("everysec")) as server,
        Connection(server.port) as alone,
        Cluster(2) as cluster,
    ):
        # Blocks that one server has compressed already and the other one has not would decide.
        for connection in (alone, *(region.connection for region in cluster.regions)):
            connection.ask("CONFIG", "SET", "stream-compression", "no")
        for name, plan in plans.items():
            for key, entries in plan:
                add(alone, key, RANDOM, entries)
                for region in cluster.regions:
                    add(region.connection, key, RANDOM, entries // 2)
            cluster.converge()
            entries = sum(size for _, size in plan)
            ours, theirs = (
                _usage(connection, [key for key, _ in plan])
                for connection in (cluster.regions[0].connection, alone)
            )
            figures.append(
                Figure(
                    f"memory per entry beyond standalone, {name}",
                    (ours - theirs) / entries,
                    "bytes/entry",
                    note=f"{entries:,} entries, {theirs / entries:.1f} bytes each standalone",
                )
            )
    return figures


def _usage(connection: Connection, keys: Sequence[str]) -> int:
    """What keys take once it does not change any more: maintenance packs full blocks bit by bit."""
    before, now = -1, 0
    while now != before:
        time.sleep(PACKING_S)
        before, now = now, 0
        for key in keys:
            usage = connection.ask("MEMORY", "USAGE", key, "SAMPLES", 0)
            assert isinstance(usage, int)
            now += usage
    return now


def removed(*, quick: bool) -> list[Figure]:
    """What is left of removed entries and of deleted keys while a peer is down."""
    entries = QUICK_REMOVED if quick else REMOVED
    keys = QUICK_DELETED_KEYS if quick else DELETED_KEYS
    with Cluster(2, *CACHE) as cluster:
        region, peer = cluster.regions
        ids = count(FIRST_ID)
        # What comes and goes once is there before: the cache is full, the heap has grown.
        add_and_delete(region.connection, KEY, ids, max(entries // 4, WARM_UP))
        cluster.converge()
        peer.kill()
        before = resident(region)
        for _ in range(0, entries, SLICE):
            add_and_delete(region.connection, KEY, ids, SLICE)
        per_entry = (resident(region) - before) / entries

        region.ask("CONFIG", "SET", "oplog-max-bytes", 0)
        region.rewrite()
        _add_and_delete_keys(region, keys // 4)
        before, disk_before = resident(region), region.stored_bytes()
        _add_and_delete_keys(region, keys)
        per_key = (resident(region) - before) / keys
        region.rewrite()
        on_disk = (region.stored_bytes() - disk_before) / keys
    return [
        Figure(
            "memory per removed entry, a peer down", per_entry, "bytes", is_less=quick,
            note=f"growth of RSS, {entries:,} entries",
        ),
        Figure(
            "memory per deleted key, a peer down", per_key, "bytes", is_less=quick,
            note=f"growth of RSS, {keys:,} keys after {keys // 4:,}",
        ),
        Figure("disk per deleted key, a peer down", on_disk, "bytes", note="in a snapshot"),
    ]  # fmt: skip


def _add_and_delete_keys(region: Region, keys: int) -> None:
    # Few at a time: the heap is to grow by what is left of them, not by what they were.
    for first in range(0, keys, BATCH):
        names = [f"{KEY}:{number}" for number in range(first, min(first + BATCH, keys))]
        adds = [request("XADD", name, "*", "v", "1", lines=ADD_LINES) for name in names]
        region.connection.replay(windows(adds, BATCH))
        region.connection.replay(windows([request("DEL", name) for name in names], BATCH))


def endurance(*, quick: bool) -> list[Figure]:
    """A million additions and deletions in three regions, then a quiet minute."""
    entries = QUICK_COMING_AND_GOING if quick else COMING_AND_GOING
    quiet_s = QUICK_QUIET_S if quick else QUIET_S
    with Cluster(3) as cluster:
        empty = [region.server.resident_bytes() for region in cluster.regions]
        ids = count(FIRST_ID)
        for _ in range(0, entries, 3 * SLICE):
            for region in cluster.regions:
                add_and_delete(region.connection, f"{KEY}:{region.number}", ids, SLICE)
        cluster.converge()
        time.sleep(SETTLE_S)
        traffic = _traffic(cluster.regions[0])
        began = time.monotonic()
        time.sleep(quiet_s)
        idle = (_traffic(cluster.regions[0]) - traffic) / (time.monotonic() - began)
        full = [region.server.resident_bytes() for region in cluster.regions]
    ratio, grown = max(
        (after / before, after - before) for before, after in zip(empty, full, strict=True)
    )
    return [
        Figure(
            "memory after many adds and deletes", ratio, "of an empty region",
            note=f"{2 * entries:,} of them, {quiet_s:g} s later: {grown / 1e6:.1f} MB more",
            is_less=quick,
        ),
        Figure(
            "traffic of a quiet link", idle / 2, "bytes/s", note="both directions, three regions"
        ),
    ]  # fmt: skip


def _traffic(region: Region) -> int:
    return sum(
        region.count(other, field) for other in (2, 3) for field in ("sent-bytes", "received-bytes")
    )


def resident(region: Region) -> int:
    """Return its RSS when it has had time to put things in order."""
    time.sleep(SETTLE_S)
    return region.server.resident_bytes()
