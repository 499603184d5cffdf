"""Streams by position and in bulk, where several regions write."""

from __future__ import annotations

import json
import struct
from itertools import accumulate
from typing import Any

from tests.support.mesh import Mesh, Node


def payload(*values: bytes) -> bytes:
    rows = [b"*2\r\n$1\r\nf\r\n$%d\r\n%b\r\n" % (len(value), value) for value in values]
    return struct.pack(f"<{len(rows) + 1}I", len(rows), *accumulate(map(len, rows))) + b"".join(
        rows
    )


def offsets(node: Node, key: str) -> dict[str, list[Any]]:
    (rows,) = node.do("AB.OFFSETS", "STREAMS", key)
    return {row[0].decode(): row[1:] for row in rows or ()}


def exported(node: Node, key: str, region: str, start: int, end: int) -> Any:
    return node.do("AB.EXPORT", key, region, start, end)


def test_positions_mean_the_same_entries_everywhere() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    for number in range(3):
        eu.do("XADD", "s", "*", "f", f"e{number}")
        us.do("XADD", "s", "*", "f", f"u{number}")
    mesh.settle()
    assert offsets(eu, "s").keys() == {"1", "2"}
    eu.do("XTRIM", "s", "MAXLEN", 2)
    mesh.settle()
    here, there = offsets(eu, "s"), offsets(us, "s")
    # base, first, next, length; the newest ID of the own log is that of the stream
    assert {name: (*row[:3], row[4]) for name, row in here.items()} == {
        name: (*row[:3], row[4]) for name, row in there.items()
    }
    assert {name: row[5] for name, row in here.items()} == {
        name: row[5] for name, row in there.items()
    }
    for name, row in here.items():
        assert row[5] == row[1], "all below the first entry was trimmed"
        assert exported(eu, "s", name, 0, row[2]) == exported(us, "s", name, 0, row[2])


def test_a_position_is_the_incarnation_and_the_entries_before() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    seen = 0
    for _ in range(3):
        eu.do("XADD", "s", "*", "f", "v")
        _, second = eu.do("XADD", "s", "*", "f", "v"), eu.do("XADD", "s", "*", "f", "v")
        eu.do("XDEL", "s", second)
        mesh.settle()
        incarnation, first, after = offsets(us, "s")["1"][:3]
        assert (first, after) == (incarnation, incarnation + 3)
        assert incarnation >= max(seen, 1), "above every earlier position, and never 0"
        seen = after
        us.do("DEL", "s")
        mesh.settle()


def test_what_a_reader_has_not_seen_yet_has_higher_positions_of_its_region() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    eu.do("XADD", "s", "*", "f", "first")
    mesh.settle()
    us.do("XADD", "s", "*", "f", "late")
    eu.do("XADD", "s", "*", "f", "second")
    before = offsets(eu, "s")
    mesh.settle()
    after = offsets(eu, "s")
    assert "2" not in before or before["2"][2] < after["2"][2]
    assert before["1"][2] == after["1"][2]


def test_a_bulk_producers_batch_is_in_everywhere_once() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    words = ("AB.IMPORT", "s", "PRODUCER", "p", "BATCH", 7, "EXPECT", 0, payload(b"a", b"b", b"c"))
    first = eu.do(*words)
    assert first[:2] == [1, 3]
    low, high = first[3:5]
    assert [int(each.split(b"-")[1]) % 256 for each in (low, high)] == [1, 1]
    mesh.settle()
    assert us.do("XLEN", "s") == 3
    again = us.do(*words)
    assert again[0] == 0, "the other region knows that the batch is in"
    mesh.settle()
    assert [node.do("XLEN", "s") for node in (eu, us)] == [3, 3]
    assert eu.do("AB.LEDGER", "s") == us.do("AB.LEDGER", "s")
    assert eu.do("XRANGE", "s", "-", "+") == us.do("XRANGE", "s", "-", "+")


def test_a_stream_that_began_anew_has_higher_positions() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    for _ in range(5):
        eu.do("XADD", "s", "*", "f", "v")
    mesh.settle()
    seen = offsets(us, "s")["1"][2]
    us.do("DEL", "s")
    mesh.settle()
    eu.do("XADD", "s", "*", "f", "v")
    mesh.settle()
    for node in (eu, us):
        _, first, end, *_ = offsets(node, "s")["1"]
        assert first >= seen
        assert end == first + 1


def test_positions_begin_where_the_key_was_deleted() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    for node in (eu, us):
        for _ in range(5):
            node.do("XADD", "s", "*", "f", "v")
    mesh.settle()
    read = {name: row[2] for name, row in offsets(us, "s").items()}
    eu.do("XADD", "s", "*", "f", "unread")
    mesh.settle()
    us.do("DEL", "s")
    us.do("XADD", "s", "*", "f", "new")
    mesh.settle()
    for node in (eu, us):
        rows = {row[0].decode(): row[1:] for row in node.do("AB.OFFSETS", "STREAMS", "s")[0]}
        assert rows["1"][0] == rows["1"][2] == rows["1"][5] == read["1"] + 1, "one was not read"
        assert rows["2"][:3] == [read["2"], read["2"], read["2"] + 1], "all was read"


def test_the_last_id_stays_where_the_newest_entries_are_deleted() -> None:
    mesh = Mesh(3)
    eu, us, late = mesh.nodes[1], mesh.nodes[2], mesh.nodes[3]
    ours = [eu.do("XADD", "s", "*", "f", number) for number in range(300)]
    theirs = [us.do("XADD", "s", "*", "f", number) for number in range(300)]
    mesh.settle([1, 2])
    for deletion in (
        ("XDEL", "s", ours[-1], theirs[-1]),
        ("XDEL", "s", *ours[100:], *theirs[100:]),
        ("XTRIM", "s", "MAXLEN", 0),
    ):
        us.do(*deletion)
        mesh.settle([1, 2])
        for node in (eu, us):
            rows = offsets(node, "s")
            assert [rows[region][3] for region in "12"] == [ours[-1], theirs[-1]]
            facts = node.do("XINFO", "STREAM", "s")
            newest = max(ours[-1], theirs[-1], key=lambda each: [*map(int, each.split(b"-"))])
            assert facts[facts.index(b"last-generated-id") + 1] == newest
    mesh.send_full_sync(1, 3)
    assert [offsets(late, "s")[region][3] for region in "12"] == [ours[-1], theirs[-1]]


# -- so many entries at a time ----------------------------------------------------------------


def stops(node: Node, vector: dict[str, int], limit: int) -> dict[str, list[Any]]:
    words = ("FROM", json.dumps([vector]), "LIMIT", limit, "STREAMS", "s")
    return {row[0].decode(): row[8:10] for row in node.do("AB.OFFSETS", *words)[0]}


def test_a_limit_is_shared_among_regions_so_that_none_waits() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    ours = [eu.do("XADD", "s", "*", "f", number) for number in range(90)]
    theirs = [us.do("XADD", "s", "*", "f", number) for number in range(10)]
    mesh.settle()
    heads = offsets(eu, "s")
    one, two = heads["1"][1], heads["2"][1]
    found = stops(eu, {}, 20)
    assert [found["1"][0] - one, found["2"][0] - two] == [18, 2]
    assert [found["1"][1], found["2"][1]] == [ours[17], theirs[1]]
    # a region that only turns up now begins at its first entry
    late = stops(eu, {"1": one + 90}, 4)
    assert [late["1"][0] - one, late["2"][0] - two] == [90, 4]
    assert stops(us, {}, 20) == found, "the same wherever one asks"


# -- records of old ---------------------------------------------------------------------------

RETENTION_S = 60


def bring(node: Node, pid: str, batch: int) -> None:
    words = ("AB.IMPORT", "s", "PRODUCER", pid, "BATCH", batch, "EXPECT", 0)
    assert node.do(*words, payload(b"a"))[0] == 1


def batches(node: Node) -> dict[bytes, int]:
    return {row[0]: row[1] for row in node.do("AB.LEDGER", "s")}


def pass_time(mesh: Mesh, seconds: int) -> None:
    """Clocks go on, and nobody does anything about it yet."""
    for node in mesh.nodes.values():
        node.clock.us += seconds * 1_000_000


def test_what_one_region_drops_is_dropped_everywhere() -> None:
    mesh = Mesh(3, ledger_retention=RETENTION_S)
    eu, us, ap = mesh.nodes.values()
    bring(eu, "old", 1)
    bring(us, "older", 1)
    mesh.settle()
    pass_time(mesh, RETENTION_S)
    bring(ap, "young", 1)
    mesh.settle()
    pass_time(mesh, 1)
    eu.tick()
    assert batches(eu) == {b"young": 1}
    assert batches(us).keys() == {b"old", b"older", b"young"}, "nobody drops by himself"
    us.tick()
    mesh.settle()
    assert [batches(node) for node in (eu, us, ap)] == [{b"young": 1}] * 3


def test_what_was_written_without_knowing_of_a_drop_stays() -> None:
    mesh = Mesh(2, ledger_retention=RETENTION_S)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    bring(eu, "p", 1)
    mesh.settle()
    pass_time(mesh, RETENTION_S + 1)
    bring(us, "p", 2)
    eu.tick()
    assert (batches(eu), batches(us)) == ({}, {b"p": 2})
    mesh.settle()
    assert [batches(node) for node in (eu, us)] == [{b"p": 2}] * 2
    bring(eu, "p", 3)
    bring(us, "p", 4)
    mesh.settle()
    pass_time(mesh, RETENTION_S + 1)
    us.tick()
    mesh.settle()
    assert [batches(node) for node in (eu, us)] == [{}, {}]


def test_of_two_records_of_a_producer_a_drop_takes_the_one_it_knows() -> None:
    mesh = Mesh(2, ledger_retention=RETENTION_S)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    bring(eu, "p", 9)
    pass_time(mesh, RETENTION_S + 1)
    bring(us, "p", 3)
    before = eu.missing(us.vector)
    eu.tick()
    mesh.send(1, 2, before)
    assert batches(us) == {b"p": 9}
    bring(us, "q", 1)
    mesh.settle()
    assert [batches(node) for node in (eu, us)] == [{b"p": 3, b"q": 1}] * 2
    assert list(batches(us)) == [b"q", b"p"], "what is shown now counts as used last"


def test_a_drop_reaches_a_region_that_gets_a_full_sync() -> None:
    mesh = Mesh(2, ledger_retention=RETENTION_S)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    bring(us, "late", 1)
    bring(us, "old", 1)
    mesh.settle()
    pass_time(mesh, RETENTION_S)
    bring(us, "late", 2)
    mesh.settle()
    pass_time(mesh, 1)
    eu.tick()
    mesh.send_full_sync(1, 2)
    assert batches(us) == {b"late": 2}
    assert us.replica.vector == eu.replica.vector


def test_what_came_as_a_state_is_dropped_in_the_order_of_its_last_use() -> None:
    mesh = Mesh(2, ledger_retention=RETENTION_S)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    pids = [f"p{number}" for number in range(10)]
    for batch, order in enumerate((pids, pids[::-1])):
        for pid in order:
            bring(us, pid, batch)
            pass_time(mesh, 1)
    mesh.send_full_sync(2, 1)
    assert list(batches(eu)) == [pid.encode() for pid in pids[::-1]]
    pass_time(mesh, RETENTION_S - 4)
    eu.tick()
    assert list(batches(eu)) == [b"p3", b"p2", b"p1", b"p0"]


def test_a_drop_where_the_key_was_deleted_leaves_nothing_behind() -> None:
    mesh = Mesh(2, ledger_retention=RETENTION_S)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    bring(eu, "p", 1)
    mesh.settle()
    pass_time(mesh, RETENTION_S + 1)
    eu.tick()
    us.do("DEL", "s")
    mesh.settle()
    mesh.settle()
    for node in (eu, us):
        assert node.do("EXISTS", "s") == 0
        assert not node.region.keyspace.databases[0].remembered
