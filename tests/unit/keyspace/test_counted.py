"""What is counted for ``maxmemory`` against what Python says is held, for many shapes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from tests.support.region_harness import Harness

Fill = Callable[[Harness], None]


def adds(count: int, *words: str) -> Fill:
    def fill(harness: Harness) -> None:
        for _ in range(count):
            harness.raw("XADD", "s", "*", *(words or ("f", "v")))

    return fill


def settle(harness: Harness) -> None:
    """Have everything measured that has changed."""
    account = harness.region.keyspace.account
    for _ in range(2):
        account.measure_changed(1_000_000, harness.clock.ticks_ns, 10**12)


def keys(harness: Harness) -> None:
    for number in range(500):
        harness.raw("XADD", f"k{number:04}", "*", "f", "v")


def pending(consumers: int) -> Fill:
    def fill(harness: Harness) -> None:
        adds(2000)(harness)
        harness.raw("XGROUP", "CREATE", "s", "g", "0")
        for number in range(consumers):
            share = 2000 // consumers
            harness.raw(
                "XREADGROUP", "GROUP", "g", f"c{number}", "COUNT", share, "STREAMS", "s", ">"
            )

    return fill


def names(kind: str) -> Fill:
    def fill(harness: Harness) -> None:
        adds(10)(harness)
        harness.raw("XGROUP", "CREATE", "s", "g", "0")
        for number in range(600):
            if kind == "consumers":
                harness.raw("XGROUP", "CREATECONSUMER", "s", "g", f"consumer-{number}")
            else:
                harness.raw("XGROUP", "CREATE", "s", f"group-{number}", "0")

    return fill


def messages(producers: int) -> Fill:
    def fill(harness: Harness) -> None:
        harness.raw("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        harness.raw("XCFGSET", "s", "IDMP-MAXSIZE", 10000)
        for number in range(2000):
            pid, iid = f"p{number % producers}", f"message-{number}"
            harness.raw("XADD", "s", "IDMP", pid, iid, "*", "f", "v")

    return fill


def deleted(harness: Harness) -> None:
    adds(2000)(harness)
    ids = [entry[0] for entry in harness.do("XRANGE", "s", "-", "+")]
    harness.raw("XDEL", "s", *ids[::2])


def strings(harness: Harness) -> None:
    for number in range(50):
        harness.raw("SET", f"k{number}", b"%d" % number + b"x" * 20_000)
        harness.raw("APPEND", f"k{number}", "y")


def elements(command: str, together: int) -> Fill:
    def fill(harness: Harness) -> None:
        for at in range(0, 2000, together):
            harness.raw(command, "s", *[f"member-{each:08}" for each in range(at, at + together)])

    return fill


SHAPES: dict[str, Fill] = {
    "tiny entries": adds(5000),
    "entries of 200 bytes": adds(3000, "f", "v" * 200),
    "entries of many fields": adds(2000, *"abcdefghijklmnop"),
    "one open node": adds(90),
    "many keys": keys,
    "pending entries": pending(1),
    "pending entries of many consumers": pending(200),
    "consumers": names("consumers"),
    "groups": names("groups"),
    "messages of one producer": messages(1),
    "messages of many producers": messages(200),
    "every other entry deleted": deleted,
    "long strings": strings,
    "members one by one": elements("SADD", 1),
    "members in tens": elements("SADD", 10),
    "members at once": elements("SADD", 2000),
    "items one by one": elements("RPUSH", 1),
    "items at once": elements("RPUSH", 2000),
}


@pytest.mark.parametrize("region", [0, 1], ids=["alone", "region"])
@pytest.mark.parametrize("fill", SHAPES.values(), ids=SHAPES.keys())
def test_what_is_counted_is_what_is_held(fill: Fill, region: int) -> None:
    harness = Harness(region_id=region)
    for _ in range(2):  # caches, and what is made once
        harness.raw("XADD", "warm", "IDMP", "p", "i", "*", "f", "v")
        harness.raw("DEL", "warm")
        harness.region.tick()
    account = harness.region.keyspace.account
    counted = account.used_bytes
    gc.collect()
    tracemalloc.start()
    try:
        fill(harness)
        settle(harness)
        harness.region.tick()  # measures what is held beside the keys
        gc.collect()
        held = account.used_bytes - counted, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held[0] == pytest.approx(held[1], rel=0.25)


def test_entries_that_were_just_added_are_compact() -> None:
    """Only the newest block may hold objects for each entry; nothing runs in the background."""
    harness = Harness()
    adds(100)(harness)
    tracemalloc.start()
    try:
        adds(10_000)(harness)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 10_000 * 70, "fragments alone take 45"
    finally:
        tracemalloc.stop()


def test_tags_that_are_held_for_other_regions_are_counted() -> None:
    harness = Harness(region_id=1)
    messages(1)(harness)
    harness.raw("DEL", "s")
    settle(harness)
    harness.region.tick()
    conflicts = harness.region.keyspace.replica.conflicts  # type: ignore[union-attr]
    assert len(conflicts) == 2000
    assert harness.region.dispatcher.used_memory() >= conflicts.size > 2000 * 50
