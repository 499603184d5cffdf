"""entries-read of a group where several regions write (docs/counters-and-lag.md)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.active_active.comparison import pairs
from tests.support.mesh import Mesh, Node


def figures(node: Node, key: str = "s", group: bytes = b"g") -> tuple[int, int]:
    """entries-read and lag."""
    for row in map(pairs, node.do("XINFO", "GROUPS", key)):
        if row[b"name"] == group:
            return row[b"entries-read"], row[b"lag"]
    raise AssertionError(group)


def add(node: Node, count: int, key: str = "s") -> list[bytes]:
    return [node.do("XADD", key, "*", "f", each) for each in range(count)]


def read(node: Node, count: int, key: str = "s") -> list[bytes]:
    command = ("XREADGROUP", "GROUP", "g", "c", "COUNT", count, "STREAMS", key, ">")
    reply: Any = node.do(*command)
    return [entry_id for entry_id, _ in reply[0][1]] if reply else []


def settle(mesh: Mesh) -> None:
    mesh.settle()
    mesh.settle()


@pytest.fixture
def mesh() -> Mesh:
    """Two regions; the first has written ten entries, of which the group has read four there."""
    mesh = Mesh(2)
    one = mesh.nodes[1]
    one.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    add(one, 10)
    settle(mesh)
    assert len(read(one, 4)) == 4
    assert figures(one) == (4, 6)
    assert figures(mesh.nodes[2]) == (0, 10)
    return mesh


def test_deleting_what_is_unread_leaves_it_as_it_is(mesh: Mesh) -> None:
    one = mesh.nodes[1]
    ids = [entry_id for entry_id, _ in one.do("XRANGE", "s", "-", "+")]
    one.do("XDEL", "s", ids[6])
    assert figures(one) == (4, 5)
    one.do("XDEL", "s", ids[4], ids[5])
    assert figures(one) == (4, 3)
    one.do("XDEL", "s", *ids[:4])
    assert figures(one) == (4, 3)
    one.do("XTRIM", "s", "MAXLEN", 2)
    assert figures(one) == (4, 2)
    one.do("XTRIM", "s", "MAXLEN", 0)
    assert figures(one) == (4, 0)
    settle(mesh)
    assert figures(mesh.nodes[2]) == (0, 0)


def test_who_reads_on_passes_what_was_deleted(mesh: Mesh) -> None:
    one = mesh.nodes[1]
    ids = [entry_id for entry_id, _ in one.do("XRANGE", "s", "-", "+")]
    one.do("XDEL", "s", ids[4], ids[5], ids[7])
    assert figures(one) == (4, 3)
    assert read(one, 1) == [ids[6]]
    assert figures(one) == (8, 2)
    read(one, 10)
    assert figures(one) == (10, 0)


def test_each_region_counts_what_it_was_given_or_heard_acknowledged(mesh: Mesh) -> None:
    one, two = mesh.nodes.values()
    add(two, 5)
    assert figures(two) == (0, 15)
    ids = read(two, 3)
    two.do("XACK", "s", "g", *ids)
    assert figures(two) == (3, 12)
    settle(mesh)
    assert figures(one) == (4, 11)
    read(one, 100)
    assert figures(one) == (15, 0)


def test_acknowledged_and_removed_elsewhere_counts_as_read() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    add(one, 4)
    settle(mesh)
    ids = read(two, 4)
    two.do("XACKDEL", "s", "g", "DELREF", "IDS", 4, *ids)
    settle(mesh)
    assert figures(one) == figures(two) == (4, 0)


def test_what_a_conflict_takes_away_unread_does_not_count_as_read() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    settle(mesh)
    add(two, 2)
    assert len(read(two, 2)) == 2
    one.do("XADD", "s", "IDMP", "p", "m", "*", "f", "v")
    two.clock.us += 5000
    two.do("XADD", "s", "IDMP", "p", "m", "*", "f", "v")
    assert figures(two) == (2, 1)
    settle(mesh)
    assert figures(two) == (2, 1), "the entry of the other region instead"
    read(two, 9)
    assert figures(two) == (3, 0), "nothing was read behind the one that went"


def test_what_is_added_below_the_start_counts_as_read_when_it_is_gone() -> None:
    one = Mesh(1, xadd_id_uniqueness_mode="liberal").nodes[1]
    one.do("XGROUP", "CREATE", "s", "g", "50-0", "MKSTREAM")
    for count in (1, 2):
        one.do("XADD", "s", f"{count}-0", "f", "v")
        one.do("XTRIM", "s", "MAXLEN", 0)
        assert figures(one) == (count, 0)
    one.do("XADD", "s", "60-0", "f", "v")
    one.do("XTRIM", "s", "MAXLEN", 0)
    assert figures(one) == (2, 0), "that one was not read"
    read(one, 1)
    one.do("XADD", "s", "61-0", "f", "v")
    assert read(one, 1) == [b"61-0"]
    one.do("XADD", "s", "62-0", "f", "v")
    one.do("XTRIM", "s", "MAXLEN", 0)
    assert figures(one) == (4, 0)


@pytest.mark.parametrize("start", ["0", "$"])
def test_a_group_begins_behind_what_is_gone(start: str) -> None:
    one = Mesh(1).nodes[1]
    add(one, 6)
    one.do("XTRIM", "s", "MAXLEN", 2)
    one.do("XGROUP", "CREATE", "s", "g", start)
    assert figures(one) == ((4, 2) if start == "0" else (6, 0))
    one.do("XTRIM", "s", "MAXLEN", 0)
    assert figures(one) == ((4, 0) if start == "0" else (6, 0))


def test_entriesread_of_a_creation_holds_in_all_regions() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    add(one, 10)
    settle(mesh)
    add(two, 5)  # the other has not heard of them
    one.do("XGROUP", "CREATE", "s", "g", "0", "ENTRIESREAD", 7)
    assert figures(one) == (7, 10)
    settle(mesh)
    assert figures(one) == figures(two) == (7, 15)
    read(two, 3)
    assert figures(two) == (10, 12)
    read(two, 12)
    assert figures(two) == (15, 0), "never more than was added"
    mesh.send_full_sync(2, 1)
    assert figures(one) == (7, 15)


def test_entriesread_of_a_creation_comes_with_a_state_and_a_snapshot() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    add(one, 10)
    settle(mesh)
    one.do("XGROUP", "CREATE", "s", "g", "0", "ENTRIESREAD", 7)
    for replica_id, number in dict(one.vector).items():
        one.forget(replica_id, number)
    mesh.send(1, 2)
    assert figures(two) == (7, 10)
    read(two, 1)
    two.snapshot()
    two.do("XDEL", "s", two.do("XRANGE", "s", "-", "+")[1][0])
    two.restart()
    assert figures(two) == (8, 8)
    two.sync()
    two.restart()
    assert figures(two) == (8, 8)


def test_the_greatest_entriesread_of_concurrent_creations_counts() -> None:
    mesh = Mesh(3)
    add(mesh.nodes[1], 10)
    settle(mesh)
    for node, count in zip(mesh.nodes.values(), [3, 5, 4], strict=True):
        node.do("XGROUP", "CREATE", "s", "g", "0", "ENTRIESREAD", count)
    settle(mesh)
    assert {figures(node) for node in mesh.nodes.values()} == {(5, 10)}


def test_setid_moves_this_region_alone(mesh: Mesh) -> None:
    one, two = mesh.nodes.values()
    ids = [entry_id for entry_id, _ in one.do("XRANGE", "s", "-", "+")]
    one.do("XGROUP", "SETID", "s", "g", ids[6], "ENTRIESREAD", 2)
    assert figures(one) == (2, 3)
    assert figures(two) == (0, 10)
    one.snapshot()
    one.restart()
    assert figures(one) == (2, 3)
    read(one, 1)
    assert figures(one) == (3, 2)
    one.do("XGROUP", "SETID", "s", "g", "0", "ENTRIESREAD", "-1")
    assert figures(one) == (0, 10)
    one.do("XGROUP", "SETID", "s", "g", "$")
    assert figures(one) == (10, 0)
    one.do("XGROUP", "SETID", "s", "g", ids[8], "ENTRIESREAD", 9999)
    assert figures(one) == (10, 1)


def test_a_copy_goes_on_counting(mesh: Mesh) -> None:
    one = mesh.nodes[1]
    ids = [entry_id for entry_id, _ in one.do("XRANGE", "s", "-", "+")]
    one.do("XDEL", "s", ids[1], ids[5], ids[9])
    assert figures(one) == (4, 4)
    one.do("COPY", "s", "t")
    assert figures(one, "t") == (4, 4)
    read(one, 2, "t")
    assert figures(one, "t") == (6, 2)


@pytest.mark.parametrize("seed", range(8))
def test_it_never_rises_by_a_removal_and_never_falls_by_itself(seed: int) -> None:
    chance = random.Random(seed)
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    settle(mesh)
    for _ in range(60):
        node = chance.choice([one, two])
        before, _ = figures(node)
        match chance.randrange(7):
            case 0 | 1:
                add(node, chance.randint(1, 60))
                assert figures(node)[0] == before
            case 2:
                ids = [entry_id for entry_id, _ in node.do("XRANGE", "s", "-", "+")]
                if ids:
                    low = chance.randrange(len(ids))
                    node.do("XDEL", "s", *ids[low : low + chance.choice([1, 3, 200])])
                assert figures(node)[0] == before
            case 3:
                node.do("XTRIM", "s", "MAXLEN", chance.choice("=~"), chance.randint(0, 100))
                assert figures(node)[0] == before
            case 4:
                ids = read(node, chance.randint(1, 40))
                if ids:
                    node.do("XACK", "s", "g", *ids[: chance.randint(1, len(ids))])
                assert figures(node)[0] >= before + len(ids)
            case 5:
                node.snapshot()
                node.restart()
                assert figures(node)[0] == before
            case 6:
                settle(mesh)
                assert figures(node)[0] >= before
        counted, lag = figures(node)
        added = pairs(node.do("XINFO", "STREAM", "s"))[b"entries-added"]
        assert counted + lag <= added
    settle(mesh)
    read(one, 10_000)
    assert figures(one)[1] == 0
