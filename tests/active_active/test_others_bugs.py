"""What went wrong in other systems with several regions must not go wrong here: what users see.

Those that take processes are in `tests/system/test_others_bugs.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.active_active.comparison import pairs
from tests.support.mesh import Mesh, Node


def agree(mesh: Mesh, *keys: bytes) -> None:
    mesh.settle()
    digests = [node.do("AB.DIGEST", *keys) for node in mesh.nodes.values()]
    assert None not in digests[0]
    assert all(each == digests[0] for each in digests)


def groups(node: Node, key: bytes) -> list[dict[bytes, Any]]:
    return [pairs(row) for row in node.do("XINFO", "GROUPS", key)]


def test_long_keys_and_names_travel_and_are_kept() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    key, group, consumer = b"k" * (1 << 20), b"g" * (1 << 16), b"c" * (1 << 16)
    producer, iid = b"p" * (1 << 16), b"i" * (1 << 16)
    first = eu.do("XADD", key, "IDMP", producer, iid, "*", b"f" * (1 << 17), b"v" * (1 << 20))
    eu.do("XGROUP", "CREATE", key, group, "0")
    agree(mesh, key)
    assert us.do("XADD", key, "IDMP", producer, iid, "*", "f", "v") == first
    assert us.do("XREADGROUP", "GROUP", group, consumer, "STREAMS", key, ">")
    us.do("XACK", key, group, first)
    agree(mesh, key)
    assert groups(eu, key)[0][b"lag"] == 0
    us.snapshot()
    for node in (eu, us):
        node.restart()
    agree(mesh, key)
    mesh.send_full_sync(1, 2)
    agree(mesh, key)


@pytest.mark.parametrize("start", [2**32 - 10, 2**53 - 10])
def test_numbers_beyond_32_and_53_bits_are_exact(start: int) -> None:
    mesh = Mesh(2)
    for node in mesh.nodes.values():
        for replica_id in (1, 2):
            node.vector[replica_id] = start
            node.base[replica_id] = start
        node.turn.next_number = start + 1
    eu, us = mesh.nodes.values()
    ids = [mesh.nodes[1 + n % 2].do("XADD", "s", f"{n + 1}-*", "n", n) for n in range(30)]
    agree(mesh, b"s")
    eu.do("XGROUP", "CREATE", "s", "g", "0")
    eu.do("XREADGROUP", "GROUP", "g", "c", "COUNT", 20, "STREAMS", "s", ">")
    agree(mesh, b"s")
    for node in (eu, us):
        assert [entry_id for entry_id, _ in node.do("XRANGE", "s", "-", "+")] == ids
        assert node.vector[1] == start + 16
        assert node.vector[2] == start + 15
    eu.do("XACK", "s", "g", *ids[:20])
    eu.do("XDEL", "s", ids[3])
    agree(mesh, b"s")
    assert groups(us, b"s")[0][b"lag"] == 10
    us.snapshot()
    us.restart()
    agree(mesh, b"s")
    mesh.send_full_sync(2, 1)
    agree(mesh, b"s")


def test_an_id_that_was_used_again_after_it_ended_is_accepted_by_all() -> None:
    """The replica ID has forgotten it; others, whose clocks are late, have not."""
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    eu.do("XADD", "s", "IDMP", "p", "i", "*", "n", 0)
    eu.do("XCFGSET", "s", "IDMP-DURATION", 10)
    first = eu.do("XADD", "s", "IDMP", "p", "i", "*", "n", 1)
    agree(mesh, b"s")
    eu.clock.us += 11_000_000
    second = eu.do("XADD", "s", "IDMP", "p", "i", "*", "n", 2)
    assert second != first
    agree(mesh, b"s")
    assert us.do("XLEN", "s") == eu.do("XLEN", "s") == 3
    assert us.do("XADD", "s", "IDMP", "p", "i", "*", "n", 3) in {first, second}
    assert us.do("XLEN", "s") == 3


def test_consumers_that_change_regions_skip_nothing_and_their_lag_is_never_negative() -> None:
    mesh = Mesh(3)
    nodes = list(mesh.nodes.values())
    nodes[0].do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    mesh.settle()
    added, delivered = set(), set()
    for turn in range(60):
        for n, node in enumerate(nodes):
            node.clock.us += 1000 * (1 + (turn + n) % 3)
            added.add(node.do("XADD", "s", "*", "t", turn))
        node = nodes[turn % 3]
        reply = node.do("XREADGROUP", "GROUP", "g", "c", "COUNT", 4, "STREAMS", "s", ">")
        ids = [entry_id for _, entries in reply or () for entry_id, _ in entries]
        delivered.update(ids)
        node.do("XACK", "s", "g", *ids[: len(ids) // 2], "0-1")
        mesh.send(1 + turn % 3, 1 + (turn + 1) % 3)
        for each in nodes:
            for group in groups(each, b"s"):
                assert group[b"lag"] >= 0
                assert group[b"entries-read"] >= 0
    mesh.settle()
    for node in nodes:
        while reply := node.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"):
            delivered.update(entry_id for _, entries in reply for entry_id, _ in entries)
    assert delivered == added
    agree(mesh, b"s")


def test_trimming_frees_memory_while_a_region_is_away() -> None:
    mesh = Mesh(3)
    eu = mesh.nodes[1]
    for away in (1, 2):
        mesh.cut_links.add(frozenset((away, 3)))
    most = 0
    for turn in range(40):
        for _ in range(50):
            eu.do("XADD", "s", "MAXLEN", "~", 200, "*", "f", b"v" * 1000)
        mesh.settle([1, 2])
        used = eu.do("MEMORY", "USAGE", "s", "SAMPLES", 0)
        most = max(most, used) if turn < 10 else most
        assert turn < 10 or used <= 1.2 * most
    assert eu.do("XLEN", "s") <= 300
    mesh.cut_links.clear()
    agree(mesh, b"s")
    assert mesh.nodes[3].do("XLEN", "s") == eu.do("XLEN", "s")


def test_what_was_acknowledged_stays_so_after_a_restart_of_either_side() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    ids = [eu.do("XADD", "s", "*", "n", n) for n in range(10)]
    eu.do("XGROUP", "CREATE", "s", "g", "0")
    eu.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    eu.do("XACK", "s", "g", *ids)
    for node in (eu, us, eu):
        mesh.settle()
        node.snapshot() if node is us else node.sync()
        node.restart()
        for each in (eu, us):
            mesh.settle()
            assert each.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">") is None
            assert each.do("XPENDING", "s", "g")[0] == 0
