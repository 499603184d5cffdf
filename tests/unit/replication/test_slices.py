"""What waited for a cause and becomes ready at once is applied unit by unit, in turns to come."""

from __future__ import annotations

from tests.support.replication_world import World

UNITS = 50


def test_what_becomes_ready_at_once_is_applied_in_slices() -> None:
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
    turns = 0
    while two.replicator.is_behind:
        before = sum(two.local.vector.values())
        two.replicator.go_on(world.now_ms)
        assert sum(two.local.vector.values()) == before + 1, "one unit in a turn"
        turns += 1
    assert turns > UNITS / 2
    world.heal()
    world.run(2000)
    assert world.converged()
