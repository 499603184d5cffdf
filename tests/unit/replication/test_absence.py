"""Members that stay away are removed by one side only, and hear of it when they come back."""

from __future__ import annotations

import pytest

from tests.support.replication_world import Node, World

LIMIT_MS = 90_000
LONG_MS = 120_000


def members(*nodes: Node) -> list[list[int]]:
    return [sorted(node.local.replica.members) for node in nodes]


def cut_off(world: World, *regions: int) -> None:
    """Between these and all others nothing gets through."""
    for one in regions:
        for two in world.nodes.keys() - set(regions):
            world.cut(one, two)


def expiring(count: int, limit_ms: int = LIMIT_MS) -> list[Node]:
    nodes = World().cluster(count, expire_after_ms=limit_ms)
    nodes[0].world.run(1000)
    return nodes


def test_who_is_away_too_long_is_removed_and_told_when_it_comes_back() -> None:
    one, two, three = expiring(3)
    world = one.world
    cut_off(world, 3)
    three.write()
    world.run(LIMIT_MS - 1000)
    assert members(one, two) == [[1, 2, 3]] * 2
    world.run(20_000)
    assert members(one, two) == [[1, 2]] * 2
    assert one.local.noted("expired") == [{"region": 3, "name": "ap"}]
    assert not two.local.noted("expired"), "one of them decides"
    assert not three.local.noted("removed")
    world.heal()
    world.run_until(lambda: bool(three.local.noted("removed")), 30_000)
    assert three.local.noted("removed") == [{"reason": "region 3 was removed from the cluster"}]
    world.run(30_000)
    assert three.local.replica.own not in one.local.vector, "nothing of it is taken"
    assert not list(three.replicator.links.up())
    assert len(three.local.noted("removed")) == 1
    one.write()
    world.run_until(lambda: one.local.vector == two.local.vector)
    world.sync_all()
    world.run_until(lambda: one.replicator.facts(world.now_ms)["unstable_effects"] == 0)


def test_nobody_is_removed_who_is_heard_of_by_way_of_others() -> None:
    one, two, three = expiring(3)
    one.world.cut(1, 3)
    one.world.run(LONG_MS)
    assert members(one, two, three) == [[1, 2, 3]] * 3


def test_nobody_is_removed_unless_that_is_set() -> None:
    one, two, _ = expiring(3, limit_ms=0)
    cut_off(one.world, 3)
    one.world.run(LONG_MS)
    assert members(one, two) == [[1, 2, 3]] * 2


def test_a_short_time_is_lengthened() -> None:
    one, two, _ = expiring(3, limit_ms=1000)
    cut_off(one.world, 3)
    one.world.run(50_000)
    assert members(one, two) == [[1, 2, 3]] * 2
    one.world.run(20_000)
    assert members(one, two) == [[1, 2]] * 2


@pytest.mark.parametrize(("count", "gone"), [(5, (1, 2)), (4, (3, 4)), (4, (2, 3, 4)), (2, (2,))])
def test_only_one_side_of_a_partition_decides(count: int, gone: tuple[int, ...]) -> None:
    """The greater one, and of two halves the one with the lowest number."""
    nodes = expiring(count)
    cut_off(nodes[0].world, *gone)
    nodes[0].world.run(LONG_MS)
    everybody = list(range(1, count + 1))
    staying = [each for each in everybody if each not in gone]
    if 2 * len(staying) < count:
        staying, gone = list(gone), tuple(staying)
    for node in nodes:
        expected = staying if node.number in staying else everybody
        assert sorted(node.local.replica.members) == expected


def test_a_restart_counts_anew() -> None:
    one, two, _ = expiring(3)
    world = one.world
    cut_off(world, 3)
    world.run(LIMIT_MS - 10_000)
    one.crash(clean=True)
    one.start()
    world.run(LIMIT_MS - 10_000)
    assert members(one, two) == [[1, 2, 3]] * 2
    world.run(20_000)
    assert members(one, two) == [[1, 2]] * 2


@pytest.mark.parametrize(
    ("clocks", "errors"),
    [
        ({3: 9000}, [0, 0, 9000]),
        ({1: -9000}, [-9000, 0, 0]),
        ({1: 9000, 2: 9000}, [0, 0, -9000]),
        ({}, [0, 0, 0]),
    ],
)
def test_a_clock_is_compared_with_those_of_most_others(
    clocks: dict[int, int], errors: list[int]
) -> None:
    world = World()
    nodes = world.cluster(3)
    world.clock_ms.update(clocks)
    assert nodes[0].replicator.clock_error() == 0, "nobody has told"
    world.run(2000)
    found = [node.replicator.clock_error() for node in nodes]
    assert found == pytest.approx(errors, abs=5)


def test_of_two_clocks_nobody_knows_which_is_off() -> None:
    world = World()
    nodes = world.cluster(2)
    world.clock_ms[1] = 9000
    world.run(2000)
    found = [node.replicator.clock_error() for node in nodes]
    assert found == pytest.approx([9000, -9000], abs=5)


def test_two_regions_that_have_removed_each_other_tell_it() -> None:
    world = World()
    one, two = world.cluster(2)
    world.run(500)
    world.cut(1, 2)
    for node, other in ((one, 2), (two, 1)):
        node.replicator.remove(other, force=True)
        node.write()
    world.run(30_000)
    assert not one.local.noted("removed_each_other")
    world.heal()
    world.run(30_000)
    for node, region, name in ((one, 2, "us"), (two, 1, "eu")):
        assert node.local.noted("removed_each_other") == [{"region": region, "name": name}]
        assert not node.local.noted("removed")
        assert region not in node.local.vector


def test_a_removed_region_is_not_looked_for_any_more_when_it_was_met() -> None:
    world = World()
    one, two = world.cluster(2)
    world.run(500)
    world.cut(1, 2)
    one.replicator.remove(2, force=True)
    one.write()
    world.run(30_000)
    world.heal()
    world.run_until(lambda: bool(two.local.noted("removed")), 15_000)
    world.run(30_000)
    world.frames.clear()
    world.run(60_000)
    assert not world.frames
    assert not one.local.noted("removed_each_other")
