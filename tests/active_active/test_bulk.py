"""Streams by position and in bulk, where several regions write."""

from __future__ import annotations

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
