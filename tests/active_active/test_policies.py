"""AB.POLICY with several regions: the greatest stamp counts in all of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.mesh import Mesh, Node

NAMES = [("s",), ("s", "GROUP", "g"), ("PATTERN", "s*"), ("PATTERN", "s*", "GROUP", "g*")]


def rules(node: Node) -> Any:
    """Without what is remembered of deleted ones."""
    return sorted(node.region.keyspace.databases[0].policies.live(), key=repr)


def policed(node: Node) -> dict[str, str]:
    stream = node.region.keyspace.databases[0].values[b"s"]
    found = stream.groups[b"g"].policed  # type: ignore[union-attr]
    return {} if found is None else found.policy.texts


@pytest.mark.parametrize("seed", range(20))
def test_regions_agree_on_the_rules_and_groups_hold_them(seed: int) -> None:
    rng = random.Random(seed)
    mesh = Mesh(3)
    mesh.nodes[1].do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    mesh.settle()
    for _ in range(30):
        node = rng.choice(list(mesh.nodes.values()))
        name = rng.choice(NAMES)
        if rng.random() < 0.3:
            node.do("AB.POLICY", "DEL", *name)
        else:
            node.do("AB.POLICY", "SET", *name, "redeliver", rng.choice(["first", "claim"]))
        if rng.random() < 0.3:
            mesh.exchange()
        if rng.random() < 0.1:
            rng.choice(list(mesh.nodes.values())).restart()
    mesh.settle()
    one, two, three = mesh.nodes.values()
    assert rules(one) == rules(two) == rules(three)
    assert policed(one) == policed(two) == policed(three)


def test_what_two_regions_set_against_each_other_is_the_same_in_both() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    mesh.settle()
    eu.host.regions = eu.exchange
    eu.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    mesh.settle()
    eu.do("AB.POLICY", "SET", "s", "key-field", "k")
    us.do("AB.POLICY", "SET", "s", "redeliver", "claim", "acks", "prefix")
    eu.do("AB.POLICY", "SET", "s", "home-region", "1")
    mesh.settle()
    assert len(rules(eu)[0][1]) == 4
    assert policed(eu) == policed(us) == {"key-field": "k", "home-region": "1"}
    us.do("AB.POLICY", "DEL", "s", "key-field")
    mesh.settle()
    assert policed(eu) == policed(us) == {"redeliver": "claim", "home-region": "1"}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_full_sync_brings_the_rules(restarts: bool) -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    us.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    us.do("AB.POLICY", "SET", "s", "redeliver", "claim")
    eu.do("AB.POLICY", "SET", "PATTERN", "s*", "redeliver", "first")
    eu.do("AB.POLICY", "SET", "t", "redeliver", "first")
    mesh.send_full_sync(1, 2)
    if restarts:
        us.restart()
    assert len(rules(us)) == 3
    us.do("AB.POLICY", "DEL", "s")
    assert policed(us) == {"redeliver": "first"}
    mesh.settle()
    assert rules(eu) == rules(us)


def test_a_deleted_rule_is_forgotten_when_every_region_has_it() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    eu.do("AB.POLICY", "SET", "s", "redeliver", "first")
    mesh.settle()
    us.do("AB.POLICY", "DEL", "s")
    table = us.region.keyspace.databases[0].policies
    assert table.tombstones == 1
    mesh.settle()
    mesh.settle()
    assert rules(eu) == []
    assert (table.tombstones, table.rules) == (0, {})


def test_a_pattern_that_is_forgotten_matches_nothing() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    eu.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    eu.do("AB.POLICY", "SET", "PATTERN", "s*", "redeliver", "first")
    mesh.settle()
    eu.do("AB.POLICY", "DEL", "PATTERN", "s*")
    mesh.settle()
    mesh.settle()
    for node in (eu, us):
        assert node.region.keyspace.databases[0].policies.rules == {}
        assert node.do("XGROUP", "CREATE", "s", f"h{node.number}", "0") == b"OK"


# -- dead letters -------------------------------------------------------------------------------


def group_that_gives_up(mesh: Mesh) -> None:
    eu = mesh.nodes[1]
    eu.do("XADD", "s", "*", "f", "v")
    eu.do("XGROUP", "CREATE", "s", "g", "0")
    eu.do("AB.POLICY", "SET", "s", "max-deliveries", "1", "dead-letter", "dead")
    mesh.settle()


def fail(node: Node) -> None:
    ((_, [[entry_id, _]]),) = node.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    node.do("XNACK", "s", "g", "FAIL", "IDS", 1, entry_id)


def test_what_two_regions_give_up_has_one_copy() -> None:
    mesh = Mesh(3)
    group_that_gives_up(mesh)
    for number in (1, 2):
        fail(mesh.nodes[number])
    mesh.settle()
    mesh.settle()
    for node in mesh.nodes.values():
        assert node.do("XLEN", "dead") == 1
        assert node.do("XPENDING", "s", "g")[0] == 0


def test_what_another_region_has_given_up_is_not_copied_again() -> None:
    mesh = Mesh(2)
    group_that_gives_up(mesh)
    eu, us = mesh.nodes.values()
    us.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    fail(eu)
    mesh.settle()
    assert us.do("XPENDING", "s", "g")[0] == 0  # the run is acknowledged as a whole
    assert us.do("XLEN", "dead") == 1


def test_a_late_region_adds_no_second_copy() -> None:
    """The first entry keeps the acknowledgement of the second one from travelling."""
    mesh = Mesh(2)
    group_that_gives_up(mesh)
    eu, us = mesh.nodes.values()
    second = eu.do("XADD", "s", "*", "f", "w")
    mesh.settle()
    for node in (eu, us):
        node.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    eu.do("XNACK", "s", "g", "FAIL", "IDS", 1, second)
    mesh.settle()
    assert us.do("XPENDING", "s", "g")[0] == 2
    us.do("XNACK", "s", "g", "FAIL", "IDS", 1, second)
    mesh.settle()
    for node in (eu, us):
        assert node.do("XLEN", "dead") == 1
        assert node.do("XPENDING", "s", "g")[0] == 1


def test_a_dead_letter_that_was_given_back_is_gone_in_all_regions() -> None:
    mesh = Mesh(2)
    group_that_gives_up(mesh)
    eu, us = mesh.nodes.values()
    fail(eu)
    mesh.settle()
    assert us.do("AB.REDRIVE", "dead")[1] == 1
    mesh.settle()
    for node in (eu, us):
        assert node.do("XLEN", "dead") == 0
    assert us.do("XPENDING", "s", "g")[0] == 1
    assert eu.do("XPENDING", "s", "g")[0] == 0


@pytest.mark.parametrize("acks", ["prefix", "all"])
def test_what_was_given_back_outlives_the_acknowledgements_of_others(acks: str) -> None:
    """The entry is in a range that another region tells, as it knows it to be acknowledged."""
    mesh = Mesh(2)
    group_that_gives_up(mesh)
    eu, us = mesh.nodes.values()
    eu.do("AB.POLICY", "SET", "s", "acks", acks, "redeliver", "first")
    eu.do("XADD", "s", "*", "f", "v")
    last = eu.do("XADD", "s", "*", "f", "v")
    mesh.settle()
    read = ["XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"]
    ((_, [(first, _)]),) = us.do(*read[:4], "COUNT", 1, *read[4:])
    ((_, [_, (failed, _), _]),) = eu.do(*read)
    eu.do("XACK", "s", "g", first)
    eu.do("XNACK", "s", "g", "FATAL", "IDS", 1, failed)
    mesh.settle()
    assert eu.do("AB.REDRIVE", "dead")[1] == 1
    us.do(*read)
    us.do("XACK", "s", "g", first, last)
    mesh.settle()
    assert [row[0] for row in eu.do("XPENDING", "s", "g", "-", "+", 9)] == [failed]
    eu.restart()
    assert [entry_id for entry_id, _ in eu.do(*read)[0][1]] == [failed]
    eu.do("XACK", "s", "g", failed)
    mesh.settle()
    assert [node.do("XPENDING", "s", "g")[0] for node in (eu, us)] == [0, 0]


def test_what_was_given_back_outlives_the_late_acknowledgement_of_who_gave_it_up() -> None:
    """The copy travels at once; the acknowledgement has a pending entry before it."""
    mesh = Mesh(2)
    group_that_gives_up(mesh)
    eu, us = mesh.nodes.values()
    eu.do("AB.POLICY", "SET", "s", "redeliver", "first")
    mesh.settle()
    us.clock.us += 1_000_000
    us.do("XADD", "s", "*", "f", "v")
    read = ["XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"]
    us.do(*read)  # beyond what it has not got yet
    failed = eu.do("XADD", "s", "*", "f", "v")
    ((_, [(first, _), _]),) = eu.do(*read)
    eu.do("XNACK", "s", "g", "FATAL", "IDS", 1, failed)
    mesh.settle()
    assert us.do("AB.REDRIVE", "dead")[1] == 1
    assert [entry_id for entry_id, _ in us.do(*read)[0][1]] == [failed]
    eu.do("XACK", "s", "g", first)
    mesh.settle()
    assert us.do("XACK", "s", "g", failed) == 1


def test_an_entry_that_fails_again_has_another_copy() -> None:
    """The copy of another region, of the same first failure, was removed with the first one."""
    mesh = Mesh(2)
    group_that_gives_up(mesh)
    eu, us = mesh.nodes.values()
    eu.do("AB.POLICY", "SET", "s", "redeliver", "first")
    mesh.settle()
    for node in (eu, us):
        fail(node)
    eu.do("AB.REDRIVE", "dead")
    fail(eu)
    mesh.settle()
    mesh.settle()
    for node in (eu, us):
        assert node.do("XLEN", "dead") == 1
