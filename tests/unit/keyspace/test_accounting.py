"""The running sum of what keys hold, against measuring every key."""

from __future__ import annotations

import io
import random

import pytest

from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.memory import _block_bytes, key_bytes, value_bytes
from anabranch.oplog.snapshot import Contents, Snapshot, load_snapshot
from anabranch.stream.stream import Stream
from tests.support.region_harness import Harness

ENOUGH = 1_000_000


def settle(harness: Harness) -> None:
    """Have everything measured that has changed."""
    keyspace = harness.region.keyspace
    keyspace.account.measure_changed(ENOUGH, harness.clock.ticks_ns, 10**12)


def measured(harness: Harness) -> int:
    """The sum by looking at every key."""
    return sum(
        key_bytes(key, value)
        for database in harness.region.keyspace.databases
        for key, value in database.values.items()
    )


def compare(harness: Harness) -> None:
    """Every value is counted as it is; of a stream, entries of its newest node may be missing."""
    for database in harness.region.keyspace.databases:
        for value in database.values.values():
            size = value_bytes(value)
            if isinstance(value, Stream):
                tails = [log.tail for log in value.logs.values() if log.tail is not None]
                newest = sum(_block_bytes(tail) for tail in tails)
                assert size - newest <= value.counted_bytes <= size + newest
            else:
                assert value.counted_bytes == size


LINES = (
    *("XADD {k} * f v", "XADD {k} * f {long}", "XADD {k} MAXLEN 3 * f v", "XTRIM {k} MAXLEN 2"),
    *("XGROUP CREATE {k} g 0 MKSTREAM", "XREADGROUP GROUP g {c} COUNT 5 STREAMS {k} >"),
    *("XACK {k} g 1-1", "XDEL {k} 1-1", "XADD {k} IDMP p {c} * f v", "XGROUP DESTROY {k} g"),
    *("SET {s} {long}", "SET {s} v", "APPEND {s} more", "RPUSH {l} a b {long}", "LPOP {l}"),
    *("MSET {s} v s0 {long} {s} {long}", "MSET {k} v {l} v {s} w", "MSETNX new v {s} v"),
    *("SADD {t} a {c} {long}", "DEL {k} {s}", "RENAME {k} {k2}", "COPY {k} {k2} REPLACE"),
    *(
        "MOVE {k} 1",
        "SWAPDB 0 1",
        "EXPIRE {k} 1",
        "FLUSHDB",
        "DEBUG RELOAD",
        "XAUTOCLAIM {k} g {c} 0 0",
    ),
)


@pytest.mark.parametrize("region", [0, 1], ids=["alone", "region"])
@pytest.mark.parametrize("seed", range(4))
def test_the_sum_is_that_of_all_keys_whatever_happens(seed: int, region: int) -> None:
    rng = random.Random(seed)
    harness = Harness(region_id=region, enable_debug_command="yes")
    for step in range(600):
        line = rng.choices(LINES, [1 if "FLUSH" in each else 20 for each in LINES])[0]
        if region and line == "DEBUG RELOAD":  # the disk of the harness knows no regions
            continue
        words = {
            "k": f"k{rng.randrange(5)}",
            "k2": f"k{rng.randrange(5)}",
            "s": f"s{rng.randrange(3)}",
            "l": f"l{rng.randrange(3)}",
            "t": f"t{rng.randrange(3)}",
            "c": f"c{rng.randrange(4)}",
            "long": "x" * rng.randrange(3000),
        }
        harness.raw(*(word.format(**words) or "x" for word in line.split()))
        harness.advance(rng.randrange(50))
        if step % 50 == 49:
            harness.check()
            harness.region.tick()
            harness.region.tick()
            settle(harness)
            compare(harness)
    harness.do("FLUSHALL")
    settle(harness)
    account = harness.region.keyspace.account
    assert account.used_bytes == account.beside_bytes, "only tags that other regions may lack"


def test_what_is_not_measured_yet_is_extrapolated() -> None:
    harness = Harness()
    for number in range(200):
        harness.do("SET", f"k{number}", "v" * 10_000)
    account = harness.region.keyspace.account
    account.measure_changed(20, harness.clock.ticks_ns, 10**12)
    assert account.due == 180
    assert account.used_bytes == pytest.approx(measured(harness), rel=0.01)


def test_many_entries_are_counted_within_a_tick() -> None:
    harness = Harness()
    before = harness.region.dispatcher.used_memory()
    for _ in range(20_000):
        harness.do("XADD", "s", "*", "field", "value")
    harness.region.tick()
    assert harness.region.dispatcher.used_memory() - before == pytest.approx(
        harness.do("MEMORY", "USAGE", "s"), rel=0.02
    )


def test_a_long_entry_is_counted_although_it_opens_no_node() -> None:
    harness = Harness()
    harness.do("CONFIG", "SET", "stream-node-max-bytes", "0")
    harness.do("XADD", "s", "*", "field", "value")
    harness.region.tick()
    harness.do("XADD", "s", "*", "field", "v" * 1_000_000)
    harness.region.tick()
    assert harness.region.dispatcher.used_memory() > 1_000_000


def test_what_is_measured_while_it_is_loaded_is_measured_again() -> None:
    source = Harness()
    for number in range(2000):
        source.do("XADD", "s", "*", "f", random.Random(number).randbytes(100))
    source.do("XGROUP", "CREATE", "s", "g", "0")
    source.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    state = Snapshot(source.region.keyspace, Contents(1)).whole()
    often, once = Keyspace(), Keyspace()
    for _ in load_snapshot(io.BytesIO(state), "state", often):
        often.account.measure_changed(ENOUGH, source.clock.ticks_ns, 10**12)
    for _ in load_snapshot(io.BytesIO(state), "state", once):
        pass
    once.account.measure_changed(ENOUGH, source.clock.ticks_ns, 10**12)
    assert often.account.used_bytes == once.account.used_bytes > 200_000
