"""Concurrent trimming to a length never takes one of the newest entries there are."""

from __future__ import annotations

import random

import pytest

from tests.active_active.comparison import entries_of
from tests.support.mesh import Mesh


@pytest.mark.parametrize("seed", range(60))
def test_the_newest_entries_survive_whoever_trims(seed: int) -> None:
    chance = random.Random(seed)
    mesh = Mesh(chance.choice([2, 3, 4]))
    kept = chance.randint(1, 6)
    added = []
    for step in range(120):
        number = chance.choice(list(mesh.nodes))
        node = mesh.nodes[number]
        node.clock.us += chance.choice([0, 1000, 3000])
        dice = chance.random()
        if dice < 0.5:
            trimming = ("MAXLEN", "=", kept + chance.randint(0, 3)) if dice < 0.25 else ()
            entry_id = node.do("XADD", "x", *trimming, "*", "f", f"v{step}")
            added += entries_of([[entry_id, [b"f", b"v%d" % step]]])
        elif dice < 0.6:
            node.do("XTRIM", "x", "MAXLEN", chance.choice(["=", "~"]), kept)
        else:
            units = node.missing(
                mesh.nodes[other := chance.choice([n for n in mesh.nodes if n != number])].vector
            )
            mesh.send(number, other, units[: chance.randint(0, len(units))])
    mesh.settle()
    newest = sorted(added)[-kept:]
    for node in mesh.nodes.values():
        assert entries_of(node.do("XRANGE", "x", "-", "+"))[-kept:] == newest
        node.do("XTRIM", "x", "MAXLEN", kept)
        mesh.settle()
        assert entries_of(node.do("XRANGE", "x", "-", "+")) == newest
