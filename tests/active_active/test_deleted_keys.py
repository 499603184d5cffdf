"""Very many keys are deleted while a member is away: what is left of them, and for how long."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import msgspec
import pytest

from anabranch.cli.inspect_values import record_fields
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.packed_table import map_of
from anabranch.keyspace.places import Places
from anabranch.keyspace.remembered import BATCH, OBJECTS_MAX
from anabranch.oplog import snapshot
from anabranch.oplog.errors import LogError
from anabranch.oplog.file_kind import HEADER_BYTES
from anabranch.oplog.inspection import SeenRecord, Survey
from anabranch.oplog.snapshot import Contents, Snapshot, records_in
from anabranch.scheduling import in_one_go
from anabranch.simulator.disk import MemoryStorage
from anabranch.stream.frozen import FrozenStream
from tests.support.mesh import Mesh, Node
from tests.support.packing import packing_at_once

COUNT = 3000


def parted(count: int) -> Mesh:
    """Three regions that had keys; the third one is away, and the first one has deleted them."""
    mesh = Mesh(3)
    one = mesh.nodes[1]
    for number in range(count):
        one.do("XADD", f"key:{number}", "*", "f", "v")
    mesh.settle()
    mesh.cut_links |= {frozenset((1, 3)), frozenset((2, 3))}
    for number in range(count):
        one.do("DEL", f"key:{number}")
    mesh.settle()
    return mesh


def marks(node: Node) -> tuple[int, int, int]:
    """Keys with tombstones, their tombstones, and the unstable ones, as AB.INFO tells."""
    info = node.do("AB.INFO")
    rows = dict(zip(info[::2], info[1::2], strict=True))
    return rows[b"marked-keys"], rows[b"mark-count"], rows[b"unstable-mark-count"]


def test_few_of_them_are_objects_and_all_are_remembered_until_everybody_has_them() -> None:
    mesh = parted(COUNT)
    one, two, three = mesh.nodes.values()
    for node in (one, two):
        remembered = node.region.keyspace.databases[0].remembered
        assert len(remembered) == COUNT
        assert len(remembered.objects) < OBJECTS_MAX + BATCH
        assert marks(node) == (COUNT, COUNT, COUNT)
    one.sync()
    one.snapshot()
    one.restart()
    assert marks(one) == (COUNT, COUNT, COUNT), "after a restart"
    one.do("DEL", "key:0", "key:1")
    assert marks(one) == (COUNT, COUNT, COUNT), "they do not exist"
    for number in range(0, COUNT, 100):
        one.do("AB.INFO", f"key:{number}")
    assert marks(one) == (COUNT, COUNT, COUNT), "who looks at a key changes nothing"

    mesh.cut_links.clear()
    mesh.settle()
    for node in (one, two, three):
        for _ in range(20):
            node.tick()
        assert marks(node) == (0, 0, 0)
        assert not node.region.keyspace.databases[0].remembered


def test_they_are_counted_at_once() -> None:
    one = Mesh(2).nodes[1]
    for number in range(COUNT):
        one.do("XADD", f"key:{number}", "*", "f", "v")
        one.do("DEL", f"key:{number}")
    assert len(one.region.keyspace.databases[0].remembered.objects) < COUNT
    assert marks(one) == (COUNT, COUNT, COUNT)


def test_a_restart_knows_which_keys_a_member_lacks() -> None:
    with packing_at_once():
        mesh = parted(40)
        one, _, three = mesh.nodes.values()
        due = in_one_go(one.replica.last_effects.beyond(three.vector))
        one.sync()
        one.snapshot()
        one.restart()
        again = in_one_go(one.replica.last_effects.beyond(three.vector))
    assert due is not None
    assert again is not None
    assert sorted(again) == sorted(due)
    assert {key for _, key in due} == {b"key:%d" % number for number in range(40)}


def test_what_has_more_than_tombstones_is_not_packed() -> None:
    with packing_at_once():
        mesh = parted(40)
        one, two, _ = mesh.nodes.values()
        for node in (one, two):
            node.do("XADD", "key:1", "*", "f", "v")
        mesh.settle()
        one.do("DEL", "key:1")
        two.do("PEXPIREAT", "key:1", "99999999999999")
        mesh.settle()
        for number in range(2, 40):
            one.do("AB.INFO", f"key:{number}")
        one.do("XADD", "key:1", "*", "f", "again")
        assert one.do("PTTL", "key:1") == -1, "the deadline was that of the deleted key"


def test_a_packed_deletion_beats_what_it_has_not_seen_as_any_other_does() -> None:
    with packing_at_once():
        mesh = parted(40)
        one, _, three = mesh.nodes.values()
        three.do("XGROUP", "CREATE", "key:3", "g", "0")
        three.do("XADD", "key:5", "*", "from", "three")
        three.do("PEXPIREAT", "key:7", "99999999999999")
        assert len(one.region.keyspace.databases[0].remembered.objects) == 1
        mesh.cut_links.clear()
        mesh.settle()
        for node in mesh.nodes.values():
            for _ in range(20):
                node.tick()
            assert node.do("EXISTS", *(f"key:{number}" for number in range(40))) == 1
            ((_, fields),) = node.do("XRANGE", "key:5", "-", "+")
            assert fields == [b"from", b"three"]
            node.region.keyspace.databases[0].check()


def test_a_stream_that_was_packed_is_the_same_stream() -> None:
    plain = parted(40).nodes[1]
    with packing_at_once():
        packing = parted(40).nodes[1]
    assert len(packing.region.keyspace.databases[0].remembered.objects) == 1
    for number in range(40):
        key = f"key:{number}"
        assert packing.do("AB.INFO", key) == plain.do("AB.INFO", key)


def kinds_of(data: bytes) -> Counter[int]:
    return Counter(record[0] for at, _, record in records_in(io.BytesIO(data), "state") if at)


def test_a_full_sync_has_the_deleted_keys_that_are_asked_for() -> None:
    one = parted(COUNT).nodes[1]
    keyspace = one.region.keyspace
    own = kinds_of(Snapshot(keyspace, Contents(1)).whole())
    assert own[snapshot.DELETED] > 0
    sent = kinds_of(Snapshot(keyspace, Contents(1), keeps_last_effects=False).whole())
    assert sent == {kind: n for kind, n in own.items() if kind != snapshot.LAST_EFFECTS}
    places = [(0, b"key:1"), (0, b"key:2"), (0, b"key:none")]
    some = Snapshot(
        keyspace, Contents(1), Places(keyspace.databases, places), keeps_last_effects=False
    ).whole()
    assert kinds_of(some) == {snapshot.REPLICA: 1, snapshot.STREAM: 3}
    heads = [r[4] for at, _, r in records_in(io.BytesIO(some), "state") if at and r[0]]
    known = keyspace.databases[0].remembered
    streams = [known.get(key) for key in (b"key:1", b"key:2")]
    assert heads[:2] == [FrozenStream(stream).head for stream in streams if stream is not None]


HEAD: list[Any] = [
    [[0, 0], [0, 0], 0, 0], [100, 100, 0, 0, []], [[1, 1, 0, 1, 1, 0, [0, 0], 0, [0, 0], 1]],
    [], [], [[[1, 1, True]], [], [], [], [], [], [], [], [], b""],
]  # fmt: skip
encode = msgspec.msgpack.encode


@pytest.mark.parametrize(
    "record",
    [
        [snapshot.DELETED],
        [snapshot.DELETED, 99, {}],
        [snapshot.DELETED, 0, 7],
        [snapshot.DELETED, 0, {7: encode(HEAD)}],
        [snapshot.DELETED, 0, {b"key": HEAD}],
        [snapshot.DELETED, 0, {b"key": b""}],
        [snapshot.DELETED, 0, {b"key": b"\xc1"}],
        [snapshot.DELETED, 0, {b"key": encode(["head"])}],
        [snapshot.DELETED, 0, {b"key": encode(HEAD[:5])}],
        [snapshot.DELETED, 0, {b"key": encode([*HEAD[:5], None])}],
        [snapshot.DELETED, 0, {b"key": encode([*HEAD[:5], [[[1, True]], *HEAD[5][1:]]])}],
        [snapshot.DELETED, 0, {b"key": encode([["many"], *HEAD[1:]])}],
        [snapshot.LAST_EFFECTS, 0, {b"key": b"\xc1"}],
        [snapshot.LAST_EFFECTS, 0, {b"key": encode([257])}],
        [snapshot.LAST_EFFECTS, 0, {b"key": encode(["many", 1])}],
    ],
)
def test_a_full_sync_with_records_that_make_no_sense_is_refused(record: list[Any]) -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XADD", "key", "*", "f", "v")
    data = one.whole_snapshot()
    (replica,) = [each for at, _, each in records_in(io.BytesIO(data), "s") if at and not each[0]]

    def load(*records: list[Any]) -> Keyspace:
        bodies = [*map(encode, records), encode([snapshot.END, len(records)])]
        file = io.BytesIO(data[:HEADER_BYTES] + b"".join(map(snapshot.framed, bodies)))
        return in_one_go(two.region.merging.loading(file, "state"))

    assert len(load(replica, [snapshot.DELETED, 0, {b"key": encode(HEAD)}]).databases[0].remembered)
    with pytest.raises(LogError, match=r"makes no sense|databases"):
        load(replica, record)


def test_inspect_counts_and_names_packed_keys() -> None:
    one = parted(COUNT).nodes[1]
    data = Snapshot(one.region.keyspace, Contents(1)).whole()
    survey = Survey(MemoryStorage({snapshot.snapshot_name(1): data}))
    walked = list(survey.walk())
    (facts,) = survey.snapshots
    assert facts.problem is None
    assert facts.kinds == {"stream": COUNT}
    shown = [record_fields(each) for each in walked if isinstance(each, SeenRecord)]
    maps = [each for name, fields in shown if name == "DELETED" for each in fields["values"][1:]]
    deleted = [key for rows in maps for key in rows]
    assert len(set(deleted)) == len(deleted) > COUNT - OBJECTS_MAX - BATCH
    assert set(deleted) < {b"key:%d" % number for number in range(COUNT)}


def test_a_snapshot_shows_packed_keys_as_they_were_when_it_began() -> None:
    with packing_at_once():
        mesh = parted(40)
        one = mesh.nodes[1]
        taken = Snapshot(one.region.keyspace, Contents(1))
        one.region.watch_changes(taken.before)
        chunks = one.region.keyspace.databases[0].remembered.packed
        before = [map_of(chunk) for chunk in chunks]
        for number in range(0, 40, 2):
            one.do("XADD", f"key:{number}", "*", "f", "again")
        records = [
            record
            for at, _, record in records_in(io.BytesIO(taken.whole()), "state")
            if at and record[0] == snapshot.DELETED
        ]
        assert sum(len(rows) for record in records for rows in record[2:]) == 39
        assert [map_of(chunk) for chunk in chunks] == before
