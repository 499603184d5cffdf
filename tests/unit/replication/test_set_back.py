"""A disk that was set back behind everybody's back, and has been written to since: it is stopped.

Others know its effects under numbers that it has given to others since then. Nobody may get more of
either kind from somebody who has the other.
"""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.oplog.batch import sent_batch
from tests.support.counted_region import batch_bytes
from tests.support.replication_world import Node, World


def cluster_with_history(world: World) -> tuple[list[Node], dict[str, Any]]:
    """Three regions with three effects of region 2, and its disk as it was after the first."""
    nodes = world.cluster(3)
    world.run(500)
    two = nodes[1]
    two.write()
    two.local.sync()
    old = two.local.disk
    two.write()
    two.write()
    world.run(500)
    assert [node.local.vector for node in nodes] == [{2: 3}] * 3
    return nodes, old


@pytest.mark.parametrize("since", [1, 2, 5])
def test_a_region_that_has_written_since_is_stopped(since: int) -> None:
    """Whether it has written less than what it lost, as much, or more."""
    world = World()
    (one, two, three), old = cluster_with_history(world)
    world.cut(1, 2)
    world.cut(2, 3)
    two.set_back(old)
    for _ in range(since):
        two.write()
    world.run(500)
    world.heal()
    world.run_until(lambda: bool(two.local.noted("set_back")), 15_000)
    world.run(5000)
    assert len(two.local.noted("set_back")) == 1
    assert two.local.noted("set_back")[0]["reason"].startswith("This region was set back")
    # What it wrote since is nowhere, and the others go on by themselves.
    assert one.local.vector[2] == three.local.vector[2] == 3
    assert one.local.batches[2] == three.local.batches[2]
    assert two.local.batches[2] != one.local.batches[2]
    one.write()
    world.run(500)
    assert three.local.vector[1] == 1
    assert 1 not in two.local.vector
    assert {one.peer(2).state, two.peer(1).state} <= {"connecting", "unreachable", "alive_via"}


def test_it_stays_apart_from_those_who_know_nothing_yet() -> None:
    world = World()
    (one, two, three), old = cluster_with_history(world)
    world.cut(1, 2)
    world.cut(2, 3)
    two.set_back(old)
    for _ in range(5):
        two.write()
    four = world.region(4, join=[one.address])
    world.run_until(
        lambda: 4 in two.local.replica.members or 4 in one.local.replica.members, 15_000
    )
    world.heal(1, 2)
    world.run_until(lambda: bool(two.local.noted("set_back")), 15_000)
    two.write()
    world.heal()
    world.run(5000)
    assert {node.local.vector.get(2, 3) for node in (one, three, four)} == {3}


def test_a_restart_stays_apart_as_soon_as_it_is_told() -> None:
    world = World()
    (one, two, three), old = cluster_with_history(world)
    for pair in ((1, 2), (2, 3)):
        world.cut(*pair)
    two.set_back(old)
    for _ in range(5):
        two.write()
    two.replicator.links.set_back("found by the process before")
    world.heal()
    world.run(5000)
    assert two.local.noted("set_back") == [{"reason": "found by the process before"}]
    assert {node.local.vector[2] for node in (one, three)} == {3}
    assert not two.local.noted("reachable")


def test_others_pass_neither_on_to_who_has_the_other() -> None:
    """One has the former effects, and three, which was cut off, gets the later ones."""
    world = World()
    one, two, three = world.cluster(3)
    world.run(500)
    two.write()
    two.local.sync()
    old = two.local.disk
    world.run(500)
    world.cut(1, 3)
    world.cut(2, 3)
    two.write()
    two.write()
    world.run(500)
    assert (one.local.vector, three.local.vector) == ({2: 3}, {2: 1})
    world.cut(1, 2)
    two.set_back(old)
    for _ in range(5):
        two.write()
    world.heal(2, 3)
    world.run_until(lambda: three.local.vector == {2: 6}, 15_000)
    world.cut(2, 3)
    former = list(one.local.batches[2])
    world.heal(1, 3)
    world.run_until(lambda: bool(three.local.noted("conflict")), 15_000)
    world.run(2000)
    assert three.local.noted("conflict")[0] == {"region": 1, "replica_id": 2, "number": 3}
    assert one.local.batches[2] == former
    one.write()
    world.run(500)
    assert three.local.vector[1] == 1, "everything else goes on"


def test_who_cannot_tell_is_believed() -> None:
    """A log that does not reach back has nothing to compare with."""
    world = World()
    (one, two, three), _ = cluster_with_history(world)
    for node in (one, two, three):
        node.local.cut = {2: 3}
    world.cut(1, 2)
    two.write()
    world.run(500)
    world.heal()
    world.run_until(world.converged, 15_000)
    assert not two.local.noted("set_back")


def test_a_peer_whose_disk_lies_stops_nobody() -> None:
    """It had what we have while this process lived: it cannot be us who was set back."""
    world = World()
    (one, two, three), _ = cluster_with_history(world)
    one.crash(clean=True)
    first, second, last = one.local.batches[2]
    one.local.batches[2] = [first, second, batch_bytes(2, 3, 1, wall_ms=1)]
    assert sent_batch(last).last == 3
    one.start()
    world.run(2000)
    assert two.local.noted("conflict") == [{"region": 1, "replica_id": 2, "number": 3}]
    assert not two.local.noted("set_back")
    two.write()
    world.run(500)
    assert one.local.vector[2] == three.local.vector[2] == 4
