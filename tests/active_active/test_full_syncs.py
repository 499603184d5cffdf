"""Unfinished full syncs: data of one moment, whatever is joined meanwhile."""

from __future__ import annotations

from itertools import permutations

import pytest

from anabranch.effects import kinds
from anabranch.effects.streams import known_stream
from anabranch.keyspace.keyspace import Keyspace
from anabranch.oplog.batch import decode_batch, effects_in
from anabranch.oplog.snapshot import Contents, Snapshot, framed
from anabranch.simulator import looking
from tests.active_active.newcomer import joined, loaded, state_of
from tests.support.mesh import Mesh


def lengths(keyspace: Keyspace) -> dict[bytes, int]:
    return {key: value.length for key, value in keyspace.databases[0].values.items()}  # type: ignore[union-attr]


def test_a_state_that_is_being_sent_is_not_touched_by_one_that_is_joined() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    for key in ("a", "b", "c"):
        eu.do("XADD", key, "*", "f", "mine")
        us.do("XADD", key, "*", "f", "theirs")
    snapshot = Snapshot(eu.region.keyspace, Contents(1, 1))
    eu.region.watch_changes(snapshot.before)
    bodies = snapshot.bodies()
    sent = snapshot.header() + framed(next(bodies))
    eu.join(state_of(us), us)
    sent += b"".join(map(framed, filter(None, bodies)))
    eu.region.unwatch_changes(snapshot.before)
    assert eu.do("XLEN", "b") == 2
    then = loaded(sent)
    assert then.replica.vector == {1: 3}
    assert lengths(then) == {b"a": 1, b"b": 1, b"c": 1}


def test_the_log_tells_of_a_state_before_it_tells_of_what_follows() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    eu.clock.us, us.clock.us = 1_000_000, 2_000_000
    eu.do("XADD", "s", "IDMP", "p", "i", "*", "f", "v")
    us.do("XADD", "s", "IDMP", "p", "i", "*", "f", "v")
    recorded: list[kinds.Effect] = []
    taken = us.turn.drain_batches
    us.turn.drain_batches = lambda wall_ms, **_: [  # type: ignore[method-assign]
        data for data in taken(wall_ms) if recorded.extend(effects_in(decode_batch(data))) is None
    ]
    us.join(state_of(eu), eu)
    assert [type(effect) for effect in recorded] == [kinds.JoinFullSync, kinds.ResolveConflict]


def test_a_full_sync_of_which_nothing_was_sent_leaves_nothing_behind() -> None:
    node = Mesh(2).nodes[1]
    node.do("XADD", "s", "*", "f", "v")
    chunks = node.local.full_sync(None)
    chunks.close()  # type: ignore[attr-defined]
    assert not node.region._before, "changes are still kept for it"


@pytest.mark.parametrize("adds_again", [None, 1, 2])
def test_old_data_brings_nothing_back_that_everybody_has_forgotten(adds_again: int | None) -> None:
    """A newcomer gets the data of a region that was removed before the key was deleted."""
    mesh = Mesh(3)
    two = mesh.nodes[2]
    two.do("XADD", "s", "*", "f", "v")
    two.do("XDEL", "s", two.do("XADD", "s", "*", "f", "v"))
    mesh.settle()
    old = state_of(two)
    mesh.nodes[3].do("DEL", "s")
    for _ in range(3):
        mesh.settle()
    assert known_stream(two.region.keyspace, 0, b"s") is None, "something is left of it"
    if adds_again:
        mesh.nodes[adds_again].do("XADD", "s", "*", "f", "new")
        mesh.settle()
    now, shown = state_of(two), looking.visible(two.region.keyspace)
    assert bool(shown) == bool(adds_again)
    for states in permutations((old, now)):
        assert looking.visible(joined(*states)) == shown


def test_old_data_with_later_entries_brings_no_counters_back() -> None:
    """The removed region went on adding entries: a newcomer has more of it than the members."""
    mesh = Mesh(3)
    one, two, three = mesh.nodes.values()
    for _ in range(5):
        two.do("XADD", "s", "*", "f", "v")
    mesh.settle()
    one.replicator.remove(2, force=True)
    one.end_turn()
    mesh.cut_links = {frozenset((1, 2)), frozenset((2, 3))}
    two.do("XADD", "s", "*", "f", "late")
    late = list(mesh.units.values())[-1]
    old = state_of(two)
    mesh.settle([1, 3])
    three.do("DEL", "s")
    for _ in range(4):
        mesh.settle([1, 3])
        for node in (one, three):
            node.replicator.sessions.follow_removals(0.0)
    assert known_stream(one.region.keyspace, 0, b"s") is None, "something is left of it"
    now = state_of(one)
    three.receive(late)
    shown = looking.visible(three.region.keyspace)
    assert shown[b"s"]["entries added"] == 1
    for states in permutations((old, now)):
        assert looking.visible(joined(*states)) == shown
