"""Catching up by state, where a log does not reach back far enough."""

from __future__ import annotations

from tests.support.replication_world import World


def test_a_region_that_is_behind_the_log_joins_the_state() -> None:
    world = World()
    one, two = world.cluster(2)
    for _ in range(20):
        one.write(size=200)
    one.local.cut_log()
    one.write()
    world.run(3000)
    assert two.local.joins == 1
    assert two.local.vector == one.local.vector
    figures = two.peer(1)
    assert figures.counters.full_catch_ups == 1
    assert figures.counters.catch_up_cause == "log cut after 0 of origin 1"
    assert figures.state == "in_sync"
    assert [event for event, _ in two.local.notes] == [
        "reachable", "joining", "joined", "caught_up"
    ]  # fmt: skip
    assert one.peer(2).counters.full_catch_ups == 0


def test_a_link_that_was_down_for_a_while_is_caught_up_from_the_log() -> None:
    world = World()
    one, two = world.cluster(2)
    world.run(500)
    world.cut(1, 2)
    one.write(batches=5)
    world.heal()
    world.run_until(world.converged)
    world.run(1100)
    counters = two.peer(1).counters
    assert (counters.full_catch_ups, counters.partial_catch_ups) == (0, 1)
    assert two.local.joins == 0


def test_both_sides_join_each_other() -> None:
    world = World()
    one, two = world.cluster(2)
    world.cut(1, 2)
    for _ in range(10):
        one.write()
        two.write()
    one.local.cut_log()
    two.local.cut_log()
    world.heal()
    world.run_until(world.converged)
    assert one.local.joins == two.local.joins == 1
    one.write()
    two.write()
    world.run(100)
    assert world.converged()


def test_an_interrupted_transfer_begins_again_and_leaves_no_trace() -> None:
    world = World()
    one, two = world.cluster(2)
    for _ in range(40):
        one.write(size=300)
    one.local.cut_log()
    world.bytes_per_ms[frozenset((1, 2))] = 20
    world.run_until(lambda: two.replicator.facts(world.now_ms)["joining_bytes"] != 0, 5000)
    assert two.replicator._receiver.have() == one.local.vector
    world.cut(1, 2)
    assert two.local.vector == {}
    assert two.replicator._receiver.have() == {}
    assert two.local.staged == bytearray()
    world.heal()
    world.run_until(world.converged)
    assert two.local.joins == 1


def test_a_snapshot_is_sent_no_faster_than_it_is_taken() -> None:
    world = World()
    one, _two = world.cluster(2, window_bytes=3000)
    for _ in range(40):
        one.write(size=500)
    one.local.cut_log()
    world.bytes_per_ms[frozenset((1, 2))] = 20
    most = 0
    while not world.converged():
        world.run(5)
        most = max(most, world.under_way(1, 2))
    assert 2000 < most < 3000 + 700 + 32 * 100


def test_states_are_taken_from_one_peer_at_a_time() -> None:
    world = World()
    one, two, three = world.cluster(3)
    three.crash()
    for _ in range(10):
        one.write()
        two.write()
        world.run(20)
    one.local.cut_log()
    two.local.cut_log()
    world.bytes_per_ms[frozenset((1, 3))] = world.bytes_per_ms[frozenset((2, 3))] = 1
    three.start()
    world.run_until(world.converged)
    # Either state brings the effects of both, so one is enough.
    assert three.local.joins == 1
    assert len(three.local.noted("joining")) == 1


def test_a_new_region_takes_the_effects_of_former_lives_with_the_state() -> None:
    world = World()
    one, two = world.cluster(2)
    one.write()
    world.run(100)
    world.sync_all()
    one.crash()
    one.start()
    one.write()
    world.run(1000)
    three = world.region(3, join=[two.address])
    world.run_until(world.converged, 10_000)
    assert three.local.vector == {1: 1, 257: 3}


def test_writing_goes_on_during_a_transfer_in_both_directions() -> None:
    world = World()
    one, two, three = world.cluster(3)
    three.crash()
    for _ in range(30):
        one.write(size=300)
    world.run(100)
    one.local.cut_log()
    two.local.cut_log()
    world.bytes_per_ms[frozenset((1, 3))] = world.bytes_per_ms[frozenset((2, 3))] = 30
    three.start()
    world.run_until(lambda: three.replicator.facts(world.now_ms)["joining_bytes"] != 0, 5000)
    for _ in range(10):
        for node in (one, two, three):
            node.write()
        world.run(20)
    world.run_until(world.converged)
    assert three.local.joins == 1


def test_a_disk_in_trouble_closes_the_link_and_the_join_is_tried_again() -> None:
    world = World()
    one, two = world.cluster(2)
    one.write()
    one.write()
    one.local.cut_log()
    two.local.trouble = OSError(28, "No space left on device")
    world.run(3000)
    reasons = {facts["text"] for facts in one.local.noted("refused")}
    assert any("cannot be staged" in text for text in reasons)
    two.local.trouble = None
    world.run_until(world.converged, 15_000)
    assert two.local.joins == 1
