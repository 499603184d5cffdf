"""Acknowledgements travel as soon as nothing before them is pending, whoever has ended that."""

from __future__ import annotations

import pytest

from tests.support.mesh import Mesh, Node


def pending(node: Node) -> list[bytes]:
    """The IDs of pending entries."""
    return [row[0] for row in node.do("XPENDING", "k", "g", "-", "+", 10)]


def begun() -> tuple[Mesh, list[bytes]]:
    """Two regions have the same two entries pending; the first one has acknowledged the second."""
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    ids = [eu.do("XADD", "k", "*", "f", "v") for _ in range(2)]
    eu.do("XGROUP", "CREATE", "k", "g", "0")
    mesh.settle()
    for node in (eu, us):
        node.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">")
    eu.do("XACK", "k", "g", ids[1])
    mesh.settle()
    assert (pending(eu), pending(us)) == (ids[:1], ids)
    return mesh, ids


def go_on(mesh: Mesh) -> None:
    mesh.settle()
    for node in mesh.nodes.values():
        node.tick()
    mesh.settle()


def test_another_region_acknowledges_what_was_in_the_way() -> None:
    mesh, ids = begun()
    eu, us = mesh.nodes.values()
    us.do("XACK", "k", "g", ids[0])
    go_on(mesh)
    assert (pending(eu), pending(us)) == ([], [])


@pytest.mark.parametrize("where", [0, 1])
def test_what_was_in_the_way_is_deleted(where: int) -> None:
    mesh, ids = begun()
    eu, us = mesh.nodes.values()
    (eu, us)[where].do("XDEL", "k", ids[0])
    go_on(mesh)
    assert (pending(eu), pending(us)) == (ids[:1], ids[:1])  # as in Redis


def test_what_was_in_the_way_went_by_a_full_sync() -> None:
    mesh, ids = begun()
    eu, us = mesh.nodes.values()
    us.do("XACK", "k", "g", ids[0])
    one, two = mesh.nodes
    mesh.send_full_sync(two, one)
    go_on(mesh)
    assert (pending(eu), pending(us)) == ([], [])


def test_what_every_region_knows_is_not_told_again() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    for _ in range(3):
        eu.do("XADD", "k", "*", "f", "v")
    eu.do("XGROUP", "CREATE", "k", "g", "0")
    mesh.settle()
    for node in (eu, us):
        node.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">")
    eu.do("XACK", "k", "g", *pending(eu))
    mesh.settle()
    before = dict(us.vector)
    go_on(mesh)
    assert pending(us) == []
    assert us.vector == before


@pytest.mark.parametrize("restarts", [False, True])
def test_a_deleted_entry_stays_pending_when_a_later_one_is_acknowledged(restarts: bool) -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    ids = [eu.do("XADD", "k", "*", "f", "v") for _ in range(3)]
    eu.do("XGROUP", "CREATE", "k", "g", "0")
    eu.do("XREADGROUP", "GROUP", "g", "ann", "STREAMS", "k", ">")
    eu.do("XDEL", "k", ids[0])
    assert eu.do("XACK", "k", "g", ids[1]) == 1
    mesh.settle()
    if restarts:
        eu.restart()
    assert (pending(eu), pending(us)) == ([ids[0], ids[2]], [])  # in the first as in Redis
    assert eu.do("XACK", "k", "g", ids[0], ids[2]) == 2
    mesh.settle()
    assert pending(eu) == []
    us.do("XREADGROUP", "GROUP", "g", "bob", "STREAMS", "k", ">")
    assert pending(us) == []
