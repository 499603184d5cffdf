"""Batches with a valid checksum that no region sends: nothing of them is applied."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.effects import kinds
from anabranch.effects.codec import SENT_IDS_MAX, EffectFormatError, plain
from anabranch.oplog.batch import Batch
from anabranch.region.sent import SentUnit
from anabranch.stream.elements import places_between
from tests.support.mesh import Mesh

GOOD = plain(kinds.Expire(0, b"s", None))
ID = 5 << 64


def fragment(shown: bytes = b"5-0", *words: bytes) -> bytes:
    row = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words or (b"f", b"v"))
    return b"*2\r\n$%d\r\n%b\r\n*%d\r\n%b" % (len(shown), shown, len(words) or 2, row)


def add(entry_id: int = ID, data: bytes | None = None, position: int = 1) -> list[object]:
    data = fragment(b"%d-0" % (entry_id >> 64)) if data is None else data
    return plain(kinds.Add(0, b"s", entry_id, data, 1, opens=True, position=position))


def run(**changes: object) -> list[object]:
    data = b"".join(fragment(b"%d-0" % ms) for ms in (5, 6))
    size = len(data) // 2
    whole = kinds.AddRun(0, b"s", [ID, ID + (1 << 64)], data, [size, size], [1, 1], [0], 1)
    array = plain(whole)
    for name, value in changes.items():
        array[1 + whole.__struct_fields__.index(name)] = value
    return array


def changed(effect: kinds.Effect, **fields: object) -> list[object]:
    return plain(msgspec.structs.replace(effect, **fields))


REMOVAL = kinds.RemoveNumbers(0, b"s", [(2, [0, 1])], [], dereferenced=False, trimmed=False)
TAG = kinds.Remember(0, b"s", b"p", b"i", ID, 1)

SCHEDULED = kinds.ScheduleEntry(0, b"s", b"h", 1, 5, b"*2\r\n$1\r\nf\r\n$1\r\nv\r\n")
ADVANCED = kinds.AdvanceScheduled(0, b"s", [])

PLACE = places_between(b"", b"\xff", 2, 1, 1)[0]
MEMBERS = kinds.PutElements(0, b"s", "set", [b"a", b"b"], [], "sadd")
ITEMS = kinds.PutElements(0, b"s", "list", [PLACE], [b"a"], "rpush")
TAKEN = kinds.TakeElements(0, b"s", "list", [PLACE, PLACE], "lpop")

MALFORMED = {
    "elements of an unknown kind": [GOOD, changed(MEMBERS, kind="zset")],
    "elements with an unknown event": [GOOD, changed(MEMBERS, event="zadd")],
    "no elements": [GOOD, changed(MEMBERS, places=[])],
    "members with items": [GOOD, changed(MEMBERS, items=[b"x", b"y"])],
    "one member twice": [GOOD, changed(MEMBERS, places=[b"a", b"a"])],
    "fewer items than places": [GOOD, changed(ITEMS, items=[])],
    "a place that is none": [GOOD, changed(ITEMS, places=[PLACE[:-1]])],
    "a place at the end of all": [GOOD, changed(ITEMS, places=[b"\xff" * 25])],
    "half a range of places": [GOOD, changed(TAKEN, places=[PLACE])],
    "a range of no places": [GOOD, changed(TAKEN, places=[b"a", b"b"])],
    "places that are no bytes": [GOOD, [48, 0, b"s", "set", [1], [], ""]],
    "a scheduled entry without values": [GOOD, changed(SCHEDULED, fields=b"*0\r\n")],
    "a scheduled entry that is cut off": [GOOD, changed(SCHEDULED, fields=SCHEDULED.fields[:-1])],
    "a scheduled entry that is none": [GOOD, changed(SCHEDULED, fields=b"")],
    "a scheduled entry of no time": [GOOD, changed(SCHEDULED, at_ms=1 << 53)],
    "a scheduled entry at the end of time": [GOOD, changed(SCHEDULED, stamp_ms=(1 << 62) + 1)],
    "missed times of an unknown rule": [
        GOOD,
        changed(SCHEDULED, recurrence=(b"* * * * *", b"UTC", 3)),
    ],
    "an addition that is still to come": [GOOD, changed(ADVANCED, rows=[(b"h", 1, 258, 5, 9, 2)])],
    "a next time that is none": [GOOD, changed(ADVANCED, rows=[(b"h", 1, 258, 5, 2 << 53, 0)])],
    "an unknown kind": [GOOD, [99, 0, b"s"]],
    "a field is missing": [GOOD, [41, 0]],
    "a kind of one region": [GOOD, plain(kinds.SetString(0, b"s", b"v"))],
    "a local kind": [GOOD, plain(kinds.Synced(7))],
    "fewer numbers than announced": [GOOD],
    "more numbers than announced": [GOOD, GOOD, GOOD],
    "a database below 0": [GOOD, plain(kinds.Expire(-1, b"s", None))],
    "a database that is not there": [GOOD, plain(kinds.Expire(16, b"s", None))],
    "an integer below 0": [GOOD, plain(kinds.Expire(0, b"s", -1))],
    "an integer out of range": [GOOD, [41, 0, b"s", 1 << 63]],
    "a key that is text": [GOOD, [41, 0, "text", None]],
    "an ID below 0": [GOOD, [6, 0, b"s", [-1, 0], None, None]],
    "an ID out of range": [GOOD, [6, 0, b"s", [0, 1 << 64], None, None]],
    "a fragment that is none": [GOOD, add(data=b"+OK\r\n")],
    "a fragment that is cut off": [GOOD, add(data=fragment()[:-1])],
    "a fragment with bytes behind": [GOOD, add(data=fragment() + b"+OK\r\n")],
    "a fragment with another ID": [GOOD, add(data=fragment(b"6-0"))],
    "a fragment without values": [GOOD, add(data=b"*2\r\n$3\r\n5-0\r\n*0\r\n")],
    "a fragment with half a pair": [GOOD, add(data=fragment(b"5-0", b"f"))],
    "a fragment of another type": [GOOD, add(data=b"*2\r\n$3\r\n5-0\r\n*2\r\n+f\r\n+v\r\n")],
    "a fragment that promises much": [GOOD, add(data=b"*2\r\n$3\r\n5-0\r\n*2147483646\r\n")],
    "a position below those before": [add(), add(ID + (1 << 64))],
    "a position further on": [add(), add(ID + (1 << 64), position=7)],
    "a position of another region at the end of time": [
        GOOD,
        plain(kinds.Delete(0, b"s", expired=False, positions=[(2, 1), (3, (1 << 63) - 1)])),
    ],
    "an ID that is there already": [add(), add(position=2)],
    "entries without sizes": [run(sizes=[])],
    "entries without weights": [run(weights=[1])],
    "sizes that are too long": [run(sizes=[9, 99])],
    "a size of 0": [run(sizes=[0, 2 * len(fragment())])],
    "entries cut elsewhere": [run(sizes=[len(fragment()) - 1, len(fragment()) + 1])],
    "a weight out of range": [run(weights=[1, 1 << 63])],
    "a node that begins nowhere": [run(opens=[2])],
    "a node that begins before": [run(opens=[-1])],
    "nodes in another order": [run(opens=[1, 0])],
    "IDs in another order": [run(ids=[6, 0, 1, 5, 0, 1])],
    "IDs that nobody has room for": [run(ids=[5, 0, 1 << 40])],
    "half an ID": [run(ids=[5])],
    "no entries": [GOOD, run(ids=[], sizes=[], weights=[], data=b"", opens=[])],
    "too many IDs": [GOOD, [5, 0, b"s", [5, 0, SENT_IDS_MAX + 1]]],
    "half a range": [GOOD, changed(REMOVAL, ranges=[(2, [0])])],
    "a range of nothing": [GOOD, changed(REMOVAL, ranges=[(2, [1, 0])])],
    "entries that nobody has seen": [GOOD, changed(REMOVAL, ranges=[(2, [0, 9])])],
    "entries of nobody": [GOOD, changed(REMOVAL, ranges=[(77, [0, 1])])],
    "an entry deleted by number only": [GOOD, changed(REMOVAL, deleted=[(2, 9, ID)])],
    "a stamp at the end of time": [GOOD, plain(kinds.ConfigureProducers(0, b"s", 1, 1, 1 << 63))],
    "a tag at the end of time": [GOOD, changed(TAG, at_ms=(1 << 63) - 1)],
    "a region without a number": [GOOD, plain(kinds.AddRegion(0, "x", "h", 1))],
    "a region with a long name": [GOOD, plain(kinds.AddRegion(3, "x" * 257, "h", 1))],
    "a port that is none": [GOOD, plain(kinds.AddRegion(3, "x", "h", 65536))],
    "removal of nobody": [GOOD, plain(kinds.RemoveRegion(256, 0))],
}


@pytest.mark.parametrize("arrays", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_batch_changes_nothing(arrays: list[list[object]]) -> None:
    node = Mesh(2).nodes[1]
    replica = node.region.replica
    replica_id = 2
    first = replica.vector.get(replica_id, 0) + 1
    before = dict(replica.vector), list(node.region.keyspace.databases[0].remembered)
    batch = Batch(replica_id, first, 2, 1, 0, 0, arrays, {})
    with pytest.raises(EffectFormatError):
        node.region.merging.apply([batch])
    assert before == (dict(replica.vector), list(node.region.keyspace.databases[0].remembered))


@pytest.mark.parametrize("then", [("SADD", "s", "m"), ("SET", "s", "1"), ("RPUSH", "s", "i"), ()])
def test_a_new_stream_goes_on_behind_the_positions_of_a_former_one(then: tuple[str, ...]) -> None:
    eu, us = (mesh := Mesh(2)).nodes.values()
    for _ in range(3):
        us.do("XADD", "s", "*", "f", "v")
    us.do("DEL", "s")
    if then:
        us.do(*then)
    for _ in range(3):  # until each knows that the other one knows, and the stream is forgotten
        mesh.settle()
        for node in (eu, us):
            node.sync()
            node.tick()
    replica, database = eu.region.replica, eu.region.keyspace.databases[0]
    (former,) = database.last_positions.of(b"s")
    assert former.replica_id == 2
    below, behind = (
        Batch(2, replica.vector[2] + 1, 1, 1, 0, 0, [add(position=position)], {})
        for position in (former.position - 1, former.position)
    )
    with pytest.raises(EffectFormatError):
        eu.region.merging.apply([below])
    eu.region.merging.apply([behind])
    assert eu.do("XLEN", "s") == 1


def test_what_those_batches_are_made_of_is_applied() -> None:
    node = Mesh(2).nodes[1]
    arrays = [
        *(run(), plain(REMOVAL), GOOD, changed(TAG), plain(kinds.AddRegion(3, "x", "h", 1))),
        plain(kinds.Delete(0, b"s", expired=False, positions=[(2, 3)])),
        add(position=3),
        *(plain(SCHEDULED), changed(ADVANCED, rows=[(b"h", 1, 2, 5, 9, 1)])),
        *(plain(MEMBERS), plain(ITEMS), plain(TAKEN)),
    ]
    node.region.merging.apply([Batch(2, 1, 13, 1, 0, 0, arrays, {})])
    assert [
        entry.at_ms for entry in node.region.keyspace.databases[0].timetables.entries.values()
    ] == [9]
    assert node.do("XRANGE", "s", "-", "+") == [[b"5-0", [b"f", b"v"]]]


def test_entries_read_below_what_is_counted_travels() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    for ms in range(100, 105):
        eu.do("XADD", "x", ms, "f", "v")
    eu.do("XGROUP", "CREATE", "x", "g", "102-1", "ENTRIESREAD", 1)
    mesh.settle()
    assert us.do("XINFO", "GROUPS", "x") == eu.do("XINFO", "GROUPS", "x")
    assert us.do("XINFO", "GROUPS", "x")[0][-3] == 1


def test_no_part_of_an_entry_can_be_exchanged() -> None:
    """Fragments that are changed in one place are refused, but for bytes inside words."""
    whole = fragment(b"5-0", b"field", b"value")
    words = [whole.index(word) for word in (b"field", b"value")]
    inside = {at for word in words for at in range(word, word + 5)}
    unit = SentUnit(Mesh(2).nodes[1].region.keyspace)
    for at, before in enumerate(whole):
        for byte in {before ^ 1, before ^ 16, 0x2B, 0x30, 0x0A} - {before}:
            data = whole[:at] + bytes([byte]) + whole[at + 1 :]
            batch = Batch(2, 1, 1, 1, 0, 0, [add(data=data)], {})
            if at not in inside:
                with pytest.raises(EffectFormatError):
                    unit.effects(batch)
