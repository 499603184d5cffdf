"""AB.SCHEDULE with several regions: who adds what is due, and that it is there once."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.engine.host import HostRegions
from tests.support.mesh import Mesh, Node

LONG_MS = 100_000
NEVER_HEARD = 1e9


class Sight:
    """Whom a region hears: everybody over links that are up."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def peers(self) -> list[Any]:
        mesh, own = self._node.mesh, self._node.number
        return [
            SimpleNamespace(
                region=each, row_age_ms=0.0 if mesh.is_up(own, each) else float(NEVER_HEARD)
            )
            for each in mesh.nodes
            if each != own
        ]

    def feature_levels(self) -> dict[int, int]:
        return dict.fromkeys(self._node.mesh.nodes, 3)


def regions(count: int = 3, **settings: Any) -> Mesh:
    mesh = Mesh(count, **settings)
    for node in mesh.nodes.values():
        see(node)
    return mesh


def see(node: Node) -> None:
    node.host.regions = cast(HostRegions, Sight(node))


def passes(mesh: Mesh, ms: int) -> None:
    """Time passes in all regions, and each looks at what is due."""
    for node in mesh.nodes.values():
        node.clock.us += ms * 1000
        node.tick()


def values(node: Node) -> list[str]:
    return sorted(fields[1].decode() for _, fields in node.do("XRANGE", "s", "-", "+"))


def plans(node: Node) -> list[bytes]:
    return [row[1] for row in node.do("AB.SCHEDULE", "LIST", "s")]


def all_alike(mesh: Mesh) -> list[str]:
    found = [node.do("XRANGE", "s", "-", "+") for node in mesh.nodes.values()]
    assert all(each == found[0] for each in found)
    for node in mesh.nodes.values():
        node.region.keyspace.databases[0].check()
    return values(mesh.nodes[1])


def test_the_region_that_has_scheduled_it_adds_it() -> None:
    mesh = regions()
    mesh.nodes[2].do("AB.SCHEDULE", "s", "IN", 1000, "ID", "h", "f", "v")
    mesh.settle()
    assert [plans(each) for each in mesh.nodes.values()] == [[b"h"]] * 3
    passes(mesh, 2000)
    assert [values(each) for each in mesh.nodes.values()] == [[], ["v"], []]
    mesh.settle()
    assert all_alike(mesh) == ["v"]
    assert [plans(each) for each in mesh.nodes.values()] == [[]] * 3


def test_a_region_that_is_cut_off_adds_it_later_and_once() -> None:
    mesh = regions()
    mesh.nodes[3].do("AB.SCHEDULE", "s", "IN", 1000, "f", "v")
    mesh.settle()
    mesh.away.add(3)
    passes(mesh, LONG_MS)
    assert values(mesh.nodes[1]) == []
    assert values(mesh.nodes[3]) == ["v"]
    mesh.away.clear()
    mesh.settle()
    passes(mesh, LONG_MS)
    mesh.settle()
    assert all_alike(mesh) == ["v"]


def test_any_region_may_cancel_and_a_cancel_beats_a_later_tick() -> None:
    mesh = regions()
    mesh.nodes[1].do("AB.SCHEDULE", "s", "CRON", "* * * * *", "ID", "h", "f", "v")
    mesh.settle()
    mesh.away.add(2)
    assert mesh.nodes[2].do("AB.SCHEDULE", "CANCEL", "s", "h") == 1
    passes(mesh, 61_000)
    mesh.away.clear()
    mesh.settle()
    passes(mesh, 61_000)
    mesh.settle()
    assert all_alike(mesh) == ["v"]
    assert plans(mesh.nodes[1]) == []


def test_of_two_entries_with_one_handle_the_later_one_counts() -> None:
    mesh = regions(2)
    one, two = mesh.nodes.values()
    two.clock.us += 5000
    one.do("AB.SCHEDULE", "s", "IN", 20_000, "ID", "h", "f", "one")
    two.do("AB.SCHEDULE", "s", "IN", 20_000, "ID", "h", "f", "two")
    mesh.settle()
    passes(mesh, 30_000)
    mesh.settle()
    assert all_alike(mesh) == ["two"]


def test_another_region_takes_over_and_of_two_entries_one_stays() -> None:
    mesh = regions(schedule_takeover=5)
    mesh.nodes[3].do("AB.SCHEDULE", "s", "IN", 1000, "f", "v")
    mesh.settle()
    mesh.away.add(3)
    passes(mesh, LONG_MS)
    mesh.settle([1, 2])
    assert [values(each) for each in mesh.nodes.values()] == [["v"]] * 3
    mesh.nodes[1].do("XGROUP", "CREATE", "s", "g", "0")
    mesh.away.clear()
    mesh.settle()
    assert all_alike(mesh) == ["v"]
    assert mesh.nodes[1].do("XRANGE", "s", "-", "+")  # the owner's stays
    for _ in range(5):
        mesh.settle()
    table = mesh.nodes[1].region.keyspace.databases[0].timetables
    assert (len(table.additions), table.entries) == (0, {})


def test_what_a_removed_region_has_scheduled_is_added_by_another_one() -> None:
    mesh = regions()
    mesh.nodes[1].do("AB.SCHEDULE", "s", "IN", 1000, "f", "v")
    mesh.nodes[1].do("AB.SCHEDULE", "s", "CRON", "* * * * *", "ID", "h", "f", "again")
    mesh.settle()
    mesh.away.add(1)
    passes(mesh, LONG_MS)
    mesh.settle([2, 3])
    assert values(mesh.nodes[2]) == []
    for node in (mesh.nodes[2], mesh.nodes[3]):
        node.replica.admissions.pop(1)
        node.replica.renew_members()
    passes(mesh, 1000)
    assert values(mesh.nodes[2]) == ["again", "v"]
    assert values(mesh.nodes[3]) == []
    passes(mesh, 60_000)
    mesh.settle([2, 3])
    assert values(mesh.nodes[3]) == ["again", "again", "v"]


def test_a_flush_cancels_what_it_has_seen() -> None:
    mesh = regions(2)
    one, two = mesh.nodes.values()
    one.do("AB.SCHEDULE", "s", "IN", 1000, "f", "seen")
    mesh.settle()
    one.do("AB.SCHEDULE", "s", "IN", 1000, "f", "not seen")
    two.do("FLUSHALL")
    mesh.settle()
    passes(mesh, 2000)
    mesh.settle()
    assert all_alike(mesh) == ["not seen"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_full_sync_brings_them(restarts: bool) -> None:
    mesh = regions(2)
    one, two = mesh.nodes.values()
    one.do("AB.SCHEDULE", "s", "IN", 1000, "ID", "a", "f", "one")
    two.do("AB.SCHEDULE", "s", "CRON", "* * * * *", "ID", "b", "f", "two")
    two.do("AB.SCHEDULE", "t", "IN", 1000, "IDMP", "p", "i", "f", "tagged")
    mesh.send_full_sync(2, 1)
    if restarts:
        one.restart()
        see(one)
    assert plans(one) == [b"a", b"b"]
    mesh.settle()
    assert plans(two) == [b"a", b"b"]
    passes(mesh, 2000)
    mesh.settle()
    assert all_alike(mesh) == ["one"]
    assert one.do("XLEN", "t") == 1


@pytest.mark.parametrize("takeover", [0, 5])
@pytest.mark.parametrize("seed", range(15))
def test_random_lives(seed: int, takeover: int) -> None:
    """At the end each entry that was not cancelled is there once, in every region."""
    rng = random.Random(f"{seed}/{takeover}")
    mesh = regions(3, schedule_takeover=takeover)
    scheduled: set[str] = set()
    doubtful: set[str] = set()
    for number in range(60):
        node, dice = rng.choice(list(mesh.nodes.values())), rng.random()
        if dice < 0.4:
            delay = rng.choice([1, 1000, 20_000])
            node.do("AB.SCHEDULE", "s", "IN", delay, "ID", f"h{number}", "n", number)
            scheduled.add(f"{number}")
        elif dice < 0.5 and scheduled:
            chosen = rng.choice(sorted(scheduled))
            if node.do("AB.SCHEDULE", "CANCEL", "s", f"h{chosen}"):
                doubtful.add(chosen)  # another region may be adding it
        elif dice < 0.6:
            mesh.away = {rng.choice([1, 2, 3])} if not mesh.away else set()
        elif dice < 0.7:
            node.restart()
            see(node)
        elif dice < 0.75:
            node.snapshot()
        elif dice < 0.8:
            one, other = rng.sample([1, 2, 3], 2)
            if mesh.is_up(one, other):
                mesh.send_full_sync(one, other)
        elif dice < 0.9:
            mesh.settle()
        else:
            passes(mesh, rng.choice([10, 1000, 10_000]))
    mesh.away.clear()
    mesh.settle()
    passes(mesh, LONG_MS)
    mesh.settle()
    found = all_alike(mesh)
    assert len(found) == len(set(found))
    assert scheduled - doubtful <= set(found) <= scheduled
    for _ in range(3):
        mesh.settle()
    for node in mesh.nodes.values():
        table = node.region.keyspace.databases[0].timetables
        assert (table.live, len(table.additions), len(table.tombstones)) == (0, 0, 0)
