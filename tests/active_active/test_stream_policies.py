"""Policies of streams with several regions."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.mesh import Mesh, Node


def text_of(entry_id: Any) -> str:
    return entry_id.decode() if isinstance(entry_id, bytes) else str(entry_id)


def ids(reply: Any) -> list[str]:
    return [entry_id for _, entries in reply or [] for entry_id, _ in entries]


def read(node: Node, key: str = "s") -> list[str]:
    return ids(node.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", key, ">"))


# -- auto-create-group --------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "begins_with"), [("0", 3), ("$", 0)])
def test_readers_of_three_regions_make_one_group(start: str, begins_with: int) -> None:
    mesh = Mesh(3)
    one, two, three = mesh.nodes.values()
    one.do("AB.POLICY", "SET", "s", "auto-create-group", f"g:{start}")
    for node in (one, two, three):
        node.do("XADD", "s", "*", "f", "v")
    mesh.settle()
    assert [len(read(node)) for node in (one, two, three)] == [begins_with] * 3
    mesh.settle()
    later = one.do("XADD", "s", "*", "f", "v")
    mesh.settle()
    for node in (one, two, three):
        assert read(node)[-1:] == [later]
        assert len(node.do("XINFO", "GROUPS", "s")) == 1


def test_a_region_that_restarts_has_the_group_that_its_reader_made() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    eu.do("AB.POLICY", "SET", "s", "auto-create-group", "g:0")
    mesh.settle()
    assert read(us) == []
    us.restart()
    mesh.settle()
    entry_id = eu.do("XADD", "s", "*", "f", "v")
    mesh.settle()
    assert read(us) == [entry_id]


# -- retention ----------------------------------------------------------------------------------


def live(node: Node) -> list[str]:
    return [text_of(entry_id) for entry_id, _ in node.do("XRANGE", "s", "-", "+")]


def works(node: Node) -> None:
    for _ in range(3):
        node.tick()


@pytest.mark.parametrize("exact", ["yes", "no"])
def test_what_one_region_removes_is_removed_in_all_and_what_it_has_not_seen_stays(
    exact: str,
) -> None:
    mesh = Mesh(3, stream_node_max_entries=5)
    one, two, three = mesh.nodes.values()
    one.do("AB.POLICY", "SET", "s", "max-length", "10", "exact", exact)
    mesh.settle()
    unseen = text_of(three.do("XADD", "s", "*", "f", "v"))  # older than all
    for _ in range(13):
        one.do("XADD", "s", "*", "f", "v")
        two.do("XADD", "s", "*", "f", "v")
    mesh.exchange([1, 2])
    works(one)
    assert len(live(one)) == 10 if exact == "yes" else 10 <= len(live(one)) < 15
    assert len(live(two)) == 26
    mesh.settle()
    mesh.settle()
    assert live(one)[0] == live(two)[0] == live(three)[0] == unseen
    for node in (one, two, three):
        works(node)
    mesh.settle()
    assert live(one) == live(two) == live(three)
    assert len(live(one)) < 15
    assert (unseen in live(one)) is False


@pytest.mark.parametrize("seed", range(30))
def test_no_region_removes_what_the_group_has_not_acknowledged_anywhere(seed: int) -> None:
    rng = random.Random(seed)
    mesh = Mesh(3, stream_node_max_entries=4)
    nodes = mesh.nodes
    nodes[1].do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    limits = rng.choice([(), ("max-length", "3"), ("max-bytes", "100")])
    exact = rng.choice(["yes", "no"])
    nodes[1].do("AB.POLICY", "SET", "s", "keep", "unacked", "exact", exact, *limits)
    mesh.settle()
    added: set[str] = set()
    done: set[str] = set()
    for _ in range(120):
        number = rng.choice(list(nodes))
        node = nodes[number]
        match rng.randrange(8):
            case 0 | 1:
                added.update(text_of(node.do("XADD", "s", "*", "f", "v")) for _ in range(5))
            case 2 | 3:
                count, consumer = rng.randint(1, 9), rng.choice("ab")
                node.do("XREADGROUP", "GROUP", "g", consumer, "COUNT", count, "STREAMS", "s", ">")
            case 4:
                rows = node.do("XPENDING", "s", "g", "-", "+", 100)
                some = [text_of(row[0]) for row in rows if rng.random() < 0.7]
                if some:
                    node.do("XACK", "s", "g", *some)
                    done.update(some)
            case 5:
                before = set(live(node))
                works(node)
                assert (before & added) - done <= set(live(node))
            case 6:
                mesh.exchange()
            case _ if rng.random() < 0.2:
                node.restart()
            case _ if rng.random() < 0.2:
                node.do("XGROUP", "DELCONSUMER", "s", "g", rng.choice("ab"))
    mesh.settle()
    for node in nodes.values():
        works(node)
    mesh.settle()
    first, *others = [live(node) for node in nodes.values()]
    assert all(each == first for each in others)
    assert added - done <= set(first)
    for node in nodes.values():
        read(node)
        rows = node.do("XPENDING", "s", "g", "-", "+", 10_000)
        if rows:
            node.do("XACK", "s", "g", *(row[0] for row in rows))
    mesh.settle()
    for node in nodes.values():
        works(node)
    mesh.settle()
    assert len(live(nodes[1])) <= 3 + 3 * 4


# -- AB.SEAL ------------------------------------------------------------------------------------


def is_sealed(node: Node) -> bool:
    (error,) = node.ask(("XADD", "s", "*", "f", "v"))
    return str(error).startswith("SEALED")


def test_a_seal_ends_the_stream_in_all_regions_and_entries_made_meanwhile_stay() -> None:
    mesh = Mesh(3)
    one, two, three = mesh.nodes.values()
    one.do("XADD", "s", "*", "f", "v")
    mesh.settle()
    one.do("AB.SEAL", "s")
    assert is_sealed(one)
    late = text_of(two.do("XADD", "s", "*", "f", "v"))  # has not heard of the seal
    mesh.settle()
    three.restart()
    for node in (one, two, three):
        assert is_sealed(node)
        assert live(node)[-1] == late
        ((_, _, entries, notes),) = node.do("AB.READ", "NOTES", "STREAMS", "s", "0")
        assert len(entries) == 2
        assert [[text_of(word) for word in note] for note in notes] == [["end"]]
    assert one.do("AB.DIGEST", "s") == two.do("AB.DIGEST", "s") == three.do("AB.DIGEST", "s")


def test_the_seal_goes_with_a_full_sync_and_ends_with_the_key() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    eu.do("XADD", "s", "*", "f", "v")
    eu.do("AB.SEAL", "s")
    mesh.send_full_sync(1, 2)
    assert is_sealed(us)
    us.do("RENAME", "s", "t")
    us.do("RENAME", "t", "s")
    mesh.settle()
    assert is_sealed(eu)
    us.do("DEL", "s")
    mesh.settle()
    assert not is_sealed(eu)
    assert not is_sealed(us)
