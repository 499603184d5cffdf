"""Regions in one process that exchange their effects by hand, in any order cause allows.

A :class:`Mesh` is some regions (:mod:`tests.support.by_hand`). Nothing travels by itself:
:meth:`Mesh.settle` exchanges everything, :meth:`Mesh.send` a part, :meth:`Mesh.send_state` a whole
state.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from copy import copy
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from anabranch.commands.request.spec import Command
from anabranch.commands.table import COMMANDS
from anabranch.config.settings import Settings
from anabranch.effects import kinds
from anabranch.keyspace.replica import Member
from anabranch.replication.frames import Row
from anabranch.simulator.formulas import History
from anabranch.simulator.timeline import Timeline
from tests.support.by_hand import Node, Staging, Unit
from tests.support.transcript import REGION_NAMES

__all__ = ["Mesh", "NamedMesh", "Node", "Unit"]


@cache
def _settings(**settings: object) -> Settings:
    """To be copied: checking them takes longer."""
    return Settings(**settings)


class Mesh:
    """Regions and links; ``history`` is everything that was ever done."""

    def __init__(
        self, count: int = 3, commands: Sequence[Command] = COMMANDS, **settings: object
    ) -> None:
        self.history = History()
        self.units: dict[bytes, Unit] = {}
        """All that was ever made, by its first batch."""
        self.timeline = Timeline()
        """Stands still: work beside the process is done at once, and no timer is ever due."""
        self.chance = random.Random(1)
        self.nodes: dict[int, Node] = {}
        self.cut_links: set[frozenset[int]] = set()
        self.stagings: dict[int, Staging] = {}
        """By who gets them."""
        self.joined: list[int] = []
        """Regions that have joined a state, since somebody last emptied this."""
        common = _settings(**settings)
        self.members = {number: Member(f"r{number}", "", 0) for number in range(1, count + 1)}
        for number in range(1, count + 1):
            own = copy(common)
            own.region_id = number
            own.join = "mesh:1"
            self.nodes[number] = Node(self, number, own, commands)

    def is_up(self, one: int, other: int) -> bool:
        """Whether two regions can talk."""
        return frozenset((one, other)) not in self.cut_links

    def send(self, source: int, target: int, units: Iterable[Unit] | None = None) -> int:
        """Bring a region what it lacks of another's effects, or some of it; how much arrived.

        The target gets the source's state if effects are no longer there to be sent.
        """
        giver, taker = self.nodes[source], self.nodes[target]
        if giver.vector == taker.vector:
            return 0
        missing = giver.missing(taker.vector)
        if missing is None:
            self.send_state(source, target)
            return 1
        before = sum(taker.vector.values())
        taker.receive(*(missing if units is None else units))
        return sum(taker.vector.values()) - before

    def send_state(self, source: int, target: int) -> None:
        """A region joins what another has, or what differs of that, to what it has itself."""
        self.begin_state(source, target)
        while not self.go_on(target, 1000):
            pass

    def begin_state(self, source: int, target: int) -> None:
        """A region begins to get another's state, instead of what it was getting."""
        self.give_up(target)
        self.stagings[target] = Staging(self.nodes[source], self.nodes[target])

    def go_on(self, target: int, chunks: int) -> bool:
        """More of it arrives, and is joined when it is whole; whether it was."""
        staging = self.stagings[target]
        if not staging.go_on(chunks):
            return False
        del self.stagings[target]
        self.nodes[target].join(staging.end(), staging.giver, partial=staging.is_partial)
        self.joined.append(target)
        return True

    def give_up(self, target: int) -> None:
        """What a region was getting comes to nothing."""
        staging = self.stagings.pop(target, None)
        if staging is not None:
            staging.end()
            self.nodes[target].give_up_join()

    def send_row(self, source: int, target: int) -> None:
        """A region tells another how far it is, and what it has heard of the rest."""
        self._tell(source, self.nodes[source].row(), [target])

    def _tell(self, source: int, row: Row, targets: Iterable[int]) -> None:
        rows = [row, *self.nodes[source].replicator._links.rows.rows.values()]
        for target in targets:
            self.nodes[target].hear_rows(rows)

    def exchange(self, numbers: Sequence[int] | None = None) -> list[tuple[int, int]]:
        """All effects travel between these regions, over links that are up: the pairs."""
        among = list(self.nodes) if numbers is None else list(numbers)
        pairs = [(a, b) for a in among for b in among if a != b and self.is_up(a, b)]
        while sum(self.send(source, target) for source, target in pairs):
            pass
        return pairs

    def settle(self, numbers: Sequence[int] | None = None) -> None:
        """The same; then everything goes to the disks, and rows travel."""
        among = list(self.nodes) if numbers is None else list(numbers)
        pairs = self.exchange(among)
        for number in among:
            self.nodes[number].sync()
        is_direct = len(pairs) == len(among) * (len(among) - 1)
        # Around a cut link rows come by those who have heard them, a round later.
        for _ in range(1 if is_direct else 2):
            for source, some in groupby(pairs, itemgetter(0)):
                self._tell(source, self.nodes[source].row(), [target for _, target in some])


class NamedMesh:
    """A mesh for transcripts: regions by name."""

    has_clock = True

    def __init__(self, regions: Sequence[str], mode: str) -> None:
        self.mesh = Mesh(len(regions), xadd_id_uniqueness_mode=mode)

    def _number(self, region: str) -> int:
        return REGION_NAMES.index(region) + 1

    def _node(self, region: str) -> Node:
        return self.mesh.nodes[self._number(region)]

    def do(self, region: str, *args: str | bytes) -> Any:
        return self._node(region).do(*args)

    def settle(self, regions: Sequence[str]) -> None:
        self.mesh.settle([self._number(region) for region in regions])

    def clock(self, region: str, ms: int) -> None:
        self._node(region).clock.us = ms * 1000

    def cut(self, one: str, other: str) -> None:
        self.mesh.cut_links.add(frozenset((self._number(one), self._number(other))))

    def heal(self) -> None:
        self.mesh.cut_links.clear()

    def forget(self, region: str) -> None:
        node = self._node(region)
        for replica_id, number in node.vector.items():
            node.forget(replica_id, number)

    def count_effects(self, region: str, kind: str) -> int:
        counted = {"ack": kinds.AcknowledgeRuns}[kind]
        return sum(isinstance(effect, counted) for effect in self._node(region).issued)
