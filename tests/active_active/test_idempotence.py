"""One message that several regions accept while they are cut off from each other is there once.

However many messages, however long the cut, whatever is remembered to answer retries: each region
finds conflicts by the tags that it holds until they are stable, and none waits for another one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import permutations
from typing import Any

import pytest

from anabranch.config.settings import Settings
from anabranch.effects import codec, kinds
from anabranch.effects.prepare import _USUAL_LIMITS
from anabranch.replication.frames import Refusal
from anabranch.stream import stream as streams
from anabranch.stream.shared import Tag, age_rank
from anabranch.stream.stream import Stream
from tests.active_active import retries
from tests.support.mesh import Mesh, Node


def send(node: Node, *messages: int, key: str = "s") -> list[bytes]:
    return [node.do("XADD", key, "IDMP", "p", f"m{each}", "*", "m", each) for each in messages]


def contents(node: Node, key: str = "s") -> list[int]:
    return [int(fields[1]) for _, fields in node.do("XRANGE", key, "-", "+")]


def conflicts(mesh: Mesh) -> set[int]:
    return {node.replica.conflicts.total for node in mesh.nodes.values()}


def advance(mesh: Mesh, ms: int) -> None:
    for node in mesh.nodes.values():
        node.clock.us += ms * 1000
        node.tick()


def settle(mesh: Mesh) -> None:
    mesh.settle()
    mesh.settle()


def must_hold(mesh: Mesh, messages: Iterable[int], key: str = "s") -> None:
    due = sorted(messages)
    shown = [node.do("XRANGE", key, "-", "+") for node in mesh.nodes.values()]
    for node, reply in zip(mesh.nodes.values(), shown, strict=True):
        assert sorted(contents(node, key)) == due, f"region {node.number}"
        assert reply == shown[0], f"region {node.number}"


def no_tag_is_held(mesh: Mesh) -> None:
    for node in mesh.nodes.values():
        assert not node.replica.conflicts.held
        assert not node.replica.conflicts.beaten


def exchange_full_syncs(mesh: Mesh) -> None:
    """Regions get full syncs of each other, never effects."""
    for _ in range(3):
        for source in mesh.nodes:
            for target in mesh.nodes:
                if source != target:
                    mesh.send_full_sync(source, target)
    mesh.settle()


@pytest.mark.parametrize("how", ["log", "full sync"])
@pytest.mark.parametrize(
    ("count", "maxsize"), [(100, 100), (101, 100), (300, 100), (4, 3), (10_000, 100)]
)
def test_messages_that_two_regions_accept_are_there_once(
    count: int, maxsize: int, how: str
) -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XADD", "s", "*", "m", "-1")
    settle(mesh)
    one.do("XCFGSET", "s", "IDMP-MAXSIZE", maxsize if maxsize != 100 else 99)
    settle(mesh)
    send(one, *range(count))
    two.clock.us += 5000
    send(two, *range(count))
    (settle if how == "log" else exchange_full_syncs)(mesh)
    must_hold(mesh, range(-1, count))
    assert conflicts(mesh) == {count}
    settle(mesh)
    no_tag_is_held(mesh)


def test_retries_of_the_newest_in_another_region() -> None:
    mesh = Mesh(3)
    one, two, three = mesh.nodes.values()
    ids = send(one, *range(300))
    two.clock.us += 1000
    send(two, *range(290, 300))
    settle(mesh)
    must_hold(mesh, range(300))
    assert conflicts(mesh) == {10}
    for node in (one, two, three):
        assert send(node, *range(290, 300)) == ids[290:]


@pytest.mark.parametrize("how", ["log", "full sync"])
def test_a_cut_that_outlasts_the_duration(how: str) -> None:
    mesh = Mesh(3)
    one, two, three = mesh.nodes.values()
    one.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    one.do("XCFGSET", "s", "IDMP-DURATION", 2)
    settle(mesh)
    ids = send(one, *range(5))
    advance(mesh, 3500)
    send(two, *range(5))
    mesh.send(1, 3)
    advance(mesh, 100)
    (settle if how == "log" else exchange_full_syncs)(mesh)
    must_hold(mesh, range(5))
    for node in (one, two, three):
        assert send(node, *range(5)) == ids, "the retry is young enough for all of them"
    assert conflicts(mesh) == {5}


@pytest.mark.parametrize("regions", [3, 4, 5])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_number_of_regions_in_any_order(regions: int, seed: int) -> None:
    chance = random.Random(seed)
    mesh = Mesh(regions, stream_idmp_maxsize=3)
    nodes = list(mesh.nodes.values())
    accepted = 0
    for _ in range(40):
        node = chance.choice(nodes)
        message = chance.randrange(12)
        known = {effect.iid for effect in node.issued if isinstance(effect, kinds.Remember)}
        if f"m{message}".encode() not in known:
            accepted += 1
            send(node, message)
        node.clock.us += chance.randrange(3000)
    for _ in range(60):
        source, target = chance.sample(range(1, regions + 1), 2)
        if chance.random() < 0.2:
            mesh.send_full_sync(source, target)
        else:
            missing = mesh.nodes[source].missing(mesh.nodes[target].vector)
            if missing is not None:
                mesh.send(source, target, missing[: chance.randint(0, 5)])
        if chance.random() < 0.1:
            chance.choice(nodes).restart()
    settle(mesh)
    sent = {
        int(effect.iid[1:])
        for node in nodes
        for effect in node.issued
        if isinstance(effect, kinds.Remember)
    }
    must_hold(mesh, sent)
    assert conflicts(mesh) == {accepted - len(sent)}
    for message in sent:
        answers = [
            node.region.keyspace.databases[0]
            .values[b"s"]
            .producers.find(  # type: ignore[union-attr]
                b"p", b"m%d" % message, 0
            )
            for node in nodes
        ]
        assert len(set(answers)) == 1, f"message {message} is answered differently"


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_restart_while_cut(snapshot: bool) -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    send(one, *range(150))
    if snapshot:
        one.snapshot()
    one.restart()
    send(one, *range(150, 160))
    one.sync()
    one.fail()
    two.clock.us += 1000
    send(two, *range(160))
    settle(mesh)
    must_hold(mesh, range(160))
    assert conflicts(mesh) == {160}


def test_new_limits_while_cut() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    send(one, *range(10))
    one.do("XCFGSET", "s", "IDMP-MAXSIZE", 5)
    two.clock.us += 1000
    send(two, *range(10))
    settle(mesh)
    must_hold(mesh, range(10))
    assert conflicts(mesh) == {10}


@pytest.mark.parametrize("how", ["log", "full sync"])
def test_keep_leaves_both_and_answers_alike(how: str) -> None:
    mesh = Mesh(3, idmp_conflict="keep")
    one, two, _ = mesh.nodes.values()
    ids = send(one, *range(150))
    two.clock.us += 1000
    send(two, *range(150))
    (settle if how == "log" else exchange_full_syncs)(mesh)
    must_hold(mesh, [*range(150), *range(150)])
    assert conflicts(mesh) == {150}
    for node in mesh.nodes.values():
        assert send(node, *range(100, 150)) == ids[100:]


def test_an_entry_that_was_deleted_meanwhile_stays_deleted() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    first, second = send(one, 1, 2)
    one.do("XDEL", "s", first)
    one.do("XTRIM", "s", "MINID", int(second.split(b"-")[0]) + 1)
    two.clock.us += 1000
    send(two, 1, 2)
    settle(mesh)
    must_hold(mesh, [])
    assert conflicts(mesh) == {2}


def test_a_conflict_is_found_though_the_key_was_deleted() -> None:
    for how in (settle, exchange_full_syncs):
        mesh = Mesh(2)
        one, two = mesh.nodes.values()
        send(one, 1)
        one.do("DEL", "s")
        two.clock.us += 1000
        send(two, 1)
        how(mesh)
        must_hold(mesh, [])
        assert conflicts(mesh) == {1}


def processed(how: str) -> Mesh:
    """Region 2 processes what goes; region 1 has what stays."""
    mesh = Mesh(3)
    one, two, _ = mesh.nodes.values()
    one.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    settle(mesh)
    send(one, 1)
    two.clock.us += 1000
    (goes,) = send(two, 1)
    two.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    if how == "XACK":
        two.do("XACK", "s", "g", goes)
    elif how == "XACKDEL":
        two.do("XACKDEL", "s", "g", "DELREF", "IDS", 1, goes)
    elif how == "DELCONSUMER":
        two.do("XGROUP", "DELCONSUMER", "s", "g", "c")
    return mesh


@pytest.mark.parametrize("how", ["XACK", "XACKDEL"])
@pytest.mark.parametrize("meets", [settle, exchange_full_syncs])
def test_what_was_acknowledged_is_not_handed_out_again(how: str, meets: object) -> None:
    mesh = processed(how)
    meets(mesh)  # type: ignore[operator]
    settle(mesh)
    must_hold(mesh, [1])
    for node in mesh.nodes.values():
        assert node.do("XREADGROUP", "GROUP", "g", "d", "STREAMS", "s", ">") is None


@pytest.mark.parametrize("how", ["pending", "DELCONSUMER"])
def test_what_was_not_acknowledged_is_handed_out_again(how: str) -> None:
    mesh = processed(how)
    settle(mesh)
    must_hold(mesh, [1])
    for node in mesh.nodes.values():
        assert node.do("XREADGROUP", "GROUP", "g", "d", "STREAMS", "s", ">") is not None


def number_of(node: Node, command: tuple[str, ...], field: bytes) -> int:
    reply = node.do(*command)
    row = reply[0] if isinstance(reply[0], list) else reply
    value: int = row[row.index(field) + 1]
    return value


@pytest.mark.parametrize("by_state", [False, True], ids=["effects", "full sync"])
def test_nobody_waits_for_the_region_of_the_entries_that_go(by_state: bool) -> None:
    """The region that added the losing entries is away, and two others know both tags."""
    mesh = Mesh(3)
    eu, us, ap = mesh.nodes.values()
    eu.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    mesh.settle()
    send(eu, *range(100))
    us.clock.us += 50_000
    send(us, *range(100))
    mesh.send(2, 3)
    read = ("XREADGROUP", "GROUP", "g", "c", "NOACK", "COUNT", "1000", "STREAMS", "s", ">")
    exchange = mesh.send_full_sync if by_state else mesh.send
    exchange(1, 3)
    exchange(3, 1)
    for node in (eu, ap):
        assert node.do("XLEN", "s") == 100
        assert number_of(node, ("XINFO", "GROUPS", "s"), b"lag") == 100
        assert number_of(node, ("XINFO", "STREAM", "s"), b"length") == 100
        assert len(node.do("AB.READ", "COUNT", 1000, "STREAMS", "s", "0")[0][2]) == 100
        assert sorted(contents(node)) == list(range(100))
        assert node.replica.conflicts.total == 100
    ((_, got),) = ap.do(*read)
    assert len(got) == 100
    assert number_of(ap, ("XINFO", "GROUPS", "s"), b"lag") == 0
    settle(mesh)
    must_hold(mesh, range(100))
    assert conflicts(mesh) == {100}
    settle(mesh)
    no_tag_is_held(mesh)


def test_what_was_delivered_before_stays_delivered_and_is_counted() -> None:
    mesh = Mesh(3)
    eu, us, ap = mesh.nodes.values()
    eu.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    mesh.settle()
    send(eu, *range(10))
    us.clock.us += 50_000
    goes = send(us, *range(10))
    mesh.send(2, 3)
    read = ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    ((_, got),) = ap.do(*read)
    assert [entry_id for entry_id, _ in got] == goes
    assert ap.do("XACK", "s", "g", *goes[:5]) == 5
    mesh.send(1, 3)
    assert ap.do("XPENDING", "s", "g")[0] == 0
    ((_, got),) = ap.do(*read)  # the messages that were not acknowledged
    assert [fields[1] for _, fields in got] == [b"%d" % number for number in range(5, 10)]
    assert ap.replica.conflicts.total == ap.region.stats.idmp_collapsed == 10
    settle(mesh)
    assert conflicts(mesh) == {10}
    must_hold(mesh, range(10))


def test_of_three_entries_one_stays_whatever_arrives_first() -> None:
    for order in permutations((1, 2, 3)):
        mesh = Mesh(5)
        ids = []
        for number in (1, 2, 3):
            mesh.nodes[number].clock.us += number * 1000
            ids += send(mesh.nodes[number], 1)
        there = mesh.nodes[4]
        for at, source in enumerate(order):
            mesh.send(source, 4)
            rows = there.do("XRANGE", "s", "-", "+")
            smallest = min(ids[each - 1] for each in order[: at + 1])
            assert [entry_id for entry_id, _ in rows] == [smallest]
            assert there.replica.conflicts.total == at
        mesh.send(4, 5)  # the others stay away
        assert mesh.nodes[5].do("XLEN", "s") == 1
        assert mesh.nodes[5].replica.conflicts.total == 2
        settle(mesh)
        must_hold(mesh, [1])
        assert conflicts(mesh) == {2}


def test_a_message_whose_entry_was_deleted_does_not_come_back() -> None:
    mesh = Mesh(3)
    eu, us, ap = mesh.nodes.values()
    (stays,) = send(eu, 1)
    us.clock.us += 50_000
    send(us, 1)
    assert eu.do("XDEL", "s", stays) == 1
    mesh.send(2, 3)
    mesh.send(1, 3)
    mesh.send(3, 1)
    assert ap.do("XLEN", "s") == eu.do("XLEN", "s") == 0
    assert ap.do("XADD", "s", "IDMP", "p", "m1", "*", "f", "v") == stays
    settle(mesh)
    must_hold(mesh, [])


def test_an_idempotent_id_that_is_used_again_is_another_message() -> None:
    mesh = Mesh(2, stream_idmp_maxsize=3)
    one, two = mesh.nodes.values()
    send(one, *range(4))
    mesh.send(1, 2)  # the other way round nothing is heard, so no tag is stable
    send(two, 0)  # forgotten by now
    settle(mesh)
    must_hold(mesh, [0, 0, 1, 2, 3])
    assert conflicts(mesh) == {0}


def test_too_many_held_tags_go_and_are_counted() -> None:
    mesh = Mesh(2, max_held_tags=5000)
    one, two = mesh.nodes.values()
    send(one, *range(6000))
    one.tick()
    held = one.replica.conflicts
    assert 3900 <= len(held) <= 5000
    assert held.dropped == 6000 - len(held)
    two.clock.us += 10_000
    send(two, *range(5000, 5010))
    settle(mesh)
    must_hold(mesh, range(6000))


def test_a_conflict_found_before_a_crash_is_resolved_after_it() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    send(one, 1)
    two.clock.us += 1000
    send(two, 1)
    (unit,) = one.missing({})
    two.region.merging.resolve = lambda: None  # type: ignore[method-assign]
    two.receive(unit)
    assert contents(two) == [1, 1]
    two.restart()
    assert contents(two) == [1]


def test_a_region_that_does_not_know_conflicts_yet_goes_on_when_it_is_updated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    two.clock.us += 50_000
    send(one, *range(4))
    send(two, *range(4))
    mesh.send(1, 2)  # which resolves the conflicts
    before = dict(one.vector), contents(one)
    with monkeypatch.context() as older:
        older.delitem(codec._KINDS, 16)
        added, resolved = two.missing(one.vector)[:4], two.missing(one.vector)[4:]
        one.receive(*added)
        applied = one.vector[2]
        with pytest.raises(Refusal):
            one.receive(resolved[0])
        assert one.vector[2] == applied > before[0].get(2, 0)
    settle(mesh)
    must_hold(mesh, range(4))
    assert conflicts(mesh) == {4}


def test_what_was_processed_is_known_until_its_conflict_is_resolved() -> None:
    """A restart, rows and snapshots come between the acknowledgement and the other entry."""
    mesh = Mesh(3)
    one, two, three = mesh.nodes.values()
    one.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    settle(mesh)
    send(one, 1)
    two.clock.us += 50_000
    (goes,) = send(two, 1)
    mesh.send(2, 3)
    read = ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    assert three.do(*read)
    assert three.do("XACK", "s", "g", goes) == 1
    mesh.settle([2, 3])
    three.snapshot()
    three.restart()
    mesh.send(1, 3)
    assert three.do(*read) is None
    settle(mesh)
    must_hold(mesh, [1])
    assert [node.do(*read) for node in (one, two)] == [None, None]
    settle(mesh)
    advance(mesh, 1)
    settle(mesh)
    assert [len(node.replica.conflicts.processed) for node in mesh.nodes.values()] == [0, 0, 0]


def test_of_many_processed_entries_little_is_remembered() -> None:
    mesh = Mesh(2)
    one = mesh.nodes[1]
    one.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    settle(mesh)
    send(one, *range(500))
    reply = one.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    ids = [entry_id for entry_id, _ in reply[0][1]]
    processed = one.replica.conflicts.processed
    one.do("XACK", "s", "g", *ids)
    assert len(processed) == 1
    one.do("XACK", "s", "g", *ids[1::2])
    for number in range(0, 4000, 4):
        one.replica.conflicts.record_processed((0, b"s", b"g"), 1, [10_000 + number])
    assert len(processed) == 1001
    one.region.settings.max_held_tags = 100
    one.region.merging.maintain()
    assert 50 <= len(processed) <= 100
    assert ((0, b"s", b"g"), (1, 13_996)) in processed


def test_late_idempotent_ids_find_their_place_as_if_all_were_sorted() -> None:
    chance = random.Random(1)
    maxsize = 7
    stream = Stream.of_regions(1, 100, maxsize)
    assert stream.shared is not None
    for number in range(1, 1000):
        iid = b"m%d" % chance.randint(1, 30)
        replica_id = chance.choice([1, 2, 257])
        dots = stream.shared.tags_of(b"p").setdefault(iid, {})
        dots[replica_id, number] = Tag(number << 64, chance.randint(1, 1000), yields=True)
        stream.remember(b"p", iid)
        found = list(stream.producers.tables[b"p"].items())
        assert stream.producers.tracked == len(found) == len(stream.shared.tags[b"p"])
        stream.renew_producers(100, maxsize)
        assert found == list(stream.producers.tables[b"p"].items())


def test_late_idempotent_ids_are_ranked_against_few(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked = 0

    def counted(dots: Any) -> tuple[int, ...]:
        nonlocal ranked
        ranked += 1
        return age_rank(dots)

    monkeypatch.setattr(streams, "age_rank", counted)
    stream = Stream.of_regions(1, 100, 1000)
    assert stream.shared is not None
    for number in range(1100):
        at_ms = number * 2 if number < 1000 else (number - 1000) * 20 + 1
        iid = b"m%d" % number
        stream.shared.tags_of(b"p")[iid] = {(1, number): Tag(1, at_ms, yields=True)}
        stream.remember(b"p", iid)
    assert stream.producers.tracked == 1000
    assert ranked < 1000 * 2 + 100 * 20


def test_of_two_epochs_of_a_region_the_same_idempotent_id_is_forgotten_everywhere() -> None:
    """Both begin to number at 1: their effects may share time, region and number."""
    remembered = set()
    for replica_ids in [(2, 258), (258, 2)]:
        stream = Stream.of_regions(1, 100, 1)
        for replica_id in replica_ids:
            assert stream.shared is not None
            dots = stream.shared.tags_of(b"p").setdefault(b"m%d" % replica_id, {})
            dots[replica_id, 5] = Tag(replica_id << 64, 1000, yields=True)
            stream.remember(b"p", b"m%d" % replica_id)
        remembered.add(tuple(stream.producers.tables[b"p"]))
    assert remembered == {(b"m258",)}


@pytest.mark.parametrize("first", range(201, 601, 200))
def test_random_retries(first: int) -> None:
    failed, _ = retries.failures(range(first, first + 200))
    assert failed == {}, "python -m tests.active_active.retries --seeds ..."


def test_random_retries_reach_what_they_are_for() -> None:
    failed, reached = retries.failures(range(1, 201))
    assert failed == {}
    least = {"conflict": 100, "answered alike": 50, "forgotten": 200, "full sync": 30, "epoch": 5}
    least |= {"away": 40, "known conflict": 200}
    assert {name: reached[name] for name, count in least.items() if reached[name] < count} == {}


def test_what_a_key_has_counted_ends_with_it_however_it_ended() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes[1], mesh.nodes[2]
    send(one, 1)
    mesh.settle()
    one.do("DEL", "s")
    mesh.send_full_sync(1, 2)  # the deletion does not come as an effect
    settle(mesh)
    two.do("XADD", "s", "*", "f", "v")
    counted = two.do("XINFO", "STREAM", "s")
    assert counted[counted.index(b"iids-added") + 1] == 0
    two.sync()
    two.restart()
    assert two.do("XINFO", "STREAM", "s") == counted


def _accepted(node: Node) -> int:
    return number_of(node, ("XINFO", "STREAM", "s"), b"iids-added")


def test_a_full_sync_carries_how_many_ids_were_added() -> None:
    mesh = Mesh(3, stream_idmp_maxsize=3)
    one, two, three = mesh.nodes.values()
    send(one, *range(10))
    mesh.send_full_sync(1, 2)
    assert _accepted(two) == 10
    settle(mesh)  # the tags are stable, and not held any more
    send(one, *range(10, 15))
    two.clock.us += 1000
    send(two, *range(20, 27))
    mesh.send_full_sync(1, 2)
    mesh.send_full_sync(1, 2)
    assert _accepted(two) == 22
    mesh.send_full_sync(2, 1)
    mesh.send(1, 3)
    assert [_accepted(node) for node in (one, two, three)] == [22, 22, 22]
    two.sync()
    two.snapshot()
    two.restart()
    assert _accepted(two) == 22


def test_a_full_sync_of_a_key_that_began_anew_carries_the_new_count() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    send(one, *range(10))
    settle(mesh)
    one.do("DEL", "s")
    send(one, *range(20, 23))
    mesh.send_full_sync(1, 2)
    assert _accepted(one) == _accepted(two) == 3


def _limits(node: Node) -> list[int]:
    names = b"idmp-duration", b"idmp-maxsize"
    return [number_of(node, ("XINFO", "STREAM", "s"), name) for name in names]


def test_a_stream_keeps_the_limits_that_its_region_gave_it() -> None:
    """With other settings after a restart, or in another region, retries are the same."""
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("CONFIG", "SET", "stream-idmp-maxsize", 1000, "stream-idmp-duration", 3600)
    ids = send(one, *range(200))
    one.do("CONFIG", "SET", "stream-idmp-maxsize", 100, "stream-idmp-duration", 100)
    one.sync()
    one.restart()
    settle(mesh)
    assert [_limits(node) for node in (one, two)] == [[3600, 1000]] * 2
    assert send(one, *range(200)) == send(two, *range(200)) == ids
    two.do("RENAME", "s", "t")
    two.do("RENAME", "t", "s")
    settle(mesh)
    assert [_limits(node) for node in (one, two)] == [[3600, 1000]] * 2


def test_limits_that_a_client_sets_count_more_than_those_of_a_new_stream() -> None:
    mesh = Mesh(2, stream_idmp_maxsize=7)
    one, two = mesh.nodes.values()
    one.do("XADD", "s", "*", "f", "v")
    one.do("XCFGSET", "s", "IDMP-MAXSIZE", 50)
    two.clock.us += 1000
    two.do("XADD", "s", "*", "f", "v")
    settle(mesh)
    assert [_limits(node) for node in (one, two)] == [[100, 50]] * 2


def test_the_usual_limits_are_the_settings_of_a_server_without_any() -> None:
    settings = Settings()
    assert (settings.stream_idmp_duration, settings.stream_idmp_maxsize) == _USUAL_LIMITS
