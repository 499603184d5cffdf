"""Unfinished full syncs: data of one moment, whatever is joined meanwhile."""

from __future__ import annotations

import io

from anabranch.effects import kinds
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica
from anabranch.oplog.batch import decode_batch, effects_in
from anabranch.oplog.snapshot import Contents, Snapshot, framed, load_snapshot
from tests.support.mesh import Mesh, Node


def loaded(data: bytes) -> Keyspace:
    keyspace = Keyspace()
    keyspace.replica = Replica(9, lambda: (100, 100))
    for _ in load_snapshot(io.BytesIO(data), "state", keyspace):
        pass
    return keyspace


def lengths(keyspace: Keyspace) -> dict[bytes, int]:
    return {key: value.length for key, value in keyspace.databases[0].values.items()}  # type: ignore[union-attr]


def state_of(node: Node) -> bytes:
    return Snapshot(node.region.keyspace, Contents(1, node.number)).whole()


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
    chunks = node.exchange.full_sync(None)
    chunks.close()  # type: ignore[attr-defined]
    assert not node.region._before, "changes are still kept for it"
