"""acks all: a fail-over repeats only what was not acknowledged."""

from __future__ import annotations

import pytest

from anabranch.effects import acknowledging, kinds
from anabranch.simulator.exploration.search import Search
from anabranch.simulator.exploration.worlds import world_named
from anabranch.stream.stream import Stream
from tests.active_active import histories
from tests.support.mesh import Mesh, Node

Patch = pytest.MonkeyPatch

SEEDS = range(1, 13)

REACHED = {"ack told": 30, "power failure": 1, "XACK": 30}
"""What these histories must come to, and how often."""

WORLDS = ("every-acknowledgement", "told-later", "told-one-by-one")


def test_histories_with_every_acknowledgement() -> None:
    outcome = histories.run_range(SEEDS, acks_all=True)
    assert outcome.failed == {}
    assert {name for name, least in REACHED.items() if outcome.reached[name] < least} == set()


@pytest.mark.parametrize("name", WORLDS)
def test_all_holds_in_every_order(name: str) -> None:
    explored = Search(world_named(name)).run()
    assert explored.problem is None
    assert explored.is_complete


# -- what clients see -------------------------------------------------------------------------


def begun(count: int = 5) -> tuple[Mesh, Node, Node]:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    eu.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for number in range(1, count + 1):
        eu.do("XADD", "other", "*", "f", "v")  # its numbers lie between
        eu.do("XADD", "s", f"{number}-*", "f", "v")
    eu.do("AB.POLICY", "SET", "s", "acks", "all")
    mesh.settle()
    return mesh, eu, us


def read(node: Node, *words: object) -> list[bytes]:
    reply = node.do("XREADGROUP", "GROUP", "g", "c", *words, "STREAMS", "s", ">")
    return [entry_id for entry_id, _ in reply[0][1]] if reply else []


def intervals(node: Node) -> int:
    stream = node.region.keyspace.databases[0].values[b"s"]
    assert isinstance(stream, Stream)
    shared = stream.groups[b"g"].shared
    return sum(len(each) for some in shared.acknowledged.values() for each in some.values())


def test_a_fail_over_repeats_what_is_pending_and_nothing_else() -> None:
    mesh, eu, us = begun()
    read(eu)
    assert eu.do("XACK", "s", "g", "2-1", "4-1") == 2
    assert eu.do("XACK", "s", "g", "5-1") == 1
    mesh.settle()
    assert read(us) == [b"1-1", b"3-1"]
    assert us.do("XACK", "s", "g", "3-1") == 1
    mesh.settle()
    assert [row[0] for row in eu.do("XPENDING", "s", "g", "-", "+", 9)] == [b"1-1"]
    assert eu.do("XACK", "s", "g", "1-1") == 1
    mesh.settle()
    assert us.do("XPENDING", "s", "g")[0] == 0


def test_what_is_acknowledged_behind_one_pending_entry_is_one_interval() -> None:
    mesh, eu, us = begun(50)
    ids = read(eu)
    for entry_id in ids[:0:-1]:
        eu.do("XACK", "s", "g", entry_id)
    mesh.settle()
    assert intervals(us) == 1
    assert read(us) == ids[:1]


def test_what_was_held_back_is_told_when_the_policy_comes(monkeypatch: Patch) -> None:
    monkeypatch.setattr(acknowledging, "HELD_BACK_ENTRIES", 2)  # in several pieces
    mesh, eu, us = begun(12)
    eu.do("AB.POLICY", "DEL", "s")
    ids = read(eu)
    eu.do("XACK", "s", "g", *ids[1::2])
    mesh.settle()
    assert us.do("XPENDING", "s", "g")[0] == 0
    us.do("AB.POLICY", "SET", "s", "acks", "all")
    mesh.settle()
    eu.tick()
    mesh.settle()
    assert read(us) == ids[::2]
    effects = len(eu.issued)
    eu.restart()
    eu.tick()
    assert len(eu.issued) == effects  # nothing is left to tell


def test_a_policy_that_is_not_set_changes_no_effect() -> None:
    """Byte for byte: one effect of a run, and none for what is behind a pending entry."""
    mesh, eu, _us = begun()
    eu.do("AB.POLICY", "DEL", "s")
    mesh.settle()
    read(eu)
    before = len(eu.issued)
    eu.do("XACK", "s", "g", "3-1", "4-1")
    assert len(eu.issued) == before
    eu.do("XACK", "s", "g", "1-1")
    (effect,) = eu.issued[before:]
    assert isinstance(effect, kinds.AcknowledgeRuns)
    assert len(effect.ranges) == 1


@pytest.mark.parametrize("how", ["dead letter", "XACKDEL", "NOACK"])
def test_other_ways_to_be_done_are_told(how: str) -> None:
    mesh, eu, us = begun(3)
    if how == "NOACK":
        assert read(eu, "COUNT", 1) == [b"1-1"]
        assert read(eu, "NOACK", "COUNT", 1) == [b"2-1"]
    else:
        eu.do("AB.POLICY", "SET", "s", "max-deliveries", 1)
        read(eu, "COUNT", 2)
        words = ("XACKDEL", "s", "g", "KEEPREF", "IDS", 1, "2-1")
        eu.do(*words if how == "XACKDEL" else ("XNACK", "s", "g", "FATAL", "IDS", 1, "2-1"))
    mesh.settle()
    assert read(us) == [b"1-1", b"3-1"]
