"""Regions in one process that exchange their effects by hand, in any order causes allow.

A :class:`Mesh` is some regions (:mod:`tests.support.by_hand`). Nothing travels by itself:
:meth:`Mesh.settle` exchanges all effects, :meth:`Mesh.send` some of them, and
:meth:`Mesh.send_full_sync` sends a full sync.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from copy import copy
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from anabranch.commands.table import COMMANDS
from anabranch.config.settings import Settings
from anabranch.effects import kinds
from anabranch.engine.spec import Command
from anabranch.keyspace.replica import Member
from anabranch.replication.frames import StatusRow
from anabranch.simulator.formulas import History
from anabranch.simulator.timeline import Timeline
from tests.support.by_hand import FullSync, Node, Unit
from tests.support.transcript import REGION_NAMES

__all__ = ["Mesh", "NamedMesh", "Node", "Unit"]


@cache
def _settings(**settings: object) -> Settings:
    """A copy of the result is cheaper than checking the settings again."""
    return Settings(**settings)


class Mesh:
    """Regions and links; ``history`` is everything that was ever done."""

    def __init__(
        self, count: int = 3, commands: Sequence[Command] = COMMANDS, **settings: object
    ) -> None:
        self.history = History()
        self.units: dict[bytes, Unit] = {}
        """All units that were ever made, by their first batch."""
        self.timeline = Timeline()
        """Stands still: work of other threads is done at once, and no timer is ever due."""
        self.chance = random.Random(1)
        self.nodes: dict[int, Node] = {}
        self.cut_links: set[frozenset[int]] = set()
        self.away: set[int] = set()
        """Regions that nobody hears of, and that hear of nobody."""
        self.full_syncs: dict[int, FullSync] = {}
        """Unfinished full syncs, by the region that receives them."""
        self.joined: list[int] = []
        """Regions that have joined a full sync since a test last emptied this list."""
        common = _settings(**settings)
        self.members = {number: Member(f"r{number}", "", 0) for number in range(1, count + 1)}
        for number in range(1, count + 1):
            own = copy(common)
            own.region_id = number
            own.join = "mesh:1"
            self.nodes[number] = Node(self, number, own, commands)

    def is_up(self, one: int, other: int) -> bool:
        """Whether two regions can talk."""
        links = self.cut_links
        return frozenset((one, other)) not in links and not self.away & {one, other}

    def send(self, source: int, target: int, units: Iterable[Unit] | None = None) -> int:
        """Send a region the effects that it lacks, or some of them; the count that arrived.

        The target gets a full sync if the source cannot send all of them any more.
        """
        sender, receiver = self.nodes[source], self.nodes[target]
        if sender.vector == receiver.vector:
            return 0
        missing = sender.missing(receiver.vector)
        if missing is None:
            self.send_full_sync(source, target)
            return 1
        before = sum(receiver.vector.values())
        receiver.receive(*(missing if units is None else units))
        return sum(receiver.vector.values()) - before

    def send_full_sync(self, source: int, target: int) -> None:
        """A region joins the data of another one, or the keys that may differ, with its own."""
        self.begin_full_sync(source, target)
        while not self.go_on(target, 1000):
            pass

    def begin_full_sync(self, source: int, target: int) -> None:
        """A full sync begins; an unfinished one of the same target is abandoned."""
        self.abandon(target)
        self.full_syncs[target] = FullSync(self.nodes[source], self.nodes[target])

    def go_on(self, target: int, chunks: int) -> bool:
        """More chunks of the full sync arrive; joins it and returns true when it is whole."""
        full_sync = self.full_syncs[target]
        if not full_sync.go_on(chunks):
            return False
        del self.full_syncs[target]
        self.nodes[target].join(full_sync.end(), full_sync.sender, partial=full_sync.is_partial)
        self.joined.append(target)
        return True

    def abandon(self, target: int) -> None:
        """The unfinished full sync of a region, if any, ends without effect."""
        full_sync = self.full_syncs.pop(target, None)
        if full_sync is not None:
            full_sync.end()
            self.nodes[target].abandon_join()

    def send_row(self, source: int, target: int) -> None:
        """A region sends another one its status row, and the rows that it knows."""
        self._send_rows(source, self.nodes[source].row(), [target])

    def _send_rows(self, source: int, row: StatusRow, targets: Iterable[int]) -> None:
        rows = [row, *self.nodes[source].replicator.links.rows.rows.values()]
        for target in targets:
            self.nodes[target].receive_rows(rows)

    def exchange(self, numbers: Sequence[int] | None = None) -> list[tuple[int, int]]:
        """All effects travel between these regions, over links that are up; returns the pairs."""
        among = list(self.nodes) if numbers is None else list(numbers)
        pairs = [(a, b) for a in among for b in among if a != b and self.is_up(a, b)]
        quiet_rounds = 0
        # Who hears of a new epoch forgets what waits of the former one, and asks for it again.
        while quiet_rounds < 2:
            arrived = sum(self.send(source, target) for source, target in pairs)
            quiet_rounds = 0 if arrived else quiet_rounds + 1
        return pairs

    def settle(self, numbers: Sequence[int] | None = None) -> None:
        """All effects travel, everything is synced to the disks, and status rows travel."""
        among = list(self.nodes) if numbers is None else list(numbers)
        pairs = self.exchange(among)
        for number in among:
            self.nodes[number].sync()
        is_direct = len(pairs) == len(among) * (len(among) - 1)
        # Around a cut link, rows travel by way of other regions, a round later.
        for _ in range(1 if is_direct else 2):
            for source, some in groupby(pairs, itemgetter(0)):
                self._send_rows(source, self.nodes[source].row(), [target for _, target in some])


class NamedMesh:
    """A mesh for transcripts: regions by name."""

    has_clock = True

    def __init__(self, regions: Sequence[str], mode: str) -> None:
        self.mesh = Mesh(len(regions), xadd_id_uniqueness_mode=mode)
        for node in self.mesh.nodes.values():
            node.host.regions = node.exchange

    def _number(self, region: str) -> int:
        return REGION_NAMES.index(region) + 1

    def _node(self, region: str) -> Node:
        return self.mesh.nodes[self._number(region)]

    def do(self, region: str, *args: str | bytes) -> Any:
        return self._node(region).do(*args)

    def settle(self, regions: Sequence[str]) -> None:
        numbers = [self._number(region) for region in regions]
        self.mesh.settle(numbers)
        for number in numbers:
            self.mesh.nodes[number].tick()  # it may have something to tell of now
        self.mesh.settle(numbers)

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
