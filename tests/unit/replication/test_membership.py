"""Joining, leaving, and epochs that end."""

from __future__ import annotations

import pytest

from anabranch.errors import CommandError
from anabranch.keyspace.replica import epoch_of, region_of
from anabranch.replication.frames import Reason
from anabranch.replication.framing import FrameType, framed
from tests.support.counted_region import batch_bytes
from tests.support.replication_world import Node, World


def refusals(node: Node) -> set[int]:
    return {facts["reason"] for facts in node.local.noted("refused")}


def test_a_region_joins_by_asking_any_member() -> None:
    world = World()
    one, two = world.cluster(2, secret=b"s")
    one.write(batches=3)
    world.run(500)
    three = world.region(3, secret=b"s", join=[two.address])
    assert three.replicator.facts(world.now_ms)["caught_up"] == 0
    world.run_until(lambda: three.local.replica.cluster_id == "c", 5000)
    world.run_until(lambda: three.peer(1).state == "in_sync", 5000)
    assert sorted(three.local.replica.members) == sorted(one.local.replica.members) == [1, 2, 3]
    assert three.replicator.caught_up
    three.write()
    world.run(100)
    assert world.converged()
    assert one.local.vector[3] == 1
    world.sync_all()
    world.run_until(world.is_settled, 5000)


def test_a_region_joins_through_the_first_seed_that_answers() -> None:
    world = World()
    one, two = world.cluster(2)
    two.crash()
    three = world.region(3, join=[two.address, ("nowhere", 1), one.address])
    world.run_until(lambda: three.local.replica.cluster_id == "c", 5000)


def test_an_address_where_no_region_answers_gets_a_remedy() -> None:
    world = World()
    three = world.region(3, join=[("nowhere", 1)])
    for number, lost in enumerate((three.link_down, lambda _: world.run(6000)), 1000):
        three.link_up(number, ("nowhere", 1))
        lost(number)
        told = three.local.noted("join_failed")[-1]
        assert told["reason"].startswith(("the connection was lost: ", "nothing was heard for"))
        assert "no region has answered there. join names the gossip port" in told["reason"]
        assert min(told["again_in_s"], told["tries"]) > 0


def test_who_joins_without_the_secret_learns_nothing() -> None:
    world = World()
    world.cluster(2, secret=b"s")
    three = world.region(3, join=[("eu", 1)])
    world.run(3000)
    assert three.local.replica.cluster_id == ""
    assert not any(name == "MEMBERS" for _, _, name in world.frames)
    assert Reason.SECRET in refusals(three)


def test_two_regions_without_a_cluster_wait_for_one() -> None:
    world = World()
    one = world.region(1, join=[("us", 2)])
    two = world.region(2, join=[("eu", 1)])
    world.run(3000)
    assert Reason.CLUSTER in refusals(one) | refusals(two)
    assert one.local.replica.cluster_id == two.local.replica.cluster_id == ""


def test_a_number_that_is_in_use_is_not_given_again() -> None:
    world = World()
    one, two, *_ = world.cluster(3)
    world.run(1000)
    thief = Node(world, 3, 99, join=[one.address])
    world.tick(thief)
    world.run(2000)
    assert thief.local.replica.cluster_id == ""
    assert one.local.replica.members[3].host == "ap"
    assert Reason.REGION in refusals(one)
    assert two.peer(3).state == "in_sync"


def test_a_region_that_lost_its_disk_comes_back_in_a_new_epoch() -> None:
    world = World()
    one, _two, three = world.cluster(3)
    world.run(500)
    three.write()
    world.run(500)
    three.crash()
    world.last_epoch.clear()
    three.local = type(three.local)(world, 3)
    three.settings = {"join": [one.address]}
    three.start()
    world.run_until(world.converged, 15_000)
    assert epoch_of(three.local.replica.own) >= 1
    assert not any("taken" in facts["text"] for facts in three.local.noted("refused"))
    assert not any("taken" in facts["text"] for facts in one.local.noted("refused"))
    assert three.local.vector[3] == 1  # of its former epoch, from the others
    three.write()
    world.run_until(world.converged)
    world.sync_all()
    world.run_until(world.is_settled, 15_000)


def test_who_lost_its_disk_does_not_begin_an_epoch_that_nobody_remembers_again() -> None:
    epochs = set()
    for seed in range(3):
        world = World(seed)
        one, _two, three = world.cluster(3)
        world.run(500)
        three.crash()  # without an effect of its own that anybody knew
        three.local = type(three.local)(world, 3)
        three.settings = {"join": [one.address]}
        three.start()
        world.run(15_000)
        assert three.local.replica.cluster_id == "c"
        epochs.add(epoch_of(three.local.replica.own))
    assert len(epochs) == 3
    assert 0 not in epochs


def test_who_lost_its_disk_is_not_taken_for_admitted_because_a_member_has_dialled_it() -> None:
    """The member was down itself, and knows no effect of this region, only that it is a member."""
    world = World()
    one, _two, three = world.cluster(3)
    world.run(500)
    one.crash(clean=True)
    three.crash()
    three.local = type(three.local)(world, 3)
    three.settings = {"join": [one.address]}
    world.cut(2, 3)
    three.start()
    world.run(2000)
    one.start()
    world.run_until(lambda: three.local.replica.cluster_id == "c", 15_000)
    assert epoch_of(three.local.replica.own) > 0


def test_an_admission_whose_answer_is_lost_is_asked_for_again() -> None:
    world = World()
    one, _two = world.cluster(2)
    world.run(500)
    lost: list[bytes] = []

    def lose(source: int, target: int, frame: bytes) -> bytes | None:
        if frame[4] == 4 and not lost:
            lost.append(frame)
            world.timeline.after(0, lambda: world.cut(1, 3))
            world.timeline.after(100, world.heal)
            return None
        return frame

    world.on_frame = lose
    three = world.region(3, join=[one.address])
    world.run_until(lambda: three.local.replica.cluster_id == "c", 5000)
    assert lost
    assert three.local.replica.own == 3


def test_members_that_have_moved_find_each_other_after_a_restart() -> None:
    world = World()
    nodes = world.cluster(2)

    def are_linked() -> bool:
        return all(node.peer(3 - node.number).state == "in_sync" for node in nodes)

    world.run_until(are_linked)
    for node in nodes:
        node.crash(clean=True)
        node.place += 10
        node.address = (node.address[0], world.network.port(node.place))
        node.start()
        world.run_until(are_linked, 30_000)
    for node in nodes:
        node.crash(clean=True)
    for node in nodes:
        node.start()
    world.run_until(are_linked, 30_000)


def test_a_removed_region_is_refused_and_its_effects_are_kept() -> None:
    world = World()
    one, two, three = world.cluster(3)
    world.run(500)
    world.cut(1, 3)
    three.write()
    world.run(10)
    assert two.local.vector[3] == 1
    with pytest.raises(CommandError, match="FORCE"):
        one.replicator.remove(3)
    with pytest.raises(CommandError, match="not a member"):
        one.replicator.remove(9)
    two.replicator.remove(3)
    two.replicator.appended(world.now_ms)
    world.heal()
    world.run(12_000)
    assert one.local.vector[3] == 1
    assert one.peer(3).state == two.peer(3).state == "removed"
    assert not list(three.replicator.links.up())
    assert Reason.REMOVED in refusals(three) or 3 not in three.local.replica.members
    world.nodes.pop(3)
    world.sync_all()
    one.write()
    world.run(500)
    world.sync_all()
    world.run_until(world.is_settled, 5000)
    assert one.local.watermark == one.local.vector


def test_a_region_that_learns_of_its_removal_says_so_and_ends_its_links() -> None:
    world = World()
    one, two, three = world.cluster(3)
    world.run(500)
    three.local.replica.removed[3] = 0  # before the others know
    del three.local.replica.members[3]
    world.run(100)
    assert not list(three.replicator.links.up())
    for node in (one, two):
        told = node.local.noted("unreachable")[-1]
        assert (told["region"], told["why"]) == (3, "region 3 was removed from the cluster")
    assert three.local.noted("removed")


def test_a_removed_region_admits_nobody() -> None:
    world = World()
    one, two, three = world.cluster(3)
    world.run(500)
    two.replicator.remove(3, force=True)
    two.replicator.appended(world.now_ms)
    world.run_until(lambda: three.local.noted("removed"))
    four = Node(world, 4, 99, join=[three.address])
    world.tick(four)
    world.run(3000)
    assert Reason.EPOCH in refusals(four)
    assert four.local.replica.cluster_id == ""
    four.crash()
    four.settings = {"join": [three.address, one.address]}
    four.start()
    world.run_until(lambda: four.local.replica.cluster_id == "c", 15_000)
    assert sorted(one.local.replica.members) == [1, 2, 4]


def test_a_removal_that_is_lost_leaves_a_member_with_links() -> None:
    world = World()
    one, two, three = world.cluster(3)
    world.run(500)
    world.sync_all()
    for pair in ((1, 2), (1, 3), (2, 3)):
        world.cut(*pair)
    two.replicator.remove(3, force=True)
    two.replicator.appended(world.now_ms)
    world.run(100)
    world.heal(2, 3)
    world.run_until(lambda: three.local.noted("removed"))
    two.crash()  # without the removal on its disk, and nobody else has it
    two.start()
    world.heal()
    one.write()
    world.run_until(world.converged, 30_000)
    assert sorted(two.local.replica.members) == [1, 2, 3]


def test_what_a_removed_region_may_not_know_stays_until_all_have_its_removal_on_disk() -> None:
    world = World()
    one, two, _three = world.cluster(3)
    world.run(500)
    world.cut(2, 3)
    world.cut(1, 3)
    one.write()
    world.run(200)
    world.sync_all()
    one.replicator.remove(3, force=True)
    one.local.sync()
    one.replicator.appended(world.now_ms)
    world.run(1000)
    assert two.local.vector[1] == 2
    assert not one.local.watermark  # two has the removal, but not on its disk
    two.local.sync()
    world.run(1500)
    assert one.local.watermark == two.local.watermark == {1: 2}


def test_an_unclean_restart_ends_the_links_of_the_former_epoch() -> None:
    world = World()
    one, two, _three = world.cluster(3)
    world.run(500)
    world.cut(1, 2)
    two.write()
    world.run(300)
    two.crash()
    two.start()
    world.run(300)
    # One cannot hear of it from two itself.
    assert one.replicator.links.membership.known_epoch(2) == 1
    assert one.local.vector == {2: 1, 258: 1}
    world.heal()
    world.run_until(lambda: one.peer(2).state == "in_sync", 15_000)


def test_what_a_former_epoch_has_sent_and_nobody_has_applied_is_dropped() -> None:
    world = World()
    one, two, three = world.cluster(3)
    world.run(500)
    world.cut(1, 3)
    world.set_lines(1, 2, delay_ms=3000)  # three could have it from two, but late
    one.write()
    world.on_frame = lambda source, target, frame: (
        None if target == 3 and frame[4] == 6 and frame[9] == 1 else frame
    )
    world.run(3100)
    two.write()  # depends on it, and two loses both
    world.run(20)
    assert three.peer(2).held_count == 1
    assert three.replicator.receiver.have()[2] == 1
    two.crash()
    two.start()
    world.run(600)
    assert three.peer(2).held_count <= 1  # at most the opening effect
    assert 2 not in three.replicator.receiver.have()
    world.on_frame = None
    world.set_lines(1, 2)
    world.heal()
    world.run_until(world.converged)
    assert 2 not in three.local.vector


def test_what_waits_of_a_region_is_dropped_when_it_is_removed() -> None:
    """It may wait for what nobody has but the region that is gone."""
    world = World()
    one, two, three = world.cluster(3)
    world.run(500)
    world.on_frame = lambda source, target, frame: (
        None if target == 2 and frame[4] == 6 and frame[9] == 1 else frame
    )
    one.write()
    world.run(20)
    three.write()  # depends on it, which one loses
    world.run(20)
    world.cut(1, 3)
    one.crash()
    one.start()
    world.run(600)
    assert two.replicator.receiver.have()[3] == 1
    assert 3 not in two.local.vector
    two.replicator.remove(3)
    two.replicator.appended(world.now_ms)
    world.run(1000)
    assert 3 not in two.replicator.receiver.have()
    assert not two.replicator.receiver.buffer


def test_a_disk_that_was_set_back_is_noticed_and_a_new_epoch_opened() -> None:
    world = World()
    one, two, _three = world.cluster(3)
    world.run(500)
    two.local.write()
    two.local.sync()
    old = two.local.disk
    two.write(batches=1)
    two.write(batches=1)
    world.run(500)
    two.local.disk = old
    two.crash()
    two.local.replica.become(2)  # it believes that its disk is as it left it
    del two.local.vector[258]
    del two.local.batches[258]
    world.last_epoch.clear()
    two.start()
    world.run_until(world.converged, 15_000)
    assert two.local.noted("ahead_of_us")
    new = two.local.replica.own
    assert region_of(new) == 2
    assert epoch_of(new) > 0
    assert one.local.vector == {2: 3, new: 1}
    world.sync_all()
    world.run_until(world.is_settled, 15_000)


def test_a_disk_that_was_set_back_twice_opens_two_epochs() -> None:
    """Whom it asks for the second time does not know what it has used after the first time."""
    world = World()
    _one, two, _three = world.cluster(3)
    world.run(500)
    two.local.write()
    two.local.sync()
    old = two.local.disk
    two.write(batches=2)
    world.run(500)

    def open_epoch(linked: int, apart: int) -> int:
        world.heal()
        for pair in (1, 3), (2, apart):
            world.cut(*pair)
        world.last_epoch.clear()  # the disk does not hold the epochs that came later
        two.set_back(old)
        world.run_until(lambda: two.local.replica.own != 2, 15_000)
        two.write()
        world.run_until(lambda: two.local.replica.own in world.nodes[linked].local.vector, 15_000)
        return epoch_of(two.local.replica.own)

    assert open_epoch(1, 3) != open_epoch(3, 1)


def test_a_clean_restart_goes_on_in_its_epoch_though_its_clock_was_set_back() -> None:
    world = World()
    one, two, _three = world.cluster(3)
    world.run(2000)
    two.crash(clean=True)
    world.clock_ms[2] = -3_600_000
    two.start()
    world.run(1000)
    two.write()
    world.run(100)
    world.sync_all()
    world.run(2500)
    assert two.local.replica.own == 2
    assert one.local.watermark == {2: 1}
    one.write()
    world.run(200)
    assert one.replicator.acknowledged(1) == (2, 0)


def test_the_first_word_of_a_new_epoch_by_any_way_ends_the_link_with_the_former_one() -> None:
    world = World()
    one, _, _ = world.cluster(3)
    world.run(1000)
    link = next(session.link for session in one.replicator.links.up() if session.region == 3)
    former = next(session.link for session in one.replicator.links.up() if session.region == 2)
    frame = framed(FrameType.BATCH, batch_bytes(258, 1))
    one.replicator.receive(link, frame[4], frame[5:], world.now_ms)
    frame = framed(FrameType.BATCH, batch_bytes(2, 1))
    one.replicator.receive(former, frame[4], frame[5:], world.now_ms)
    assert one.local.vector == {258: 1}
