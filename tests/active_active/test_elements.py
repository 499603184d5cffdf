"""Sets and lists of several regions."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any, Final

import hiredis
import pytest

from anabranch.engine.session import Session
from anabranch.keyspace.values import SetValue
from anabranch.oplog.snapshot import ELEMENTS, records_in
from anabranch.replication.interface import FEATURE_LEVEL
from anabranch.stream import elements as module
from anabranch.stream.elements import PLACES_A_STEP
from tests.active_active.element_mistakes import MISTAKES
from tests.active_active.elements import ElementHistory
from tests.active_active.string_mistakes import first_seed
from tests.support.mesh import Mesh, Node

pytestmark = pytest.mark.timeout(600)

AT_LEAST: Final = {
    "SADD": 60, "SREM": 30, "SPOP": 8, "SMOVE": 8, "RPUSH": 30, "LPUSH": 10, "LPOP": 15,
    "LINSERT": 20, "LSET": 10, "LREM": 8, "LTRIM": 8, "LMOVE": 10, "DEL": 20, "RENAME": 3,
    "COPY": 3, "join": 5, "restart": 2, "set": 8, "list": 20, "hidden value": 3,
}  # fmt: skip
"""What the histories must come to."""

FOUND_BY: Final = {
    "SREM and pops take what they have not seen": 4,
    "DEL takes what came by a full sync for seen": 13,
    "of items set at once the one that came first counts": 38,
    "a stream drops the set that it meets": 3,
    "a new set has the deadline of the former one": 6,
    "draws meet members that are gone": 48,
    "RENAME and COPY leave out what a set hides": 57,
}
"""Seeds that have found mistakes which the first few do not; they are tried first."""


def test_histories() -> None:
    reached: Counter[str] = Counter()
    for seed in range(101, 112):
        history = ElementHistory(seed)
        history.run()
        reached.update(history.cluster.reached)
    assert {name: reached[name] for name, least in AT_LEAST.items() if reached[name] < least} == {}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    begin_with = FOUND_BY.get(mistake, 1)
    assert first_seed(MISTAKES[mistake], begin_with, ElementHistory) is not None


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def settle(mesh: Mesh) -> None:
    mesh.settle()
    for node in mesh.nodes.values():
        node.region.keyspace.sweep()


def agree(mesh: Mesh, *keys: str) -> None:
    digests = {tuple(node.do("AB.DIGEST", *keys)) for node in mesh.nodes.values()}
    assert len(digests) == 1


def items(node: Node, key: str) -> list[bytes]:
    found: list[bytes] = node.do("LRANGE", key, 0, -1)
    return found


def asking(node: Node, command: str) -> Session:
    """Another client, which has sent a command."""
    session = node.region.open_session("127.0.0.1:50001", "127.0.0.1:6379")
    node.region.execute(session, [command.encode().split()])
    return session


def replies(session: Session) -> list[Any]:
    """What a client got."""
    reader = hiredis.Reader()
    reader.feed(b"".join(session.outbox))
    return list(iter(reader.gets, False))


def test_nothing_is_left_of_what_was_taken_or_deleted(mesh: Mesh) -> None:
    eu, us, ap = mesh.nodes.values()
    eu.do("SADD", "m", "a", "b")
    us.do("RPUSH", "l", "a", "b")
    eu.do("SADD", "n", "a")
    eu.do("EXPIRE", "m", 100)
    settle(mesh)
    us.do("SREM", "m", "a", "b")
    ap.do("LTRIM", "l", 5, 6)
    ap.do("DEL", "n")
    settle(mesh)
    settle(mesh)
    for node in mesh.nodes.values():
        database = node.region.keyspace.databases[0]
        assert not database.values
        assert not list(database.remembered)
        assert not node.region.keyspace.marked_keys
        assert not node.replica.unstable_tombstones


def test_a_deleted_set_costs_what_a_deleted_stream_costs(mesh: Mesh) -> None:
    eu = mesh.nodes[1]
    sizes = {}
    mesh.cut_links = {frozenset((1, 2)), frozenset((1, 3))}
    for command in (("XADD", "*", "f", "v"), ("SADD", "a", "b"), ("RPUSH", "a", "b")):
        for number in range(300):
            eu.do(command[0], f"k{number}", *command[1:])
            eu.do("DEL", f"k{number}")
        sizes[command[0]] = eu.region.keyspace.tombstone_bytes
        eu = Mesh(3).nodes[1]
    assert max(sizes["SADD"], sizes["RPUSH"]) <= sizes["XADD"] + 300 * 64


def test_what_is_hidden_is_shown_and_moves_along(mesh: Mesh) -> None:
    eu, us, ap = mesh.nodes.values()
    eu.do("SADD", "k", "b", "a")
    us.do("RPUSH", "k", "y", "x")
    ap.do("XADD", "k", "*", "f", "v")
    settle(mesh)
    us.do("RENAME", "k", "l")
    settle(mesh)
    for node in mesh.nodes.values():
        info = pairs(node.do("AB.INFO", "l"))
        assert (info[b"hidden-set"], info[b"hidden-list"]) == ([b"a", b"b"], [b"y", b"x"])
        assert pairs(node.do("AB.INFO"))[b"hidden-values"] == [[0, b"l"]]
        assert node.do("EXISTS", "k") == 0
    agree(mesh, "l")
    ap.do("DEL", "l")
    settle(mesh)
    for node in mesh.nodes.values():
        assert b"hidden-values" not in pairs(node.do("AB.INFO"))
        assert node.do("EXISTS", "l") == 0


def test_ab_info_shows_where_elements_are_from(mesh: Mesh) -> None:
    eu, us, ap = mesh.nodes.values()
    eu.do("RPUSH", "k", "a", "b")
    settle(mesh)
    us.do("LSET", "k", 0, "x")
    ap.do("LSET", "k", 0, "y")
    settle(mesh)
    for node in mesh.nodes.values():
        info = pairs(node.do("AB.INFO", "k"))
        assert info[b"list"] == 2
        assert [(row[0], row[2]) for row in info[b"origins"]] == [(1, 1), (2, 1), (3, 1)]
        assert info[b"set-at-once"] == [[b"y", b"x"]]
    agree(mesh, "k")


def test_a_blocked_reader_wakes_by_an_item_of_another_region(mesh: Mesh) -> None:
    eu, us, _ = mesh.nodes.values()
    waits = asking(eu, "BLPOP k 0")
    moves = asking(eu, "BLMOVE l m LEFT RIGHT 0")
    us.do("RPUSH", "k", "a", "b")
    us.do("RPUSH", "l", "c")
    settle(mesh)
    assert replies(waits) == [[b"k", b"a"]]
    assert replies(moves) == [b"c"]
    settle(mesh)
    for node in mesh.nodes.values():
        assert (items(node, "k"), items(node, "m")) == ([b"b"], [b"c"])


def test_other_regions_publish_events_and_break_transactions() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    eu.do("CONFIG", "SET", "notify-keyspace-events", "KAn")
    events = asking(eu, "PSUBSCRIBE __keyspace*__:*")
    us.do("SADD", "m", "a")
    us.do("SADD", "m", "a")
    us.do("RPUSH", "l", "x", "y")
    us.do("LSET", "l", "0", "z")
    us.do("SREM", "m", "a")
    us.do("LPOP", "l", "2")
    mesh.settle()
    found = [tuple(each[2:]) for each in replies(events) if each[0] == b"pmessage"]
    assert found == [
        (b"__keyspace@0__:%b" % key, event)
        for key, event in [
            (b"m", b"new"), (b"m", b"sadd"), (b"l", b"new"), (b"l", b"rpush"), (b"l", b"lset"),
            (b"m", b"srem"), (b"m", b"del"), (b"l", b"lpop"), (b"l", b"del"),
        ]
    ]  # fmt: skip
    eu.do("WATCH", "m")
    us.do("SADD", "m", "b")
    mesh.settle()
    eu.do("MULTI")
    eu.do("SMEMBERS", "m")
    assert eu.do("EXEC") is None


def test_they_are_refused_while_a_member_does_not_know_them(mesh: Mesh) -> None:
    node = mesh.nodes[1]
    payloads = [Mesh(1).nodes[1] for _ in range(1)]
    payloads[0].do("SADD", "k", "a")
    payload = payloads[0].do("DUMP", "k")
    levels = {1: FEATURE_LEVEL, 2: 4}
    node.replica.feature_levels = lambda: levels
    node.do("SET", "s", "v")
    for words in (("SADD", "k", "v"), ("RPUSH", "k", "v"), ("RESTORE", "k", "0", payload)):
        with pytest.raises(hiredis.ReplyError, match="does not know sets and lists"):
            node.do(*words)
    assert list(node.region.keyspace.databases[0].values) == [b"s"]
    levels[2] = FEATURE_LEVEL
    node.do("SADD", "k", "v")
    levels[2] = 1  # it was not heard of since a restart; it knows sets, for it has some
    node.do("RPUSH", "l", "v")


def test_a_start_finds_that_members_know_sets_by_one_that_a_stream_hides(mesh: Mesh) -> None:
    eu, us, _ = mesh.nodes.values()
    eu.do("SADD", "k", "a")
    us.do("XADD", "k", "*", "f", "v")
    settle(mesh)
    eu.snapshot()
    eu.restart()
    eu.replica.feature_levels = lambda: {1: FEATURE_LEVEL, 2: 1}  # it was not heard of since then
    assert eu.do("SADD", "l", "v") == 1


def test_much_is_sent_in_parts_that_other_regions_take(mesh: Mesh) -> None:
    eu, us, _ = mesh.nodes.values()
    for node in mesh.nodes.values():
        node.region.effects.mode = node.region.effects.mode._replace(added_bytes_max=10)
    words = [f"w{number:02}" for number in range(20)]
    before = eu.vector.get(eu.replica.own, 0)
    eu.do("RPUSH", "l", *words)
    assert eu.vector[eu.replica.own] - before == 7
    eu.do("LPUSH", "l", *words)
    eu.do("SADD", "m", *words)
    eu.do("SREM", "m", *words[1:])
    settle(mesh)
    assert items(us, "l") == [word.encode() for word in [*words[::-1], *words]]
    assert us.do("SMEMBERS", "m") == [b"w00"]
    agree(mesh, "l", "m")
    payload = Mesh(1).nodes[1]
    payload.do("RPUSH", "l", "x" * 11)
    with pytest.raises(hiredis.ReplyError, match="other regions take 10 bytes"):
        us.do("RESTORE", "l", 0, payload.do("DUMP", "l"), "REPLACE")
    assert len(items(us, "l")) == 40


def test_a_list_with_long_places_is_written_again(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    eu, us, _ = mesh.nodes.values()
    monkeypatch.setattr("anabranch.effects.prepare.PLACE_BYTES_MAX", 100)
    eu.do("RPUSH", "k", "a", "b")
    due = [b"a", b"b"]
    low, high = b"a", b"b"
    for number in range(12):  # always between the two that were inserted last
        new = b"%d" % number
        eu.do("LINSERT", "k", "AFTER", low, new)
        due.insert(due.index(low) + 1, new)
        low, high = (new, high) if number % 2 else (low, new)
    settle(mesh)
    for node in mesh.nodes.values():
        assert items(node, "k") == due
        shared = node.region.keyspace.databases[0].values[b"k"].shared
        assert max(map(len, shared.elements["list"].puts)) <= 100
    agree(mesh, "k")
    us.do("LPOP", "k", 20)
    settle(mesh)
    assert eu.do("EXISTS", "k") == 0


def test_draws_of_a_set_follow_what_arrives(mesh: Mesh) -> None:
    eu, us, _ = mesh.nodes.values()
    eu.do("SADD", "k", *range(50))
    eu.do("SRANDMEMBER", "k", -1)
    value = eu.region.keyspace.databases[0].values[b"k"]
    assert isinstance(value, SetValue)
    order = value.order
    assert order is not None
    settle(mesh)
    us.do("SREM", "k", *range(49))
    us.do("SADD", "k", "x")
    settle(mesh)
    assert value.order is order
    assert set(eu.do("SRANDMEMBER", "k", -100)) == {b"49", b"x"}


def test_draws_of_a_set_leave_out_the_places_of_a_list_that_it_hides(mesh: Mesh) -> None:
    eu, us, _ = mesh.nodes.values()
    eu.do("SADD", "k", "a", "b")
    us.do("RPUSH", "k", "x")
    eu.do("SRANDMEMBER", "k", -1)
    settle(mesh)
    assert pairs(eu.do("AB.INFO", "k"))[b"hidden-list"] == [b"x"]
    assert set(eu.do("SRANDMEMBER", "k", -100)) == {b"a", b"b"}


def test_a_change_of_a_set_that_nobody_sees_breaks_no_transaction(mesh: Mesh) -> None:
    eu, us, ap = mesh.nodes.values()
    eu.do("SADD", "k", "a", "b")
    settle(mesh)
    ap.do("SREM", "k", "b")
    us.do("SREM", "k", "b")
    mesh.send(3, 1)
    eu.do("WATCH", "k")
    eu.do("SADD", "k", "a")
    us.do("SADD", "k", "a")
    settle(mesh)
    eu.do("MULTI")
    eu.do("SCARD", "k")
    assert eu.do("EXEC") == [1]
    eu.do("WATCH", "k")
    us.do("SADD", "k", "a", "c")
    settle(mesh)
    eu.do("MULTI")
    eu.do("SCARD", "k")
    assert eu.do("EXEC") is None


def test_of_members_a_single_object_has_what_one_command_added(mesh: Mesh) -> None:
    eu, us, _ = mesh.nodes.values()
    eu.do("SADD", "k", *range(100))
    settle(mesh)
    us.snapshot()
    us.restart()
    for node in (eu, us):
        shared = node.region.keyspace.databases[0].values[b"k"].shared
        assert len({id(puts) for puts in shared.elements["set"].puts.values()}) == 1


def test_dump_restore_move_and_copy_keep_them(mesh: Mesh) -> None:
    eu, us, ap = mesh.nodes.values()
    eu.do("SADD", "m", "a", "b")
    eu.do("RPUSH", "l", "x", "y", "x")
    settle(mesh)
    for key in ("m", "l"):
        us.do("RESTORE", f"{key}2", 5000, us.do("DUMP", key))
        us.do("COPY", key, f"{key}3")
        ap.do("EXPIRE", key, 100)
        ap.do("MOVE", key, 1)
    settle(mesh)
    for node in mesh.nodes.values():
        assert node.do("SMEMBERS", "m2") == node.do("SMEMBERS", "m3") == [b"a", b"b"]
        assert items(node, "l2") == items(node, "l3") == [b"x", b"y", b"x"]
        assert 0 < node.do("PTTL", "m2") <= 5000
        assert node.do("EXISTS", "m", "l") == 0
        node.do("SELECT", 1)
        assert node.do("SMEMBERS", "m") == [b"a", b"b"]
        assert 0 < node.do("TTL", "l") <= 100
        node.do("SELECT", 0)


def test_other_commands_of_lists_and_sets_read_what_regions_share(mesh: Mesh) -> None:
    eu, us, _ = mesh.nodes.values()
    eu.do("RPUSH", "l", "a", "b", "c", "b")
    us.do("SADD", "m", "1", "2")
    us.do("SADD", "n", "2", "3")
    settle(mesh)
    for node in mesh.nodes.values():
        assert node.do("LPOS", "l", "b", "RANK", -1) == 3
        assert node.do("LPOS", "l", "b", "COUNT", 0) == [1, 3]
        assert node.do("LINSERT", "l", "BEFORE", "x", "y") == -1
        assert node.do("LRANGE", "l", 1, -2) == [b"b", b"c"]
        assert node.do("SINTER", "m", "n") == [b"2"]
        assert node.do("SDIFF", "m", "n") == [b"1"]
        assert node.do("SUNION", "m", "n", "none") == [b"1", b"2", b"3"]
        assert node.do("SMISMEMBER", "m", "2", "3") == [1, 0]
        assert node.do("SSCAN", "m", 0)[1] == [b"1", b"2"]
        assert node.do("OBJECT", "ENCODING", "l") == b"listpack"
        assert node.do("OBJECT", "ENCODING", "m") == b"intset"
        assert node.do("MEMORY", "USAGE", "l") > 4 * 25
        with pytest.raises(hiredis.ReplyError, match="WRONGTYPE"):
            node.do("SADD", "l", "a")


def test_large_ones_need_a_share_of_time_for_each_element(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each item is hashed when it comes and when it goes, and never again."""
    eu, us, _ = mesh.nodes.values()
    hashed = 0
    whole = module.xxh3_128_intdigest

    def counted(data: bytes, seed: int) -> int:
        nonlocal hashed
        hashed += 1
        return whole(data, seed)

    monkeypatch.setattr(module, "xxh3_128_intdigest", counted)
    for start in range(0, 2000, 200):
        eu.do("RPUSH", "l", *range(start, start + 200))
        us.do("SADD", "m", *range(start, start + 200))
    settle(mesh)
    assert hashed == 3 * 4000
    for _ in range(100):
        us.do("LPOP", "l")
        us.do("SPOP", "m")
        us.do("LINDEX", "l", 900)
        us.do("AB.DIGEST", "l", "m")
    settle(mesh)
    assert hashed == 3 * 4000 + 3 * 200
    us.do("DEL", "l", "m")
    settle(mesh)
    assert hashed == 3 * 4000 + 3 * 200
    agree(mesh, "l", "m")


@pytest.mark.parametrize("hidden", [False, True])
def test_large_ones_are_sent_and_kept_in_slices(mesh: Mesh, *, hidden: bool) -> None:
    eu, us, ap = mesh.nodes.values()
    count = 5 * PLACES_A_STEP // 2
    mesh.cut_links |= {frozenset((1, 3)), frozenset((2, 3))}
    eu.do("SADD", "s", *range(count))
    eu.do("RPUSH", "l", *range(count))
    mesh.settle()
    for node in (eu, us):
        node.do("SREM", "s", node.number)
        node.do("SADD", "s", f"of {node.number}")
        node.do("LPOP", "l")
        node.do("RPUSH", "l", f"of {node.number}")
    if hidden:
        for key in ("s", "l"):
            ap.do("XADD", key, "*", "f", "v")
    records = records_in(io.BytesIO(eu.whole_snapshot()), "full sync")
    sizes = [len(fields[4]) for _, _, fields in records if fields[0] == ELEMENTS]
    assert sizes == [PLACES_A_STEP, count - 2 * PLACES_A_STEP] * 2
    for source, target in ((1, 2), (2, 1), (2, 3), (3, 1)):
        mesh.send_full_sync(source, target)
    mesh.cut_links.clear()
    settle(mesh)
    agree(mesh, "s", "l")
    ap.snapshot()
    ap.restart()
    agree(mesh, "s", "l")
    members = {str(number).encode() for number in {*range(count)} - {1, 2}} | {b"of 1", b"of 2"}
    listed = [str(number).encode() for number in range(1, count)] + [b"of 1", b"of 2"]
    if hidden:
        assert set(pairs(ap.do("AB.INFO", "s"))[b"hidden-set"]) == members
        assert pairs(ap.do("AB.INFO", "l"))[b"hidden-list"] == listed
    else:
        assert set(ap.do("SMEMBERS", "s")) == members
        assert items(ap, "l") == listed


def pairs(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
