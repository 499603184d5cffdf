"""Scripts in regions: their effects travel as one transaction, and the regions converge."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import redis

from anabranch.testing import Cluster

SETTLE_S = 60.0
BOTH = "redis.call('XADD', 'a', '*', 'n', ARGV[1]) redis.call('XADD', 'b', '*', 'n', ARGV[1]) "
LIBRARY = "#!lua name=lib\nredis.register_function('which', function() return '%s' end)"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        yield started


@pytest.fixture(autouse=True)
def fresh(cluster: Cluster) -> None:
    cluster.heal()
    cluster.eu.execute("FLUSHALL")
    cluster.settle(SETTLE_S)


def clients(cluster: Cluster) -> list[redis.Redis]:
    return [redis.Redis(port=region.port) for region in cluster]


def test_a_script_arrives_as_one_transaction(cluster: Cluster) -> None:
    here, there, _ = clients(cluster)
    cluster.delay("eu", "us", 1)

    def write() -> None:
        for number in range(100):
            here.eval(BOTH + "if ARGV[1] % 7 == 0 then redis.call('XTRIM', 'a', 'MAXLEN', 3) "
                      "redis.call('XTRIM', 'b', 'MAXLEN', 3) end", 0, number)  # fmt: skip

    writer = threading.Thread(target=write)
    writer.start()
    last = b"0"
    deadline = time.monotonic() + SETTLE_S
    while last != b"99":
        a, b = there.eval_ro(
            "return {redis.call('XRANGE', 'a', '-', '+'), redis.call('XRANGE', 'b', '-', '+')}", 0
        )
        assert [fields for _, fields in a] == [fields for _, fields in b]
        last = a[-1][1][1] if a else b"0"
        assert time.monotonic() < deadline
    writer.join()
    cluster.settle(SETTLE_S)
    cluster.assert_converged()


def test_ids_of_scripts_in_all_regions_are_distinct_and_ascend(cluster: Cluster) -> None:
    script = (
        "local ids = {} for n = 1, 5 do ids[n] = redis.call('XADD', KEYS[1], '*', 'n', n) end "
        "return ids"
    )
    cluster.clock.freeze()
    made = [client.eval(script, 1, "s") for client in clients(cluster) for _ in range(3)]
    cluster.clock.resume()
    parsed = [[tuple(map(int, each.split(b"-"))) for each in ids] for ids in made]
    assert all(ids == sorted(set(ids)) for ids in parsed)
    assert len({each for ids in made for each in ids}) == 45
    cluster.settle(SETTLE_S)
    cluster.assert_converged()
    assert [client.xlen("s") for client in clients(cluster)] == [45] * 3


def test_scripts_in_regions_that_are_cut_converge(cluster: Cluster) -> None:
    eu, us, ap = clients(cluster)
    first = eu.eval(
        "local ids = {} for n = 1, 10 do ids[n] = redis.call('XADD', 's', '*', 'n', n) end "
        "return ids", 0,
    )  # fmt: skip
    eu.eval("redis.call('XGROUP', 'CREATE', 's', 'g', 0)", 0)
    cluster.settle(SETTLE_S)
    cluster.isolate("ap")
    for client, name in ((eu, "eu"), (us, "us"), (ap, "ap")):
        for number in range(5):
            client.eval(
                "redis.call('XADD', 's', '*', 'by', ARGV[1]) "
                "redis.call('XDEL', 's', ARGV[2]) "
                "redis.call('XREADGROUP', 'GROUP', 'g', ARGV[1], 'COUNT', 1, 'STREAMS', 's', '>')",
                0, name, first[number + 2 * (name == 'ap')],
            )  # fmt: skip
    cluster.heal()
    cluster.settle(SETTLE_S)
    cluster.assert_converged()
    assert {client.xlen("s") for client in (eu, us, ap)} == {18}


def test_effects_of_others_wait_for_a_script_that_takes_long(cluster: Cluster) -> None:
    eu, us, _ = clients(cluster)
    eu.config_set("busy-reply-threshold", 30)
    killed = []

    def endless() -> None:
        try:
            eu.eval("while redis.call('XLEN', 's') == 0 do end return 'seen'", 0)
        except redis.ResponseError as problem:
            killed.append(str(problem))

    script = threading.Thread(target=endless)
    script.start()
    other = redis.Redis(port=cluster.eu.port)
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            other.get("a")
        except redis.ResponseError:
            break
        assert time.monotonic() < deadline
    us.xadd("s", {"f": "v"})
    other.script_kill()
    script.join()
    assert "Script killed by user" in killed[0]  # it never saw the entry
    cluster.settle(SETTLE_S)
    assert other.xlen("s") == 1


def test_a_library_belongs_to_the_region_that_loaded_it(cluster: Cluster) -> None:
    eu, us, ap = clients(cluster)
    eu.function_load(LIBRARY % "eu", replace=True)
    us.function_load(LIBRARY % "us", replace=True)
    cluster.settle(SETTLE_S)
    cluster.assert_converged()
    assert (eu.fcall("which", 0), us.fcall("which", 0)) == (b"eu", b"us")
    assert ap.function_list() == []
    with pytest.raises(redis.ResponseError, match="Function not found"):
        ap.fcall("which", 0)
    cluster.us.restart()
    us = redis.Redis(port=cluster.us.port)
    cluster.settle(SETTLE_S)
    assert us.fcall("which", 0) == b"us"
    us.function_flush()
    assert eu.fcall("which", 0) == b"eu"
