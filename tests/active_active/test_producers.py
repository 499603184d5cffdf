"""AB.PRODUCERS: what regions accepted of one producer while they did not know of each other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.active_active.test_bulk import payload
from tests.support.mesh import Mesh, Node


def told(node: Node) -> dict[bytes, dict[bytes, Any]]:
    rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in node.do("AB.PRODUCERS", "s")]
    return {row.pop(b"producer"): row for row in rows}


@pytest.mark.parametrize("keep", [False, True])
def test_an_id_that_two_regions_accepted_is_a_conflict(keep: bool) -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    if keep:
        for node in (eu, us):
            node.do("CONFIG", "SET", "idmp-conflict", "keep")
    ours = eu.do("XADD", "s", "IDMP", "p", "once", "*", "f", "v")
    theirs = us.do("XADD", "s", "IDMP", "p", "once", "*", "f", "v")
    eu.do("XADD", "s", "IDMP", "p", "alone", "*", "f", "v")
    assert told(eu)[b"p"][b"conflicts"] == []
    mesh.settle()
    mesh.settle()
    for node in (eu, us):
        row = told(node)[b"p"]
        assert row[b"iids"] == 2
        ((iid, entries),) = row[b"conflicts"]
        assert iid == b"once"
        assert [each[:3] for each in entries] == [[1, 0, ours], [2, 0, theirs]]
        live = {each[2] for each in entries if each[4]}
        assert live == ({ours, theirs} if keep else {min(ours, theirs)})


def test_a_batch_that_two_regions_accepted_has_two_records() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    words = ("AB.IMPORT", "s", "PRODUCER", "p", "BATCH", 7, "EXPECT", 0)
    eu.do(*words, payload(b"a", b"b"))
    us.do(*words, payload(b"a", b"b", b"c"))
    mesh.settle()
    for node in (eu, us):
        batches = told(node)[b"p"][b"batches"]
        assert [each[:4] for each in batches] == [[1, 0, 7, 2], [2, 0, 7, 3]]
    eu.do("AB.IMPORT", "s", "PRODUCER", "p", "BATCH", 8, "EXPECT", 0, payload(b"d"))
    mesh.settle()
    assert [each[:4] for each in told(us)[b"p"][b"batches"]] == [[1, 0, 8, 1]]
