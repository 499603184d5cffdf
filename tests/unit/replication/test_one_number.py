"""Two servers that ask for one number: one of them gets it, and what both wrote stays apart."""

from __future__ import annotations

from anabranch.keyspace.replica import epoch_of, region_of
from anabranch.replication.frames import Reason
from tests.support.replication_world import Node, World

NUMBER = 3


def asking(world: World, place: int, member: Node) -> Node:
    """A server with the number that asks one member; `place` is where it is in the network."""
    return world.region(NUMBER, place, join=[member.address])


def told(node: Node) -> set[str]:
    return {facts["text"] for facts in node.local.noted("refused")}


def linked(node: Node) -> list[int]:
    return sorted(session.region for session in node.replicator.links.up())


APART = [(one, other) for one in (1, 30) for other in (2, 31)]
"""Places on one side and on the other."""


TAKEN = {
    "the number 3 is taken",
    "the number 3 is taken by another server: choose one that is free",
}


def test_of_two_that_ask_two_members_at_once_one_is_let_in() -> None:
    for seed in range(5):
        world = World(seed)
        one, two = world.cluster(2)
        world.run(1000)
        several = [asking(world, 30, one), asking(world, 31, two)]
        world.run(15_000)
        inside = [node for node in several if node.local.replica.cluster_id]
        (outside,) = [node for node in several if not node.local.replica.cluster_id]
        assert len(inside) == 1
        assert epoch_of(inside[0].local.replica.own) == 0, "its IDs are plain"
        assert linked(inside[0]) == [1, 2]
        assert told(outside) & TAKEN
        assert told(one) & TAKEN
        assert {reason["reason"] for reason in outside.local.noted("refused")} == {Reason.REGION}
        assert one.local.replica.members[NUMBER].host == inside[0].address[0]
        assert not outside.local.noted("new_epoch")


def test_members_that_do_not_reach_each_other_give_out_different_epochs() -> None:
    for seed in range(3):
        world = World(seed)
        one, two = world.cluster(2)
        world.run(1000)
        for pair in APART:
            world.cut(*pair)
        world.run(6000)
        first, second = asking(world, 30, one), asking(world, 31, two)
        world.run(10_000)
        assert first.local.replica.cluster_id
        assert second.local.replica.cluster_id
        first.write()
        second.write()
        world.run(200)
        world.heal()
        world.run(20_000)
        epochs = {each.local.replica.own for each in (first, second)}
        assert len(epochs) == 2
        assert one.local.vector == two.local.vector
        assert epochs <= set(one.local.vector), "what both wrote is there"
        assert {region_of(each) for each in epochs} == {NUMBER}
        keeps, loses = sorted((first, second), key=lambda node: -node.local.replica.own)
        assert linked(keeps) == [1, 2]
        assert linked(loses) == []
        assert told(loses) & TAKEN
        world.run(60_000)
        assert {each.local.replica.own for each in (first, second)} == epochs, (
            "they do not take turns"
        )
        assert linked(keeps) == [1, 2]


def test_who_cannot_reach_the_member_that_gives_numbers_away_is_let_in_by_another() -> None:
    world = World()
    one, two = world.cluster(2)
    world.run(1000)
    world.cut(1, 30)
    three = asking(world, 30, two)
    world.run_until(lambda: bool(three.local.replica.cluster_id), 20_000)
    assert epoch_of(three.local.replica.own) > 0, "nobody else can have been given this epoch"
    three.write()
    world.run_until(lambda: three.local.replica.own in one.local.vector, 5000)


def test_who_comes_back_soon_without_its_disk_waits_until_its_former_epoch_is_over() -> None:
    world = World()
    one, _two, three = world.cluster(3)
    world.run(1000)
    three.crash()
    world.last_epoch.clear()
    three.local = type(three.local)(world, 3)
    three.settings = {"join": [one.address]}
    three.start()
    world.run(1000)
    assert not three.local.replica.cluster_id
    world.run_until(lambda: bool(three.local.replica.cluster_id), 15_000)
