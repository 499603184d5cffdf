"""A region without data joins full syncs of others, old ones among them.

A member keeps a tombstone until all members have it. A region that was removed is no member, so its
data can lack a deletion that everybody else has forgotten. A newcomer may get that data first.
"""

from __future__ import annotations

import io

from anabranch.effects.join import KeyspaceJoin
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica
from anabranch.oplog.snapshot import Contents, Snapshot, load_snapshot
from tests.support.mesh import Node

__all__ = ["joined", "loaded", "state_of"]

NEWCOMER = 9


def state_of(node: Node) -> bytes:
    """The data of a region, as a full sync has it."""
    return Snapshot(node.region.keyspace, Contents(1, node.number)).whole()


def loaded(state: bytes) -> Keyspace:
    """The data of a full sync."""
    keyspace = _empty()
    for _ in load_snapshot(io.BytesIO(state), "state", keyspace):
        pass
    return keyspace


def joined(*states: bytes) -> Keyspace:
    """The data of a newcomer that has joined these full syncs, one after the other."""
    keyspace = _empty()
    for state in states:
        for _ in KeyspaceJoin(keyspace, loaded(state), partial=False).steps():
            pass
    return keyspace


def _empty() -> Keyspace:
    return Keyspace(replica=Replica(NEWCOMER, lambda: (100, 100)))
