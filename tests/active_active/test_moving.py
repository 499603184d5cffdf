"""Streams that come into a region and leave it: what groups had done stays done, and no more."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.effects import adopting, kinds
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import PendingList
from anabranch.stream.image import StreamImage
from anabranch.stream.stream import Stream
from tests.support.grouped import GROUPS, grouped
from tests.support.images import comparable
from tests.support.mesh import Mesh, Node
from tests.support.payloads import decode_payload
from tests.support.region_harness import Harness
from tests.support.servers import REPOSITORY

COUNT_MAX = 10_000
NOW_MS = 1_700_000_000_000


def groups(node: Node | Harness, key: str) -> dict[str, Any]:
    """What XINFO STREAM FULL says about a key's groups, by name."""
    info = _pairs(node.do("XINFO", "STREAM", key, "FULL", "COUNT", 0))
    found = {}
    for group in map(_pairs, info[b"groups"]):
        group[b"consumers"] = list(map(_pairs, group[b"consumers"]))
        found[group[b"name"].decode()] = group
    return found


def _pairs(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def pending(node: Node | Harness, key: str) -> list[Any]:
    return node.do("XPENDING", key, "g", "-", "+", COUNT_MAX)


def read(node: Node | Harness, key: str, consumer: str = "z") -> list[bytes]:
    reply = node.do("XREADGROUP", "GROUP", "g", consumer, "STREAMS", key, ">")
    return [entry[0] for entry in reply[0][1]] if reply else []


def server() -> Harness:
    """A server of its own with a group in every sort of state."""
    one = Harness()
    for number in range(1, 11):
        one.do("XADD", "x", f"{number}-1", "f", number)
    one.do("XGROUP", "CREATE", "x", "g", "0")
    one.do("XREADGROUP", "GROUP", "g", "a", "COUNT", 4, "STREAMS", "x", ">")
    one.advance(7)
    one.do("XREADGROUP", "GROUP", "g", "b", "COUNT", 3, "STREAMS", "x", ">")
    one.do("XGROUP", "CREATECONSUMER", "x", "g", "idle")
    one.do("XACK", "x", "g", "3-1")
    one.do("XNACK", "x", "g", "FAIL", "IDS", 2, "6-1", "5-1")
    one.do("XCLAIM", "x", "g", "b", 0, "1-1", "RETRYCOUNT", 9, "TIME", 123)
    one.do("XDEL", "x", "2-1", "9-1")
    return one


def test_a_group_goes_on_in_a_region_and_comes_back_as_it_was() -> None:
    one, mesh = server(), Mesh(2, xadd_id_uniqueness_mode="liberal")
    eu, us = mesh.nodes.values()
    eu.clock.us = one.clock.us
    eu.do("RESTORE", "x", 0, one.do("DUMP", "x"))
    assert pending(eu, "x") == pending(one, "x")
    assert groups(eu, "x")["g"][b"consumers"] == groups(one, "x")["g"][b"consumers"]
    one.do("RESTORE", "back", 0, eu.do("DUMP", "x"))
    assert pending(one, "back") == pending(one, "x")
    mesh.settle()
    assert pending(us, "x") == []
    assert read(us, "x") == [b"1-1", b"4-1", b"5-1", b"6-1", b"7-1", b"8-1", b"10-1"]
    claimed = [
        node.do("XREADGROUP", "GROUP", "g", "z", "CLAIM", 5, "STREAMS", key, ">")[0][1]
        for node, key in ((one, "x"), (eu, "x"), (one, "back"))
    ]
    assert claimed[1] == claimed[0]
    assert claimed[2] == claimed[0]
    assert read(eu, "x") == []


def test_what_was_open_in_a_region_that_got_a_stream_travels_once_acknowledged() -> None:
    one, mesh = server(), Mesh(2)
    eu, us = mesh.nodes.values()
    eu.do("RESTORE", "x", 0, one.do("DUMP", "x"))
    ids = [row[0] for row in pending(eu, "x")]
    assert eu.do("XACK", "x", "g", *ids) == 6
    mesh.settle()
    assert read(us, "x") == [b"8-1", b"10-1"]


def test_a_restart_and_a_snapshot_keep_what_came() -> None:
    one, mesh = server(), Mesh(1)
    eu = mesh.nodes[1]
    eu.do("RESTORE", "x", 0, one.do("DUMP", "x"))
    eu.do("COPY", "x", "y")
    due = groups(eu, "x"), groups(eu, "y")
    eu.sync()
    eu.restart()
    assert (groups(eu, "x"), groups(eu, "y")) == due
    eu.snapshot()
    eu.restart()
    assert (groups(eu, "x"), groups(eu, "y")) == due
    assert due[0] == due[1]


def test_a_region_that_loses_what_came_delivers_it_again() -> None:
    one, mesh = server(), Mesh(2)
    eu = mesh.nodes[1]
    eu.do("RESTORE", "x", 0, one.do("DUMP", "x"))
    mesh.send(1, 2)  # what was not on the disk of eu
    eu.fail()
    mesh.settle()
    assert pending(eu, "x") == []
    assert read(eu, "x") == [b"1-1", b"4-1", b"5-1", b"6-1", b"7-1", b"8-1", b"10-1"]


def test_what_only_other_regions_deliver_is_delivered_there_from_a_copy() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    for ms in range(100, 108):
        eu.do("XADD", "x", ms, "f", "v")
    eu.do("XGROUP", "CREATE", "x", "g", 0)
    eu.do("XREADGROUP", "GROUP", "g", "gone", "COUNT", 1, "STREAMS", "x", ">")
    eu.do("XREADGROUP", "GROUP", "g", "c", "COUNT", 3, "STREAMS", "x", ">")
    eu.do("XGROUP", "DELCONSUMER", "x", "g", "gone")
    eu.do("XACK", "x", "g", "101-1", "102-1", "103-1")
    eu.do("XCLAIM", "x", "g", "c", 0, "0-1", "LASTID", "105-1")
    eu.do("COPY", "x", "y")
    mesh.settle()
    assert read(eu, "y") == read(eu, "x") == [b"106-1", b"107-1"]
    assert read(us, "y") == [b"100-1", b"104-1", b"105-1", b"106-1", b"107-1"]
    eu.do("XACK", "y", "g", *(row[0] for row in pending(eu, "y")))
    mesh.settle()
    assert us.do("XACK", "y", "g", b"100-1", b"104-1", b"105-1") == 3
    mesh.settle()
    eu.do("XADD", "y", 200, "f", "v")  # what was held back goes with the next acknowledgement
    assert read(eu, "y") == [b"200-1"]
    eu.do("XACK", "y", "g", "200-1")
    mesh.settle()
    assert pending(us, "y") == read(us, "y") == []


def test_idempotent_ids_records_and_counters_come_along() -> None:
    one, mesh = Harness(), Mesh(2, xadd_id_uniqueness_mode="liberal")
    eu = mesh.nodes[1]
    eu.clock.us = one.clock.us
    one.do("XADD", "x", "1-1", "f", "v")
    one.do("XCFGSET", "x", "IDMP-MAXSIZE", 2)
    made = [one.do("XADD", "x", "IDMP", "p", f"i{n}", "*", "f", "v") for n in range(4)]
    one.do("XADD", "x", "IDMP", "p", "i3", "*", "f", "v")
    one.do("XDEL", "x", "1-1")
    eu.do("RESTORE", "x", 0, one.do("DUMP", "x"))
    assert eu.do("XINFO", "STREAM", "x") == one.do("XINFO", "STREAM", "x")
    eu.do("COPY", "x", "y")
    assert eu.do("XINFO", "STREAM", "y") == one.do("XINFO", "STREAM", "x")
    assert eu.do("XADD", "y", "IDMP", "p", "i2", "*", "f", "v") == made[2]
    row = (1).to_bytes(4, "little") + (18).to_bytes(4, "little") + b"*2\r\n$1\r\nf\r\n$1\r\nv\r\n"
    eu.do("AB.IMPORT", "z", "PRODUCER", "job", "BATCH", 3, "EXPECT", 0, row)
    eu.do("RENAME", "z", "zz")
    mesh.settle()
    assert mesh.nodes[2].do("AB.LEDGER", "zz") == eu.do("AB.LEDGER", "zz")
    assert [each[:3] for each in eu.do("AB.LEDGER", "zz")] == [[b"job", 3, 1]]


def test_the_work_grows_with_the_pending_entries_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0
    between = PendingList.between

    def counted(self: PendingList, start: int, end: int) -> Iterator[PendingEntry]:
        nonlocal looks
        for entry in between(self, start, end):
            looks += 1
            yield entry

    count = 400
    monkeypatch.setattr(adopting, "SETTLED_RANGES_MAX", count // 3)
    one, mesh = Harness(), Mesh(2, xadd_id_uniqueness_mode="liberal")
    eu, us = mesh.nodes.values()
    ids = [f"{number}-1" for number in range(1, 2 * count + 1)]
    for each in ids:
        one.raw("XADD", "x", each, "f", "v")
    one.do("XGROUP", "CREATE", "x", "g", 0)
    read(one, "x")
    one.do("XACK", "x", "g", *ids[::2])  # so that each pending entry stands alone
    payload = one.do("DUMP", "x")
    monkeypatch.setattr(PendingList, "between", counted)
    eu.do("RESTORE", "x", 0, payload)
    eu.do("COPY", "x", "y")
    assert looks < 20 * count
    assert [len(each.ranges) for each in eu.issued if isinstance(each, kinds.AcknowledgeRuns)] == [
        *(133, 133, 133, 1),
        *(133, 133, 133, 1),
    ]
    looks = 0
    for each in ids[1::2][:50]:
        eu.do("XACK", "y", "g", each)
    assert looks < 20 * 50
    mesh.settle()
    assert us.do("XINFO", "GROUPS", "y")[0][-1] == count - 50


# -- whatever there is ----------------------------------------------------------------------------


def image(payload: bytes, known: bytes = b"") -> StreamImage:
    """What a payload says; see :func:`comparable`."""
    return comparable(decode_payload(payload), decode_payload(known or payload))


def still_due(node: Node | Harness, key: str, group: str) -> list[bytes]:
    """What a group delivers, first what is new and then what is claimed."""
    words = ("XREADGROUP", "GROUP", group, "z", "STREAMS", key, ">")
    got = [entry[0] for _, entries in node.do(*words) or () for entry in entries]
    _, claimed, gone = node.do("XAUTOCLAIM", key, group, "z", 0, 0, "COUNT", COUNT_MAX, "JUSTID")
    return [*got, b"claimed", *claimed, b"gone", *gone]


@given(st.integers(0, 1 << 40))
@settings(max_examples=int(os.environ.get("ANABRANCH_MOVES", "60")), deadline=None)
def test_random_groups_are_the_same_in_a_region_and_back_again(seed: int) -> None:
    chance = random.Random(seed)
    one, mesh = Harness(), Mesh(3, xadd_id_uniqueness_mode="liberal")
    eu, us, ap = mesh.nodes.values()
    for words in grouped(chance, "x", nacks=True):
        one.do(*words)
        one.advance(chance.choice([0, 1]))
    eu.clock.us = one.clock.us
    payload = one.do("DUMP", "x")
    eu.do("RESTORE", "x", 0, payload)  # while it is cut off
    eu.do("COPY", "x", "y")
    if chance.random() < 0.5:
        mesh.settle()
    assert image(eu.do("DUMP", "x"), payload) == image(payload)
    assert image(eu.do("DUMP", "y"), payload) == image(payload)
    one.do("RESTORE", "back", 0, eu.do("DUMP", "y"))
    mesh.settle()
    assert us.do("AB.DIGEST", "x", "y") == eu.do("AB.DIGEST", "x", "y")
    for name in GROUPS:
        assert exact_lag(eu, name) == exact_lag(one, name)
        elsewhere = still_due(ap, "x", name)
        here = still_due(one, "x", name)
        assert still_due(eu, "x", name) == here
        assert still_due(eu, "y", name) == here
        assert still_due(one, "back", name) == here
        # Other regions are given what is not done, in one sequence.
        at, end = here.index(b"claimed"), here.index(b"gone")
        due_there = sorted({*here[:at], *here[at + 1 : end]}, key=_order)
        assert elsewhere[: len(due_there)] == due_there
        assert elsewhere[len(due_there)] == b"claimed"
    for node in mesh.nodes.values():
        for value in node.region.keyspace.databases[0].values.values():
            assert isinstance(value, Stream)
            value.check()


def exact_lag(node: Node | Harness, group: str) -> int:
    (row,) = node.do("AB.LAG", "x", group)
    return int(_pairs(row)[b"lag"])


def _order(entry_id: bytes) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split(b"-")))


RECORDED = [
    json.loads(line)
    for line in (REPOSITORY / "tests/unit/rdb/fixtures/streams.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda each: f"{each['source']}: {each['name']}")
def test_payloads_of_redis_come_out_of_a_region_as_they_went_in(recorded: dict[str, Any]) -> None:
    payload = bytes.fromhex(recorded["payload"])
    mesh = Mesh(1)
    mesh.nodes[1].clock.us = NOW_MS * 1000
    mesh.nodes[1].do("RESTORE", "x", 0, payload)
    found, due = image(mesh.nodes[1].do("DUMP", "x"), payload), image(payload)
    if found.producers != due.producers:  # what is past its age is left out, here as anywhere
        one = Harness(NOW_MS)
        one.do("RESTORE", "x", 0, payload)
        due.producers = image(one.do("DUMP", "x")).producers
    assert found == due
