"""Policies of streams with several regions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.mesh import Mesh, Node


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
