"""Which idempotent IDs are remembered, where newer ones displaced some and DEL removes newer ones.

A region remembers the newest ``idmp-maxsize`` IDs of a producer, of all tags that no removal has in
its context. That holds whatever came first: small random histories are compared with the formulas
after every step.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from anabranch.commands.table import COMMANDS
from anabranch.effects.streams import known_stream
from anabranch.keyspace.conflicts import Conflicts
from anabranch.keyspace.keyspace import Keyspace
from anabranch.simulator.facts import Tagged
from tests.active_active.newcomer import joined, state_of
from tests.support.mesh import Mesh, Node

_USED = [each for each in COMMANDS if each.name in {"xadd", "xcfgset", "del"}]
_PRODUCERS = (b"p", b"q")

Shown = dict[bytes, dict[bytes, int]]


def _rank(facts: list[Tagged]) -> tuple[int, int, int, int]:
    return max(
        (each.effect.at_ms, each.replica_id & 0xFF, each.replica_id, each.number) for each in facts
    )


class _History:
    """Regions that add, delete and configure one stream, and get each other's effects."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        self.mesh = Mesh(
            chance.choice([2, 3, 3, 4]),
            _USED,
            databases=1,
            stream_idmp_maxsize=chance.choice([1, 2, 3]),
            stream_idmp_duration=86_400,
        )
        self.nodes = list(self.mesh.nodes.values())
        self.messages = 0
        self.reached: Counter[str] = Counter()

    def run(self) -> None:
        for _ in range(self.chance.randint(10, 40)):
            self._step(self.chance.choice(self.nodes))
            for node in self.nodes:
                found, due = remembered(node.region.keyspace), self._due(node)
                assert list(map(list, found.values())) == list(map(list, due.values()))
        self.mesh.settle()
        self.mesh.settle()
        found = remembered(self.nodes[0].region.keyspace)
        assert found == self._due(self.nodes[0]), "other IDs in replies"
        for node in self.nodes:
            assert remembered(node.region.keyspace) == found
            assert remembered(joined(state_of(node))) == found

    def _step(self, node: Node) -> None:
        chance = self.chance
        dice = chance.random()
        if dice < 0.45:
            self._send(node)
        elif dice < 0.5:
            node.clock.us += chance.choice([1, 50, 900]) * 1000
        elif dice < 0.56:
            self.reached["DEL"] += node.do("DEL", "s")
        elif dice < 0.6:
            if b"s" in node.region.keyspace.databases[0].values:
                node.do("XCFGSET", "s", "IDMP-MAXSIZE", chance.choice([1, 2, 3, 4]))
        elif dice < 0.84:
            self._exchange(node)
        elif dice < 0.92:
            node.sync()
            for other in self.nodes:
                if other is not node:
                    self.mesh.send_row(node.number, other.number)
        elif dice < 0.96:
            node.snapshot()
        else:
            node.sync()
            node.restart()

    def _send(self, node: Node) -> None:
        self.messages += self.chance.random() < 0.8
        iid = b"m%d" % self.messages
        node.do("XADD", "s", "IDMP", self.chance.choice(_PRODUCERS), iid, "*", "f", "v")

    def _exchange(self, node: Node) -> None:
        other = self.chance.choice([each for each in self.nodes if each is not node])
        if self.chance.random() < 0.3:
            self.mesh.send_full_sync(node.number, other.number)
            self.reached["full sync"] += 1
        elif (missing := node.missing(other.vector)) is not None:
            other.receive(*missing[: self.chance.randint(0, len(missing))])

    def _due(self, node: Node) -> Shown:
        """What the formulas say."""
        tags: dict[bytes, dict[bytes, list[Tagged]]] = {}
        shown = self.mesh.history.shown((0, b"s"), node.vector)
        for (pid, iid), facts in shown.tags.items():
            tags.setdefault(pid, {})[iid] = facts
        stream: Any = known_stream(node.region.keyspace, 0, b"s")
        found: Shown = {}
        for pid, facts_of in tags.items():
            ranked = sorted(facts_of, key=lambda iid: _rank(facts_of[iid]))
            newest = ranked[-stream.producers.maxsize :]
            self.reached["displaced"] += len(ranked) > len(newest)
            found[pid] = {iid: shown.answer(facts_of[iid]) for iid in newest}
        return dict(sorted(found.items()))


def remembered(keyspace: Keyspace) -> Shown:
    """The idempotent IDs by producer, oldest first, and the answers to retries."""
    stream = known_stream(keyspace, 0, b"s")
    if stream is None:
        return {}
    stream.producers.check()
    tables = stream.producers.tables
    return {
        pid: {iid: entry_id for iid, (entry_id, _) in tables[pid].items()} for pid in sorted(tables)
    }


@pytest.mark.parametrize("removal", [("DEL", "s"), ("XCFGSET", "s", "IDMP-MAXSIZE", 3)])
@pytest.mark.parametrize("how", ["log", "restart", "full sync"])
def test_a_removal_that_knew_the_newer_ids_only(removal: tuple[str | int, ...], how: str) -> None:
    mesh = Mesh(4, stream_idmp_maxsize=2)
    one, two, three, four = mesh.nodes.values()
    for node, ms in ((one, 1000), (two, 2000), (three, 3000), (four, 3000)):
        node.clock.us = ms * 1000
    first = one.do("XADD", "s", "IDMP", "p", "i1", "*", "f", "v")
    for iid in ("i2", "i3"):
        two.do("XADD", "s", "IDMP", "p", iid, "*", "f", "v")
    mesh.exchange([2, 3])
    three.do(*removal)
    mesh.send(1, 4)
    mesh.send(2, 4)
    assert list(remembered(four.region.keyspace)[b"p"]) == [b"i2", b"i3"]
    if how == "restart":
        four.snapshot()
        four.sync()
        four.restart()
    if how == "full sync":
        mesh.send_full_sync(3, 4)
    mesh.exchange()
    for node in mesh.nodes.values():
        assert list(remembered(node.region.keyspace)[b"p"]) == [b"i1"]
        assert node.do("XADD", "s", "IDMP", "p", "i1", "*", "f", "v") == first


def test_a_full_sync_without_removals_reads_no_held_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = Mesh(2, stream_idmp_maxsize=2)
    one, two = mesh.nodes.values()
    for iid in ("i1", "i2"):
        one.do("XADD", "s", "IDMP", "p", iid, "*", "f", "v")
    mesh.exchange()
    for iid in ("i3", "i4", "i5"):
        two.do("XADD", "s", "IDMP", "p", iid, "*", "f", "v")
    monkeypatch.setattr(Conflicts, "displaced_tags", None)  # there may be a million
    mesh.send_full_sync(2, 1)
    for node in (one, two):
        assert list(remembered(node.region.keyspace)[b"p"]) == [b"i4", b"i5"]


def test_what_every_member_has_is_forgotten() -> None:
    mesh = Mesh(2, stream_idmp_maxsize=1)
    one, two = mesh.nodes.values()
    for turn in range(3):
        for node in (one, two):
            node.do("XADD", "s", "IDMP", "p", f"{turn} {node.number}", "*", "f", "v")
        mesh.settle()
        mesh.settle()
    for node in (one, two):
        assert not node.replica.conflicts.held
        assert node.replica.conflicts.displaced.written() == []


@pytest.mark.parametrize("seed", [3547, 4052, 4086, 4173, 4195, 4330, 4770])
def test_histories_that_failed_once(seed: int) -> None:
    _History(seed).run()


@pytest.mark.parametrize("first", range(1, 601, 200))
def test_random_histories(first: int) -> None:
    reached: Counter[str] = Counter()
    for seed in range(first, first + 200):
        history = _History(seed)
        try:
            history.run()
        except AssertionError as problem:
            raise AssertionError(f"seed {seed}: {problem}") from problem
        reached.update(history.reached)
    assert min(reached[each] for each in ("DEL", "full sync", "displaced")) > 200
