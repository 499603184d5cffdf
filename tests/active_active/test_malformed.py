"""Batches with a valid checksum that no region sends: nothing of them is applied."""

from __future__ import annotations

import pytest

from anabranch.effects import kinds
from anabranch.effects.codec import EffectFormatError, plain
from anabranch.oplog.batch import Batch
from tests.support.mesh import Mesh

GOOD = plain(kinds.Expire(0, b"s", None))


@pytest.mark.parametrize(
    "arrays",
    [
        [GOOD, [99, 0, b"s"]],
        [GOOD, [41, 0]],
        [GOOD, plain(kinds.SetString(0, b"s", b"v"))],
        [GOOD, plain(kinds.Synced(7))],
        [GOOD],
        [GOOD, plain(kinds.AddRun(0, b"s", [1 << 64], b"abc", [2], [1], [0], 0))],
        [GOOD, plain(kinds.AddRun(0, b"s", [1 << 64], b"abc", [1, 2], [1], [0], 0))],
        [GOOD, plain(kinds.AddRun(0, b"s", [1 << 64], b"abc", [3], [], [0], 0))],
    ],
)
def test_a_malformed_batch_changes_nothing(arrays: list[list[object]]) -> None:
    node = Mesh(2).nodes[1]
    replica = node.region.replica
    assert replica is not None
    origin = next(iter({1, 2} - {replica.region}))
    first = replica.vector.get(origin, 0) + 1
    before = dict(replica.vector), list(node.region.keyspace.databases[0].remembered)
    batch = Batch(origin, 0, first, 2, 1, 0, 0, arrays, [])
    with pytest.raises(EffectFormatError):
        node.region.merging.apply([batch])
    assert before == (dict(replica.vector), list(node.region.keyspace.databases[0].remembered))
