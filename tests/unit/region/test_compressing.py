"""When blocks are compressed, and what that does to the figures of memory."""

from __future__ import annotations

import gc
import random
import tracemalloc
from itertools import pairwise

import pytest

from anabranch.region.compressing import hot_bytes
from anabranch.stream.block import Block
from anabranch.stream.compression import BlockCache
from anabranch.stream.stream import Stream
from tests.support.region_harness import Harness

ENTRIES = 5000
AGE_MS = 10_000


def cold(**settings: object) -> Harness:
    """A region that has no memory for what is not compressed."""
    return Harness(**{"stream_memory_hot": 1, **settings})


def filled(**settings: object) -> Harness:
    harness = cold(**settings)
    for number in range(ENTRIES):
        harness.raw("XADD", "s", "*", "sensor", f"t{number % 10}")
    return harness


def blocks(harness: Harness, key: bytes = b"s") -> list[Block]:
    stream = harness.region.keyspace.databases[0].values[key]
    assert isinstance(stream, Stream)
    return stream.local.blocks


def compressed(harness: Harness) -> int:
    return compressed_of(harness, b"s")


def compressed_of(harness: Harness, key: bytes) -> int:
    return sum(block.packed is not None for block in blocks(harness, key))


def info(harness: Harness) -> dict[str, int]:
    lines = harness.do("INFO", "memory").decode().splitlines()
    pairs = [line.split(":") for line in lines if ":" in line]
    return {name: int(value) for name, value in pairs if value.isdigit()}


def wait(harness: Harness, ms: int = 2 * AGE_MS) -> None:
    for _ in range(ms // 1000):
        harness.advance(1000)


def test_blocks_are_compressed_after_the_clock_was_set_back() -> None:
    harness = filled()
    harness.advance(3_600_000)
    harness.advance(-3_600_000)
    for number in range(ENTRIES):
        harness.raw("XADD", "s", "*", "sensor", f"t{number % 10}")
    wait(harness, 3 * AGE_MS)
    assert compressed(harness) == len(blocks(harness)) - 1


def test_blocks_that_are_full_for_a_while_are_compressed() -> None:
    harness = filled()
    before = harness.do("XRANGE", "s", "-", "+")
    usage, used = harness.do("MEMORY", "USAGE", "s"), info(harness)["used_memory"]
    harness.region.tick()
    wait(harness, AGE_MS - 1000)
    assert compressed(harness) == 0, "they have not been full for so long"
    wait(harness, 2000)
    assert compressed(harness) == len(blocks(harness)) - 1, "all but the open one"
    figures = info(harness)
    assert harness.do("MEMORY", "USAGE", "s") < usage / 5
    assert figures["used_memory"] < used / 3
    assert figures["stream_compressed_blocks_total"] == ENTRIES // 100 - 1
    assert figures["stream_opened_blocks_total"] == figures["stream_opened_bytes"] == 0
    assert harness.do("XRANGE", "s", "-", "+") == before
    assert harness.do("XLEN", "s") == ENTRIES
    figures = info(harness)
    assert figures["stream_opened_blocks_total"] == ENTRIES // 100 - 1
    stats = harness.do("MEMORY", "STATS")
    held = dict(zip(stats[::2], stats[1::2], strict=True))[b"streams.opened"]
    assert held == figures["stream_opened_bytes"] > ENTRIES * 40
    assert figures["used_memory"] > used / 2, "what is opened counts"
    harness.do("CONFIG", "SET", "stream-compression-cache", "10kb")
    assert info(harness)["stream_opened_bytes"] <= 10_240
    wait(harness)
    assert info(harness)["stream_opened_bytes"] == 0, "nobody has read for a while"
    harness.check()


def test_what_is_counted_of_compressed_blocks_is_what_they_hold() -> None:
    harness = cold()
    harness.raw("XADD", "warm", "*", "f", "v")
    wait(harness, AGE_MS)
    info(harness)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0], info(harness)["used_memory"]
        for number in range(4 * ENTRIES):  # what is held once is little beside them
            harness.raw(
                "XADD", "s", "*", "sensor", f"t{number % 10}", "value", number * 7919 % 1000
            )
        wait(harness, 3 * AGE_MS)
        gc.collect()
        counted = info(harness)["used_memory"] - before[1]
        held = tracemalloc.get_traced_memory()[0] - before[0]
    finally:
        tracemalloc.stop()
    assert compressed(harness)
    assert counted == pytest.approx(held, rel=0.35)


def test_compression_can_be_off_and_comes_back() -> None:
    harness = filled(stream_compression=False)
    wait(harness, 3 * AGE_MS)
    assert compressed(harness) == 0
    harness.do("CONFIG", "SET", "stream-compression", "yes")
    wait(harness)
    assert compressed(harness) == len(blocks(harness)) - 1
    harness.do("CONFIG", "SET", "stream-compression", "no")
    assert len(harness.do("XRANGE", "s", "-", "+")) == ENTRIES


def test_a_block_that_is_opened_for_entries_again_is_compressed_again() -> None:
    harness = filled()
    wait(harness)
    ids = [entry[0] for entry in harness.do("XRANGE", "s", "-", "+")]
    newest = blocks(harness)[-1].count
    harness.do("XDEL", "s", *ids[-newest:])  # the block before it is the newest now
    assert blocks(harness)[-1].packed is None
    for _ in range(300):
        harness.raw("XADD", "s", "*", "f", "v")
    wait(harness, 3 * AGE_MS)
    assert compressed(harness) == len(blocks(harness)) - 1
    harness.do("COPY", "s", "t")
    copies = blocks(harness, b"t")
    assert sum(block.packed is not None for block in copies) == len(copies) - 1
    harness.do("XTRIM", "t", "MAXLEN", 10)
    assert len(harness.do("XRANGE", "t", "-", "+")) == 10
    harness.do("DEL", "s", "t")
    harness.check()


def test_much_that_is_full_is_compressed_early_and_what_is_open_stays() -> None:
    harness = cold(stream_compression_cache=6 << 20)
    harness.region.tick()
    cache = harness.region.keyspace.block_cache
    for number in range(40):
        harness.raw("XADD", "old", "*", "f", f"{number}-" * 900)
    wait(harness, 2 * AGE_MS)
    assert compressed_of(harness, b"old") == len(blocks(harness, b"old")) - 1
    harness.do("XRANGE", "old", "-", "+", "COUNT", 1)
    assert cache.opens
    for number in range(1000):
        harness.raw("XADD", "s", "*", "f", f"{number}-" * 900)
        if number == 500:
            harness.advance(100)
            assert compressed(harness) == 0, "a round begins with what was full at the last one"
    harness.advance(100)
    assert compressed(harness) > 50
    harness.advance(100)
    assert compressed(harness) < len(blocks(harness)) - 1, "the rest is not much, and waits"
    assert cache.held, "an early round does not shut what was opened"
    wait(harness, 3 * AGE_MS)
    assert compressed(harness) == len(blocks(harness)) - 1
    assert not cache.held
    harness.check()


def test_a_round_is_done_in_slices() -> None:
    """On a clock on which every look takes a slice, a turn compresses few blocks."""
    harness = filled()
    scheduler = harness.region.scheduler
    scheduler.drive(lambda: None)
    harness.clock.tick_ns = 2_000_000
    harness.region.tick()
    wait(harness, 0)
    done = [0]
    for _ in range(400):
        harness.clock.us += 100_000
        harness.region.tick()
        scheduler.run_turn()
        done.append(compressed(harness))
        if done[-1] == len(blocks(harness)) - 1:
            break
    assert done[-1] == len(blocks(harness)) - 1
    assert max(after - before for before, after in pairwise(done)) < 10


# -- memory that need not be saved ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "maxmemory", "machine", "expected"),
    [
        (5, 1 << 30, 1 << 40, 5),
        (0, 1 << 30, 1 << 40, 1 << 28),
        (0, 0, 1 << 40, 1 << 37),
        (0, 0, 1 << 29, 128 << 20),
        (0, 0, 0, 128 << 20),
    ],
)
def test_so_much_is_hot(setting: int, maxmemory: int, machine: int, expected: int) -> None:
    assert hot_bytes(setting, maxmemory, machine) == expected


def as_they_are() -> Harness:
    """Entries that light packing does not make much smaller."""
    harness = cold(stream_memory_hot=0)
    harness.region.keyspace.block_cache = BlockCache(1 << 20)
    chance = random.Random(1)
    for _ in range(ENTRIES):
        harness.raw("XADD", "s", "*", "sum", chance.randbytes(40).hex())
    return harness


def test_nothing_is_compressed_while_there_is_memory() -> None:
    harness = as_they_are()
    wait(harness, 4 * AGE_MS)
    assert compressed(harness) == 0


def test_packed_lightly_while_there_is_memory_and_compressed_above() -> None:
    harness = cold(stream_memory_hot=0)
    harness.region.keyspace.block_cache = BlockCache(1 << 20)
    for number in range(ENTRIES):
        harness.raw("XADD", "s", "*", "sensor", f"t{number % 10}", "value", number % 1000)
    before = harness.do("XRANGE", "s", "-", "+")
    wait(harness, 3 * AGE_MS)
    assert all(block.packed is not None for block in blocks(harness)[:-1])
    assert not any(block.is_dense for block in blocks(harness))
    light = harness.do("MEMORY", "USAGE", "s")
    harness.do("CONFIG", "SET", "stream-memory-hot", 1)
    wait(harness, AGE_MS)
    assert all(block.is_dense for block in blocks(harness)[:-1])
    assert harness.do("MEMORY", "USAGE", "s") < light
    assert harness.do("XRANGE", "s", "-", "+") == before
    harness.check()


def test_what_is_opened_may_take_a_part_of_the_hot_memory() -> None:
    harness = as_they_are()
    harness.region.machine_bytes = 128 * (40 << 20)
    wait(harness, 2 * AGE_MS)
    cache = harness.region.keyspace.block_cache
    assert cache.bytes_max == 40 << 20, "a sixteenth of an eighth of the machine"
    harness.do("CONFIG", "SET", "stream-memory-hot", 1)
    wait(harness, 4 * AGE_MS)
    harness.do("XRANGE", "s", "-", "+")
    opened = cache.held
    assert opened
    harness.region.settings.stream_compression_cache = opened // 2
    wait(harness, AGE_MS)
    assert cache.bytes_max == opened // 2
    assert cache.held <= opened // 2, "in steps, not with the next read"
    harness.check()


def test_the_older_half_goes_and_what_was_read_is_spared() -> None:
    harness = as_they_are()
    wait(harness, 3 * AGE_MS)
    # Both passes see what was read; after them nothing was.
    for block in blocks(harness):
        block.is_read = False
    first = harness.do("XRANGE", "s", "-", "+", "COUNT", 1)
    account = harness.region.keyspace.account
    account.measure_changed(100, lambda: 0, 1)
    limit = account.used_bytes * 3 // 4
    harness.do("CONFIG", "SET", "stream-memory-hot", limit)
    wait(harness, AGE_MS)
    packed = [block.packed is not None for block in blocks(harness)]
    newer = packed[len(packed) // 2 :]
    assert account.used_bytes < limit
    assert not packed[0], "it was read"
    assert sum(packed) > 5
    assert not any(newer)
    harness.do("CONFIG", "SET", "stream-memory-hot", 1)
    wait(harness, AGE_MS)
    assert compressed(harness) == len(blocks(harness)) - 1, "it was spared once"
    assert harness.do("XRANGE", "s", "-", "+", "COUNT", 1) == first


def test_what_cannot_be_compressed_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = cold()
    chance = random.Random(1)
    for _ in range(500):
        harness.raw("XADD", "s", "*", "f", chance.randbytes(300))
    wait(harness, 3 * AGE_MS)
    assert compressed(harness) == 0
    cache = harness.region.keyspace.block_cache
    tried = []
    monkeypatch.setattr(BlockCache, "compress", lambda *args, **_: tried.append(args), raising=True)
    wait(harness, 3 * AGE_MS)
    assert not tried
    assert not cache.held
