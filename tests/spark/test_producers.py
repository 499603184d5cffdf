"""The example of producers: refused duplicates, short memories, rows accepted twice."""

from __future__ import annotations

import struct
import subprocess
import sys

from examples.spark.producers import examine
from tests.spark.reading import talking, url
from tests.spark.test_regions import part
from tests.support.inspection import wait_until
from tests.support.servers import REPOSITORY

NAMES = ("eu", "us")


def urls(regions) -> dict[str, str]:
    return dict(zip(NAMES, map(url, regions.servers), strict=True))


def add(client, pid, *iids, key="s"):
    for iid in iids:
        client.execute_command("XADD", key, "IDMP", pid, iid, "*", "f", iid)


def payload(*values: str) -> bytes:
    rows = [b"*2\r\n$1\r\nf\r\n$%d\r\n%b\r\n" % (len(each), each.encode()) for each in values]
    ends = [sum(map(len, rows[: at + 1])) for at in range(len(rows))]
    return struct.pack(f"<{len(rows) + 1}I", len(rows), *ends) + b"".join(rows)


def test_a_server_of_its_own_tells_refusals_and_short_memories(ours):
    with talking(ours) as client:
        client.execute_command("XADD", "s", "IDMP", "quiet", "1", "*", "f", "v")
        client.execute_command("XCFGSET", "s", "IDMP-MAXSIZE", 10, "IDMP-DURATION", 1000)
        add(client, "full", *range(12))
        add(client, "full", 11, 11)
        add(client, "roomy", *range(8))
        client.execute_command("XADD", "none", "*", "f", "v")
    done = examine({"": url(ours)})
    (memory,) = done.memories
    assert (memory.place, memory.duration_s, memory.maxsize) == ("s", 1000, 10)
    assert (memory.producers, memory.iids, memory.added, memory.refused) == (2, 18, 21, 2)
    assert [(each.producer, each.iids) for each in done.near_capacity] == [("full", 10)]
    assert 0 <= done.near_capacity[0].remembers_s < 60
    assert (done.near_expiry, done.twice, done.collapsed) == ([], [], [])
    assert done.producers == {("s", "full"), ("s", "roomy")}
    nearly = examine({"": url(ours)}, near=0.2)
    assert {each.producer for each in nearly.near_capacity} == {"full", "roomy"}


def test_a_producer_that_has_been_silent_for_long_is_near_expiry(ours):
    with talking(ours) as client:
        client.execute_command("XADD", "s", "*", "f", "v")
        client.execute_command("XCFGSET", "s", "IDMP-DURATION", 5)
        add(client, "p", 1)

        def expires_soon() -> bool:
            done = examine({"": url(ours)}, near=0.5)
            return [each.producer for each in done.near_expiry] == ["p"]

        assert not expires_soon()
        wait_until(expires_soon, "half of its time has passed", 4.5)


def test_what_two_regions_accepted(regions):
    eu, us = regions.servers
    part(regions)
    for server, rows in ((eu, "ab"), (us, "abc")):
        with talking(server) as client:
            add(client, "p", "once")
            client.execute_command(
                *("AB.IMPORT", "s", "PRODUCER", "bulk", "BATCH", 7, "EXPECT", 0, payload(*rows))
            )
    with talking(eu) as client:
        add(client, "p", "alone")
    parted = examine(urls(regions))
    assert parted.twice == parted.collapsed == []
    regions.heal()
    wait_until(regions.converged, "all have applied the same", 300)
    done = examine(urls(regions))
    (batch,) = done.twice
    assert (batch.stream, batch.producer, batch.regions) == ("s", "bulk", ("1", "2"))
    assert batch.what == "batch 7, rows 0 to 1"
    (collapsed,) = done.collapsed
    assert (collapsed.producer, collapsed.what) == ("p", "idempotent ID once")
    assert (collapsed.regions, collapsed.live) == (("1", "2"), 1)
    with talking(eu) as client:
        live = [each.decode() for each, _ in client.xrange("s")]
    assert [each in live for each in collapsed.ids].count(True) == 1


def test_what_both_regions_keep_is_there_twice(regions):
    for server in regions.servers:
        regions.call(server, "CONFIG", "SET", "idmp-conflict", "keep")
    part(regions)
    for server in regions.servers:
        with talking(server) as client:
            add(client, "p", "once", b"\x00\xff")
    regions.heal()
    wait_until(regions.converged, "all have applied the same", 300)
    for server in regions.servers:
        regions.call(server, "CONFIG", "SET", "idmp-conflict", "collapse")
    done = examine(urls(regions))
    assert {each.what for each in done.twice} == {"idempotent ID once", "idempotent ID 0x00ff"}
    assert {each.live for each in done.twice} == {2}
    told = subprocess.run(
        [
            *(sys.executable, str(REPOSITORY / "examples/spark/producers.py")),
            *(f"{name}={place}" for name, place in urls(regions).items()),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1, told.stderr
    assert told.stdout.count("TWICE: s p: idempotent ID") == 2
