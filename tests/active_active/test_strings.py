"""Strings and counters of several regions."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from typing import Any, Final

import hiredis
import pytest

from anabranch.keyspace.memory import value_bytes
from anabranch.keyspace.values import StringValue
from anabranch.replication.interface import FEATURE_LEVEL
from tests.active_active.string_mistakes import MISTAKES, first_seed
from tests.active_active.strings import StringHistory
from tests.support.mesh import Mesh

pytestmark = pytest.mark.timeout(600)

AT_LEAST: Final = {
    "SET": 100, "INCR": 100, "DECRBY": 50, "INCRBYFLOAT": 50, "APPEND": 8, "GETDEL": 10, "DEL": 40,
    "PEXPIRE": 8, "XADD": 30, "RENAME": 5, "COPY": 10, "MSET": 20, "join": 10, "restart": 3,
    "power failure": 5, "string": 20, "old data joined": 20,
}  # fmt: skip
"""What the histories must come to."""

FOUND_BY: Final = {
    "what was seen of increments is forgotten at once": 7,
    "EXPIRE changes writes that it has not seen": 4,
    "the deadline of another write counts": 4,
}
"""Seeds that have found mistakes which the first few do not; they are tried first."""


def test_histories() -> None:
    reached: Counter[str] = Counter()
    for seed in range(101, 113):
        history = StringHistory(seed)
        history.run()
        reached.update(history.cluster.reached)
    assert {name: reached[name] for name, least in AT_LEAST.items() if reached[name] < least} == {}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    assert first_seed(MISTAKES[mistake], FOUND_BY.get(mistake, 1)) is not None


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def settle(mesh: Mesh) -> None:
    mesh.settle()
    for node in mesh.nodes.values():
        node.region.keyspace.sweep()


def test_nothing_is_left_of_a_string_that_was_deleted(mesh: Mesh) -> None:
    eu, us, _ = mesh.nodes.values()
    eu.do("SET", "k", "v", "EX", "100")
    us.do("INCR", "l")
    settle(mesh)
    eu.do("SET", "l", "5")
    settle(mesh)
    us.do("DEL", "k", "l")
    settle(mesh)
    settle(mesh)
    for node in mesh.nodes.values():
        database = node.region.keyspace.databases[0]
        assert not database.values
        assert not list(database.remembered)
        assert not node.region.keyspace.marked_keys
        assert not node.replica.unstable_tombstones


def test_a_stream_beside_a_string_goes_on_where_the_former_one_ended(mesh: Mesh) -> None:
    """What a region knows of the former one it knows after a string, too: from where, and up to."""
    eu, us, _ = mesh.nodes.values()
    for number in range(3):
        eu.do("XADD", "k", "*", "n", number)
    us.do("XADD", "k", "*", "n", 3)
    settle(mesh)
    eu.do("DEL", "k")
    settle(mesh)
    settle(mesh)
    us.do("SET", "k", "v")
    eu.do("XADD", "k", "*", "n", 4)  # it hides the string
    settle(mesh)
    here, there = (node.do("AB.OFFSETS", "STREAMS", "k") for node in (eu, us))
    assert here == there
    assert [row[:2] for row in here[0]] == [[b"1", 4], [b"2", 2]]


def test_what_was_seen_of_a_counter_is_forgotten_when_all_have_it(mesh: Mesh) -> None:
    eu, us, _ = mesh.nodes.values()
    us.do("INCR", "k")
    settle(mesh)
    eu.do("SET", "k", "5")
    settle(mesh)
    settle(mesh)
    for node in mesh.nodes.values():
        value = node.region.keyspace.databases[0].values[b"k"]
        assert isinstance(value, StringValue)
        assert not value.shared.counts
        assert not value.shared.tombstones


def test_what_is_forgotten_of_a_counter_does_not_change_a_digest(mesh: Mesh) -> None:
    """Each region forgets it when it has heard from all, and a restart brings it back."""
    eu, us, ap = mesh.nodes.values()
    eu.do("INCR", "k")
    settle(mesh)
    ap.do("EXPIRE", "k", 100)
    us.ask(("DEL", "k"), ("XADD", "k", "*", "f", "v"))
    mesh.exchange()
    before = [node.do("AB.DIGEST", "k") for node in (eu, us, ap)]
    settle(mesh)
    eu.restart()
    after = [node.do("AB.DIGEST", "k") for node in (eu, us, ap)]
    assert before == after == [before[0]] * 3


def test_a_counter_of_three_regions_takes_little_more_than_alone(mesh: Mesh) -> None:
    for node in mesh.nodes.values():
        for _ in range(3):
            node.do("INCRBY", "k", "1000000")
    settle(mesh)
    for node in mesh.nodes.values():
        value = node.region.keyspace.databases[0].values[b"k"]
        assert value_bytes(value) - value_bytes(StringValue(b"9000000")) <= 300


def test_a_deleted_string_costs_what_a_deleted_stream_costs(mesh: Mesh) -> None:
    eu = mesh.nodes[1]
    sizes = {}
    mesh.cut_links = {frozenset((1, 2)), frozenset((1, 3))}
    for command in (("XADD", "*", "f", "v"), ("INCR",), ("SET", "v")):
        for number in range(500):
            eu.do(command[0], f"k{number}", *command[1:])
            eu.do("DEL", f"k{number}")
        sizes[command[0]] = eu.region.keyspace.tombstone_bytes
        eu = Mesh(3).nodes[1]
    assert max(sizes["INCR"], sizes["SET"]) <= sizes["XADD"] + 500 * 64


def test_a_hidden_string_is_shown_and_moves_with_its_stream(mesh: Mesh) -> None:
    eu, us, ap = mesh.nodes.values()
    eu.do("SET", "k", "v", "EX", "100")
    us.do("XADD", "k", "*", "f", "v")
    settle(mesh)
    for node in mesh.nodes.values():
        assert _pairs(node.do("AB.INFO"))[b"hidden-values"] == [[0, b"k"]]
        assert _pairs(node.do("AB.INFO", "k"))[b"hidden-string"] == b"v"
    ap.do("RENAME", "k", "l")
    settle(mesh)
    for node in mesh.nodes.values():
        assert node.do("EXISTS", "k") == 0
        assert _pairs(node.do("AB.INFO"))[b"hidden-values"] == [[0, b"l"]]
    eu.do("DEL", "l")
    settle(mesh)
    for node in mesh.nodes.values():
        assert b"hidden-values" not in _pairs(node.do("AB.INFO"))


def test_ab_info_shows_what_counts_and_what_was_added(mesh: Mesh) -> None:
    eu, us, ap = mesh.nodes.values()
    eu.do("SET", "k", "10")
    us.do("SET", "k", "20")
    ap.do("INCRBY", "k", "3")
    settle(mesh)
    for node in mesh.nodes.values():
        info = _pairs(node.do("AB.INFO", "k"))
        assert info[b"string"] == b"23"
        assert [row[0] for row in info[b"writes"]] == [2, 1]
        assert [(row[0], row[3]) for row in info[b"increments"]] == [(3, b"3")]
    assert len({node.do("AB.DIGEST", "k")[0] for node in mesh.nodes.values()}) == 1


def test_writes_of_other_regions_publish_events_and_break_transactions() -> None:
    mesh = Mesh(2, notify_keyspace_events="KEA")
    eu, us = mesh.nodes.values()
    us.do("SET", "k", "1")
    mesh.settle()
    eu.do("WATCH", "k")
    us.do("INCR", "k")
    mesh.settle()
    eu.do("MULTI")
    eu.do("GET", "k")
    assert eu.do("EXEC") is None


def test_what_does_not_change_a_string_publishes_nothing() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    listeners = [node.region.open_session("127.0.0.1:50001", "127.0.0.1:6379") for node in (eu, us)]
    for node, session in zip((eu, us), listeners, strict=True):
        node.do("CONFIG", "SET", "notify-keyspace-events", "K$")
        node.region.execute(session, [[b"PSUBSCRIBE", b"*"]])
        session.outbox.clear()

    def heard() -> list[list[bytes]]:
        found = [[each.split(b"\r\n")[-2] for each in session.outbox] for session in listeners]
        for session in listeners:
            session.outbox.clear()
        return found

    eu.do("SET", "k", "of eu")
    us.do("SET", "k", "of us")  # at the same time: that of the greater region counts
    mesh.settle()
    assert heard() == [[b"set", b"set"], [b"set"]]
    eu.do("SET", "k", "word")
    us.do("SET", "k", "7")
    us.do("INCR", "k")
    mesh.settle()
    assert [node.do("GET", "k") for node in (eu, us)] == [b"8", b"8"]
    assert heard() == [[b"set", b"set", b"incrby"], [b"set", b"incrby"]]
    eu.do("SET", "k", "word")
    us.do("INCR", "k")
    mesh.settle()
    assert [node.do("GET", "k") for node in (eu, us)] == [b"word", b"word"]
    assert heard() == [[b"set"], [b"incrby", b"set"]]


def test_a_string_that_is_too_long_for_other_regions_is_refused(mesh: Mesh) -> None:
    node = mesh.nodes[1]
    node.region.effects.mode = node.region.effects.mode._replace(added_bytes_max=10)
    node.do("SET", "k", "12345678")
    with pytest.raises(hiredis.ReplyError, match="other regions take 10 bytes"):
        node.do("APPEND", "k", "901")
    tracemalloc.start()
    with pytest.raises(hiredis.ReplyError, match="other regions take 10 bytes"):
        node.do("SETRANGE", "k", 500_000_000, "x")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20, "the refused string was made"
    assert node.do("GET", "k") == b"12345678"


def test_strings_are_refused_while_a_member_does_not_know_them(mesh: Mesh) -> None:
    node = mesh.nodes[1]
    levels = {1: FEATURE_LEVEL, 2: 3}
    node.replica.feature_levels = lambda: levels
    for words in (("SET", "k", "v"), ("INCR", "k"), ("MSET", "k", "v", "l", "w")):
        with pytest.raises(hiredis.ReplyError, match="does not know strings and counters"):
            node.do(*words)
    assert not node.region.keyspace.databases[0].values
    levels[2] = 4
    node.do("SET", "k", "v")
    levels[2] = 1  # it was not heard of since a restart; it knows strings, for it has some
    node.do("SET", "k", "w")


def test_a_total_that_is_too_long_is_written(mesh: Mesh) -> None:
    eu, us, _ = mesh.nodes.values()
    large = b"9" * 399
    eu.do("SET", "k", b"-" + large)
    for _ in range(12):
        eu.do("INCRBYFLOAT", "k", large)
    us.do("INCR", "l")
    settle(mesh)
    assert len({node.do("GET", "k") for node in mesh.nodes.values()}) == 1
    assert len({node.do("AB.DIGEST", "k", "l")[0] for node in mesh.nodes.values()}) == 1


def test_dump_and_restore_move_a_string(mesh: Mesh) -> None:
    eu, us, _ = mesh.nodes.values()
    eu.do("INCRBY", "k", "7")
    us.do("RESTORE", "l", "5000", eu.do("DUMP", "k"))
    settle(mesh)
    for node in mesh.nodes.values():
        assert node.do("GET", "l") == b"7"
        assert 0 < node.do("PTTL", "l") <= 5000


def _pairs(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
