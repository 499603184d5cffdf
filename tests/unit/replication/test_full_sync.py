"""Catching up by state, where a log does not reach back far enough."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.replication import transfer
from anabranch.replication.frames import FullSyncBegin
from anabranch.replication.transfer import WAIT_MS, Transfer
from tests.support.counted_region import CHUNK
from tests.support.replication_world import Node, World


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
    assert figures.counters.catch_up_cause == "log cut after 0 of replica ID 1"
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


def half_joined(world: World, **config: int) -> tuple[Node, Node]:
    """Two is getting the state of one."""
    one, two = world.cluster(2, **config)
    for _ in range(40):
        one.write(size=300)
    one.local.cut_log()
    world.set_lines(1, 2, rate=20)
    world.run_until(lambda: two.replicator.facts(world.now_ms)["joining_bytes"] != 0, 5000)
    world.run(200)
    return one, two


def staged(node: Node) -> int:
    return len(node.local.staged or b"")


def test_an_interrupted_transfer_goes_on_where_it_ended() -> None:
    world = World()
    one, two = half_joined(world)
    half = staged(two)
    sent = world.frames[1, 2, "FULL_SYNC"]
    assert half
    assert sent
    world.cut(1, 2)
    one.write()
    world.run(5000)
    assert (two.local.vector, staged(two)) == ({}, half)
    assert two.replicator.receiver.have() == {1: 40}
    assert two.replicator.facts(world.now_ms)["joining_from"] == 1
    world.heal()
    world.run_until(world.converged)
    assert two.local.joins == 1
    assert two.local.noted("join_resumed") == [{"region": 1, "name": "eu", "bytes": half}]
    chunks = world.frames[1, 2, "FULL_SYNC"]
    whole = len(two.local.noted("joined")) and two.local.noted("joined")[0]["bytes"]
    # What was under way is sent again, and nothing that had arrived.
    assert chunks <= sent + -(-(whole - half) // CHUNK)
    assert one.replicator.sender._waiting == {}
    world.run(3000)
    assert all(session.outgoing is None for session in one.replicator.links.up())


def test_a_link_that_ends_again_and_again_is_enough_to_join() -> None:
    world = World()
    _one, two = half_joined(world)
    for _ in range(40):
        if world.converged():
            break
        world.cut(1, 2)
        world.heal()
        world.run_until(lambda: two.peer(1).state != "connecting", 5000)
        world.run(150)
    world.run_until(world.converged)
    assert two.local.joins == 1
    assert len(two.local.noted("join_resumed")) > 2


def test_a_transfer_that_is_not_resumed_leaves_no_trace() -> None:
    world = World()
    one, two = half_joined(world)
    world.cut(1, 2)
    world.run(WAIT_MS + 500)
    assert (two.local.vector, staged(two)) == ({}, 0)
    assert two.replicator.receiver.have() == {}
    assert one.replicator.sender._waiting == {}
    world.heal()
    world.run_until(world.converged)
    assert two.local.joins == 1
    assert not two.local.noted("join_resumed")


@pytest.mark.parametrize("region", [1, 2])
def test_a_transfer_begins_again_if_either_process_does(region: int) -> None:
    world = World()
    nodes = half_joined(world)
    nodes[region - 1].crash(clean=True)
    nodes[region - 1].start()
    world.run_until(world.converged)
    assert nodes[1].local.joins == 1
    assert not nodes[1].local.noted("join_resumed")


def test_what_could_not_be_staged_is_fetched_again() -> None:
    """Some of it may stand in the file."""
    world = World()
    _one, two = half_joined(world)
    two.local.trouble = OSError(28, "No space left on device")
    world.run_until(lambda: two.peer(1).state != "catching_up", 5000)
    two.local.trouble = None
    world.run_until(world.converged)
    assert two.local.joins == 1
    assert not two.local.noted("join_resumed")


def test_another_region_is_asked_when_the_first_does_not_come_back() -> None:
    world = World()
    one, two, three = world.cluster(3)
    three.crash()
    for _ in range(40):
        one.write(size=300)
        world.run(20)
    for node in (one, two):
        node.local.cut_log()
    world.set_lines(1, 3, rate=20)
    world.set_lines(2, 3, rate=20)
    three.start()
    world.run_until(lambda: staged(three) > 1000, 5000)
    source = three.replicator.facts(world.now_ms)["joining_from"]
    assert isinstance(source, int)
    world.cut(source, 3)
    world.run_until(lambda: three.local.vector == one.local.vector, WAIT_MS + 10_000)
    assert [each["region"] for each in three.local.noted("joined")] == [3 - source]


def test_only_as_much_as_may_be_lost_is_kept_to_be_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfer, "KEPT_BYTES", 25)
    ended: list[str] = []

    def chunks() -> Iterator[bytes]:
        try:
            yield from (bytes([n]) * 10 for n in range(5))
        finally:
            ended.append("let go")

    snapshot = Transfer(FullSyncBegin({}), chunks(), is_whole=True)
    assert [snapshot.next_chunk() for _ in range(4)] == [bytes([n]) * 10 for n in range(4)]
    assert snapshot.go_back(20)
    assert [snapshot.next_chunk() for _ in range(3)] == [bytes([n]) * 10 for n in (2, 3, 4)]
    assert (snapshot.next_chunk(), snapshot.is_sent, snapshot.sent) == (None, True, 50)
    assert snapshot.go_back(30)
    assert not snapshot.is_sent
    assert not snapshot.go_back(35), "within a chunk"
    assert not snapshot.go_back(0), "too long ago"
    assert ended == ["let go"]
    begun = Transfer(FullSyncBegin({}), chunks(), is_whole=True)
    begun.next_chunk()
    begun.close()
    assert ended == ["let go", "let go"]


def test_a_snapshot_is_sent_no_faster_than_it_is_taken() -> None:
    world = World()
    one, _two = world.cluster(2, window_bytes=3000)
    for _ in range(40):
        one.write(size=500)
    one.local.cut_log()
    world.set_lines(1, 2, rate=20)
    most = 0
    while not world.converged():
        world.run(5)
        most = max(most, world.network.under_way(1, 2))
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
    world.set_lines(1, 3, rate=1)
    world.set_lines(2, 3, rate=1)
    three.start()
    world.run_until(world.converged)
    # Either state brings the effects of both, so one is enough.
    assert three.local.joins == 1
    assert len(three.local.noted("joining")) == 1


def test_a_new_region_takes_the_effects_of_former_epochs_with_the_state() -> None:
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
    world.set_lines(1, 3, rate=30)
    world.set_lines(2, 3, rate=30)
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
