"""Work for other regions that does not fit into a slice of time goes on in turns to come.

What waited for a cause and becomes ready at once is applied unit by unit; a state is read in steps.
"""

from __future__ import annotations

import pytest

from anabranch.replication import receiving, sending
from anabranch.replication.framing import FrameType
from tests.support.replication_world import Node, World

UNITS = 50
TOGETHER = 3
STEPS = 20


def test_what_becomes_ready_at_once_is_applied_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiving, "TOGETHER_NUMBERS", TOGETHER)
    world = World()
    one, two, three = world.cluster(3)
    world.run(500)
    world.cut(1, 2, silently=True)
    one.write()  # the cause of all that follows; region 2 has to ask for it
    world.run(30)
    for _ in range(UNITS):
        three.write()
    two.local.is_over = True
    world.run_until(lambda: two.replicator.is_behind)
    before = sum(two.local.vector.values())
    two.replicator.tick(world.now_ms)
    two.replicator.appended(world.now_ms)
    assert sum(two.local.vector.values()) == before, "these are not given time for a unit"
    turns = 0
    while two.replicator.is_behind:
        before = sum(two.local.vector.values())
        two.replicator.go_on(world.now_ms)
        assert sum(two.local.vector.values()) <= before + TOGETHER, "some units in a turn"
        turns += 1
    assert turns > UNITS / TOGETHER / 2
    world.heal()
    world.run(2000)
    assert world.converged()


def test_small_units_wait_for_those_that_have_arrived_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    one, two = world.cluster(2)
    world.run(500)
    arrived: list[tuple[int, bytes]] = []
    monkeypatch.setattr(two, "frame", lambda link, data: arrived.append((link, data)))
    one.write(effects=receiving.FEW_NUMBERS + 1)
    for _ in range(receiving.GATHERED_UNITS + 3):
        one.write()
    own = one.local.replica.own
    before, after = two.local.vector.get(own, 0), one.local.vector[own]
    world.run_until(lambda: len(arrived) > receiving.GATHERED_UNITS + 3)
    batches = [each for each in arrived if each[1][4] == FrameType.BATCH]
    applied = []
    for number, (link, data) in enumerate(batches, 1):
        more_follows = number < len(batches)
        two.replicator.receive(link, data[4], data[5:], world.now_ms, more_follows=more_follows)
        applied.append(two.local.vector.get(own, 0) - before)
    first, full = applied[0], receiving.GATHERED_UNITS
    assert first == receiving.FEW_NUMBERS + 1, "a long one does not wait"
    assert applied[1 : full + 1] == [first] * full
    assert applied[full + 1] == first + full + 1, "enough have gathered"
    assert applied[-2:] == [first + full + 1, after - before], "the last one waits for none"


def test_a_region_that_comes_back_gets_what_it_lacks_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "READ_BYTES", 1000)
    world = World()
    one, _two = world.cluster(2)
    world.run(500)
    world.cut(1, 2)
    for _ in range(UNITS):
        one.write(size=300)
    one.local.is_over = True
    world.heal()
    world.run_until(lambda: one.replicator.is_behind)
    session = one.replicator.links.session_of(2)
    assert session is not None
    turns = 0
    while one.replicator.is_behind:
        before = session.position
        one.replicator.go_on(world.now_ms)
        assert before < session.position <= before + 4, "about a thousand bytes in a turn"
        turns += 1
    assert turns > UNITS / 5
    assert session.position == one.local.vector[one.local.replica.own]
    one.write()
    assert not one.replicator.is_behind, "what is sent at once leaves no work"
    world.run_until(world.converged)


def loading() -> tuple[World, Node, Node]:
    """A region that has the whole state of another one and begins to read it, in many slices."""
    world = World()
    one, two = world.cluster(2)
    for _ in range(20):
        one.write(size=200)
    one.local.cut_log()
    two.local.load_steps = STEPS
    two.local.is_over = True
    world.run_until(lambda: two.local.loads == 1)
    assert two.replicator.is_behind
    return world, one, two


def test_a_state_is_read_in_slices_while_others_are_served() -> None:
    world, _one, two = loading()
    turns = 0
    while two.replicator.is_behind:
        assert two.local.joins == 0
        two.replicator.go_on(world.now_ms)
        two.write()
        turns += 1
    assert turns == STEPS
    assert two.local.joins == 1
    world.run_until(world.converged)


def test_a_link_that_ends_while_a_state_is_read_costs_no_second_transfer() -> None:
    world, one, two = loading()
    two.replicator.go_on(world.now_ms)
    sent = world.frames[1, 2, "FULL_SYNC"]
    world.cut(1, 2)
    world.run(100)
    assert not two.replicator.is_behind
    two.local.is_over = False
    world.heal()
    world.run_until(world.converged)
    assert (two.local.loads, two.local.joins) == (2, 1)
    assert world.frames[1, 2, "FULL_SYNC"] == sent
    assert two.local.vector == one.local.vector
