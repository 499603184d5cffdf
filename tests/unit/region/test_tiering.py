"""When blocks go to the file, and that nobody sees a difference."""

from __future__ import annotations

import io
import random

import pytest

from anabranch.keyspace.keyspace import Keyspace
from anabranch.oplog.snapshot import Contents, Snapshot, load_snapshot
from anabranch.stream.offloading import Offloaded
from anabranch.stream.stream import Stream
from tests.support.region_harness import Harness
from tests.support.shelf import Shelf

MAXMEMORY = 1_000_000


class Tiered(Harness):
    """A region whose used memory a test sets, in percent of ``maxmemory``; None: as measured."""

    def __init__(self, room: int = 1 << 30, **settings: object) -> None:
        super().__init__(stream_tiering=True, **settings)
        self.shelf = Shelf(room)
        self.percent: float | None = None
        self.region.tiering.open_file = lambda: self.shelf
        measured = self.region.dispatcher.used_memory
        self.region.dispatcher.used_memory = lambda: (
            measured() if self.percent is None else int(self.percent * MAXMEMORY / 100)
        )
        self.do("CONFIG", "SET", "maxmemory", MAXMEMORY)

    def fill(self, entries: int, key: str = "s", size: int = 50) -> None:
        for number in range(entries):
            self.raw("XADD", key, "*", "f", random.Random(number).randbytes(size))
            if number % 500 == 0:
                self.region.tick()  # measures what has changed

    def offloaded(self, key: bytes = b"s") -> list[bool]:
        stream = self.region.keyspace.databases[0].values[key]
        assert isinstance(stream, Stream)
        return [isinstance(block.packed, Offloaded) for block in stream.local.blocks]


def test_nothing_moves_below_three_quarters() -> None:
    harness = Tiered()
    harness.percent = 75
    harness.fill(1000)
    harness.advance(1000)
    assert not any(harness.offloaded())
    harness.percent = 76
    harness.do("CONFIG", "SET", "stream-tiering", "no")
    harness.advance(1000)
    assert not any(harness.offloaded())


def test_the_newest_node_stays_and_all_streams_give_their_share() -> None:
    harness = Tiered()
    harness.percent = 60
    for key in ("s", "t"):
        harness.fill(1000, key)
    scheduler = harness.region.scheduler
    scheduler.drive(lambda: None)
    harness.percent = 76
    seen = []
    for _ in range(6):
        harness.region.tick()
        scheduler.run_turn()
        seen.append((sum(harness.offloaded(b"s")), sum(harness.offloaded(b"t"))))
    harness.percent = 69
    assert all(abs(one - other) <= 5 for one, other in seen), "neither is emptied first"
    assert harness.offloaded()[-1] is False
    assert len(harness.do("XRANGE", "s", "-", "+")) == 1000


def test_a_command_makes_the_room_that_it_needs() -> None:
    harness = Tiered()
    harness.fill(40_000)
    assert harness.do("XLEN", "s") == 40_000, "no write was refused"
    assert harness.shelf.held > MAXMEMORY
    harness.region.keyspace.account.measure_changed(10, harness.clock.ticks_ns, 1 << 60)
    assert harness.region.dispatcher.used_memory() <= MAXMEMORY
    harness.check()


def test_what_readers_have_opened_makes_room_for_writes() -> None:
    harness = Tiered()
    harness.fill(20_000)
    before = harness.do("XLEN", "s")
    assert len(harness.do("XRANGE", "s", "-", "+")) == before
    cache = harness.region.keyspace.block_cache
    assert cache.held > MAXMEMORY, "the cache may hold 16 MB"
    harness.fill(2000)
    assert harness.do("XLEN", "s") == before + 2000
    assert cache.held < MAXMEMORY


def test_large_nodes_that_have_moved_do_not_stand_for_small_ones() -> None:
    harness = Tiered(stream_node_max_entries=10, stream_node_max_bytes=1 << 20)
    for size in (100, 30_000) * 3:
        for number in range(60 if size > 100 else 400):
            entry = random.Random(number).randbytes(size)
            harness.do("XADD", "s", "MAXLEN", "~", 1000, "*", "f", entry)
            if number % 50 == 0:
                harness.region.tick()
    harness.check()


def test_writes_are_refused_if_there_is_nothing_to_move_or_no_room() -> None:
    harness = Tiered()
    harness.percent = 101
    assert harness.error("XADD", "s", "*", "f", "v").startswith("OOM")
    harness.percent = 50
    harness.clock.ticks += 2 * 10**9
    harness.fill(1000)
    harness.shelf.room = 0
    harness.percent = 101
    assert harness.error("XADD", "s", "*", "f", "v").startswith("OOM")
    harness.shelf.room = 1 << 30
    assert harness.error("XADD", "s", "*", "f", "v").startswith("OOM"), "it is not asked at once"
    assert not any(harness.offloaded())
    harness.clock.ticks += 2 * 10**9
    harness.error("XADD", "s", "*", "f", "v")
    assert all(harness.offloaded()[:-1])
    harness.percent = 50
    assert len(harness.do("XRANGE", "s", "-", "+")) == 1000


def test_a_full_sync_that_is_loaded_gives_its_nodes_away() -> None:
    source = Harness()
    for number in range(4000):
        source.raw("XADD", "s", "*", "f", random.Random(number).randbytes(300))
    state = Snapshot(source.region.keyspace, Contents(1)).whole()
    harness = Tiered()
    theirs = Keyspace()
    for _ in load_snapshot(io.BytesIO(state), "state", theirs):
        harness.region.tiering.relieve(theirs)
    assert harness.shelf.held > MAXMEMORY / 2
    stream = theirs.databases[0].values[b"s"]
    assert isinstance(stream, Stream)
    stream.check()


def test_a_deleted_stream_keeps_no_room() -> None:
    harness = Tiered(stream_compression_cache=0)
    harness.fill(1000)
    harness.percent = 80
    harness.advance(1000)
    assert harness.shelf.held
    harness.percent = 50
    harness.do("DEL", "s")
    harness.advance(1000)
    assert not harness.shelf.held


@pytest.mark.parametrize("seed", range(4))
def test_nobody_sees_a_difference(seed: int) -> None:
    """Random commands in a region that moves all it can, and in one that moves nothing."""
    nodes = {"stream_node_max_entries": 5, "stream_compression_cache": 2000}
    tiered, plain = Tiered(**nodes), Harness(**nodes)
    tiered.percent = 80
    chance = random.Random(seed)
    newest = 0
    for step in range(1500):
        key = chance.choice(["s", "t"])
        some = f"{chance.randint(0, newest + 2)}-0"
        kind = chance.random()
        if kind < 0.5:
            newest += 1
            command = ["XADD", key, f"{newest}-0", "f", f"{chance.random()}"]
        else:
            command = chance.choice(
                [
                    ["XRANGE", key, some, "+", "COUNT", "12"],
                    ["XREVRANGE", key, some, "-", "COUNT", "7"],
                    ["XDEL", key, some, f"{chance.randint(0, newest + 2)}-0"],
                    ["XTRIM", key, "MAXLEN", str(chance.randint(30, 300))],
                    ["XTRIM", key, "MINID", "~", f"{chance.randint(0, newest // 3 + 1)}-0"],
                    ["XGROUP", "CREATE", key, f"g{chance.randint(0, 2)}", some, "MKSTREAM"],
                    ["XREADGROUP", "GROUP", "g1", "c", "COUNT", "9", "STREAMS", key, ">"],
                    ["XREADGROUP", "GROUP", "g1", "c", "STREAMS", key, some],
                    ["XACK", key, "g1", some],
                    ["XINFO", "STREAM", key, "FULL"],
                    ["DUMP", key],
                    ["COPY", key, "u", "REPLACE"],
                    ["XRANGE", "u", "-", "+"],
                    ["RENAME", "u", "t"],
                    ["XSETID", key, f"{newest + 1}-0"],
                ]
            )
            if command[0] == "XSETID":
                newest += 1
        assert tiered.raw(*command) == plain.raw(*command), (step, command)
        if step % 20 == 0:
            tiered.clock.ticks += 2 * 10**9  # no rest
            tiered.advance(50)
            plain.advance(50)
            tiered.check()
    assert tiered.region.keyspace.block_cache.offloads > 100
