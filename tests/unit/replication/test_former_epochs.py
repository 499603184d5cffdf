"""A region that begins anew asks every member for its former epochs, not only one."""

from __future__ import annotations

import pytest

from anabranch.keyspace.replica import epoch_of
from anabranch.replication.former_epochs import ANSWER_MS
from anabranch.replication.framing import FrameType
from anabranch.replication.status_table import ALIVE_MS
from tests.support.replication_world import Node, World


def begin_anew(node: Node, by: Node) -> None:
    """The disk of a region is lost; it asks another region to be taken in again."""
    node.crash()
    node.local = type(node.local)(node.world, node.number)
    node.settings = {"join": [by.address]}
    node.start()


@pytest.fixture
def unequal() -> tuple[World, Node, Node, Node]:
    """Region 3 has written 5 effects: region 1 has all of them, region 2 only the first 2."""
    world = World()
    one, two, three = world.cluster(3)
    three.write(batches=2)
    world.run(500)
    two.crash(clean=True)
    three.write(batches=3)
    world.run(500)
    assert one.local.vector[3] == 5
    world.last_epoch.clear()
    return world, one, two, three


def test_the_member_that_knows_more_is_waited_for(
    unequal: tuple[World, Node, Node, Node],
) -> None:
    world, one, two, three = unequal
    one.crash(clean=True)
    two.start()
    begin_anew(three, two)
    world.run_until(lambda: three.replicator.caught_up, 5000)
    assert three.local.vector[3] == 2
    assert three.replicator.former_epochs_at
    one.start()
    world.run_until(lambda: not three.replicator.former_epochs_at, 8000)
    assert three.local.vector[3] == 5
    assert epoch_of(three.local.replica.own) > 0


def test_a_member_that_does_not_answer_is_left_out_after_a_while(
    unequal: tuple[World, Node, Node, Node],
) -> None:
    world, one, two, three = unequal
    one.crash(clean=True)
    two.start()
    begin_anew(three, two)
    world.run_until(lambda: three.replicator.caught_up, 5000)
    world.run(ANSWER_MS - 1000)
    assert three.replicator.former_epochs_at
    world.run(2000)
    assert not three.replicator.former_epochs_at
    assert three.local.vector[3] == 2


def test_a_member_that_only_others_reach_is_waited_for(
    unequal: tuple[World, Node, Node, Node],
) -> None:
    world, one, two, three = unequal
    world.cut(1, 3)
    two.start()
    begin_anew(three, two)
    for _ in range(100):
        world.run(50)
        is_ready = three.replicator.caught_up and not three.replicator.former_epochs_at
        assert three.local.vector.get(3) == 5 or not is_ready
    world.run(ANSWER_MS)
    assert not three.replicator.former_epochs_at
    assert one.local.vector[3] == three.local.vector[3] == 5


def test_a_member_that_only_others_reach_counts_as_long_as_they_hear_from_it(
    unequal: tuple[World, Node, Node, Node],
) -> None:
    world, one, two, three = unequal
    world.cut(1, 3)
    world.on_frame = lambda source, _target, frame: (
        None if source == 1 and frame[4] == FrameType.BATCH else frame
    )
    two.start()
    begin_anew(three, two)
    world.run_until(lambda: three.replicator.caught_up, 5000)
    world.run(2 * ANSWER_MS)
    assert three.local.vector[3] == 2
    assert three.replicator.former_epochs_at == [1]
    one.crash(clean=True)
    world.run_until(lambda: not three.replicator.former_epochs_at, 2 * ALIVE_MS)


def test_a_region_that_never_lived_waits_for_nobody_who_is_down() -> None:
    world = World()
    one, two = world.cluster(2)
    two.crash()
    three = world.region(3, join=[one.address])
    world.run_until(lambda: three.replicator.caught_up, 5000)
    world.run(100)
    assert not three.replicator.former_epochs_at
