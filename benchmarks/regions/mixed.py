"""How long others wait while everything goes on at once, for ten minutes.

Two regions are written, trimmed, read at random and by a group, and acknowledged. Blocks are
compressed, and opened again for readers. Heavier work is done in turns beside that: a snapshot, a
stream trimmed to nothing, one deleted, and the other region coming back after the log that it
lacks is gone. Two canaries ping all the time: one the region that stays, one an idle redis-server
on the same core, which tells what the machine itself does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import cycle

from benchmarks.shared.figures import Figure
from benchmarks.versus_redis.canary import Canary, Sighting
from benchmarks.versus_redis.load import Connection, windows
from benchmarks.versus_redis.servers import Server, redis_recipe
from benchmarks.versus_redis.workloads import dice

from .cluster import Cluster, Region
from .load import RANDOM, add, sensor_adds

STREAMS = [f"bench:mixed:{number}" for number in range(4)]
WASTE = "bench:mixed:waste"
"""A stream that is there to be trimmed or deleted."""
GROUP, READER = "readers", "reader"
LENGTH, QUICK_LENGTH = 200_000, 20_000
"""Entries of each stream before the clock runs; about so many stay."""

SECONDS, QUICK_SECONDS = 600.0, 12.0
HEAVY_EVERY_S, QUICK_HEAVY_EVERY_S = 10.0, 2.0
BEAT_S = 0.05
ADDS_A_BEAT = 100
"""To each stream; the other region adds a tenth of it."""
READS_A_BEAT = 5
READ_COUNT = 100
GROUP_COUNT = 100
LONG_MS = 20.0
_DONE = object()
CACHE = ("--region-cache-bytes", "1mb", "--stream-compression-age", "2")


def mixed_load(*, quick: bool) -> list[Figure]:
    """The longest wait of a client that pings each millisecond, beside everything else."""
    seconds = QUICK_SECONDS if quick else SECONDS
    every_s = QUICK_HEAVY_EVERY_S if quick else HEAVY_EVERY_S
    length = QUICK_LENGTH if quick else LENGTH
    with Cluster(2, *CACHE) as cluster, Server(redis_recipe()) as idle:
        load = Load(cluster, length)
        heavy = cycle(
            [
                ("snapshot", load.snapshot),
                ("trim", load.trim),
                ("deletion", load.delete),
                ("full sync", load.come_back),
            ]
        )
        watched = cluster.regions[0].server
        seen: list[tuple[str, Sighting, Sighting]] = []
        with Canary(watched.port, watched.pid) as ours, Canary(idle.port, idle.pid) as machines:
            started = time.monotonic()
            while time.monotonic() < started + seconds:
                name, work = next(heavy)
                _beat(load, work(), every_s)
                seen.append((name, ours.look(), machines.look()))
        load.check()
    return _figures(seen, quick=quick)


def _beat(load: Load, work: Iterator[None], seconds: float) -> None:
    """Send the steady load for so long, and do a step of the heavy work beside each part of it."""
    until = time.monotonic() + seconds
    due = time.monotonic()
    is_done = False
    while time.monotonic() < until or not is_done:
        load.beat()
        is_done = next(work, _DONE) is _DONE
        due = max(due + BEAT_S, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0))


def _figures(seen: list[tuple[str, Sighting, Sighting]], *, quick: bool) -> list[Figure]:
    """The longest waits of all, with what was being done in a note."""
    name, worst, beside = max(seen, key=lambda row: row[1].worst_ms)
    by_cpu = max(seen, key=lambda row: row[1].worst_cpu_ms)
    by_name = {each: max(row[1].worst_ms for row in seen if row[0] == each) for each, _, _ in seen}
    rows = ", ".join(f"{each} {worst_ms:.1f}" for each, worst_ms in by_name.items())
    long = sum(row[1].worst_ms > LONG_MS for row in seen)
    return [
        Figure(
            "longest wait under mixed load", worst.worst_ms, "ms", is_less=quick,
            note=f"{name}; an idle redis-server meanwhile {beside.worst_ms:.1f}; by work: {rows}",
        ),
        Figure(
            "longest wait under mixed load, by CPU", by_cpu[1].worst_cpu_ms, "ms", is_less=quick,
            note=f"{by_cpu[0]}; what all threads of the region ran during one ping",
        ),
        Figure(
            "periods with a longer wait", long, "periods", is_less=quick,
            note=f"of {len(seen)}, longer than {LONG_MS:g} ms; "
            f"{sum(row[1].pings for row in seen):,} pings",
        ),
        Figure(
            "longest wait of an idle redis-server beside it",
            max(row[2].worst_ms for row in seen), "ms", is_less=quick,
        ),
    ]  # fmt: skip


class Load:
    """What is sent to two regions; the second one is away at times."""

    def __init__(self, cluster: Cluster, length: int) -> None:
        """Fill the streams."""
        self._length = length
        self._chance = dice()
        self._busy, self._other = cluster.regions
        self._main = self._busy.connection
        self._heavy = Connection(self._busy.server.port)
        self._is_away = False
        for key in STREAMS:
            add(self._main, key, RANDOM, length)
            self._main.ask("XGROUP", "CREATE", key, GROUP, "$")
        cluster.converge()
        self._adds = {key: sensor_adds(key, ADDS_A_BEAT) for key in STREAMS}

    # -- the steady load ----------------------------------------------------------------------

    def beat(self) -> None:
        """Add to all streams, trim one of them, read and acknowledge, here and there."""
        for key in STREAMS:
            self._main.replay(windows(self._adds[key], 25))
        key = self._chance.choice(STREAMS)
        self._main.ask("XTRIM", key, "MAXLEN", "~", self._length)
        self._read_at_random(self._main)
        self._read_as_group(self._main)
        if not self._is_away:
            other = self._other.connection
            other.replay(windows(self._adds[key][: ADDS_A_BEAT // 10], 5))
            self._read_at_random(other)

    def _read_at_random(self, connection: Connection) -> None:
        key = self._chance.choice(STREAMS)
        low, high = (
            _time_at(connection, key, *way)
            for way in (("XRANGE", "-", "+"), ("XREVRANGE", "+", "-"))
        )
        for _ in range(READS_A_BEAT):
            start = self._chance.randint(low, high)
            connection.ask("XRANGE", key, start, "+", "COUNT", READ_COUNT)

    def _read_as_group(self, connection: Connection) -> None:
        reply = connection.ask(
            *("XREADGROUP", "GROUP", GROUP, READER, "COUNT", GROUP_COUNT, "STREAMS"),
            *(*STREAMS, *([">"] * len(STREAMS))),
        )
        if reply is None:
            return
        assert isinstance(reply, list)
        for key, entries in reply:
            ids = [entry[0] for entry in entries]
            connection.ask("XACK", key, GROUP, *ids)
            connection.ask("XDEL", key, *ids[:: len(ids) // 3 + 1])

    # -- heavier work, a step beside each beat ------------------------------------------------

    def snapshot(self) -> Iterator[None]:
        """A rewritten log."""
        yield from _rewrite(self._heavy, self._busy)

    def trim(self) -> Iterator[None]:
        """A stream of as many entries as the others, trimmed to nothing."""
        yield from self._waste()
        self._heavy.ask("XTRIM", WASTE, "MAXLEN", 0)

    def delete(self) -> Iterator[None]:
        """The same, deleted."""
        yield from self._waste()
        self._heavy.ask("DEL", WASTE)

    def _waste(self) -> Iterator[None]:
        for _ in range(0, self._length, 2_000):
            add(self._heavy, WASTE, RANDOM, 2_000)
            yield

    def come_back(self) -> Iterator[None]:
        """The other region misses something, and the log that has it is gone."""
        with Connection(self._other.server.port) as connection:
            yield from _rewrite(connection, self._other)  # so that it starts again soon
        self._is_away = True
        self._other.kill()
        yield from self._waste()  # more than what stays in memory for a region that is away
        self._heavy.ask("CONFIG", "SET", "oplog-max-bytes", 0)
        yield from self.snapshot()
        self._heavy.ask("CONFIG", "SET", "oplog-max-bytes", "1gb")
        starting = threading.Thread(target=self._other.server.begin)
        starting.start()
        while starting.is_alive():
            yield
        token = self._busy.token()
        while self._other.ask("AB.WAITFOR", token, 1) != b"OK":
            yield
        self._is_away = False

    def check(self) -> None:
        """RuntimeError if the other region has not joined a full sync since its last start."""
        if not self._other.count(self._busy.number, "full-catch-ups"):
            raise RuntimeError("the log was not cut: the region caught up from it")


def _time_at(connection: Connection, key: str, command: str, first: str, last: str) -> int:
    """The milliseconds in the ID of the first entry of a range."""
    rows = connection.ask(command, key, first, last, "COUNT", 1)
    assert isinstance(rows, list)
    return int(rows[0][0].partition(b"-")[0])


def _rewrite(connection: Connection, region: Region) -> Iterator[None]:
    connection.ask("BGREWRITEAOF")
    while not _is_rewritten(region):
        yield


def _is_rewritten(region: Region) -> bool:
    facts = region.ask("INFO", "persistence")
    assert isinstance(facts, bytes)
    return b"aof_rewrite_in_progress:0" in facts and b"aof_rewrite_scheduled:0" in facts
