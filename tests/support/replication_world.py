"""Regions with counted contents in the simulator's network, and checks that look at every step.

Each region is a :class:`~tests.support.counted_region.CountedRegion` with the product's
:class:`~anabranch.replication.replicator.Replicator`. The links are those of the simulator:
without faults unless a test makes some.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from anabranch.keyspace.replica import Member
from anabranch.keyspace.version_vectors import covers
from anabranch.replication.interface import Address, ReplicationConfig
from anabranch.replication.replicator import Replicator
from anabranch.simulator.network import Wire
from tests.support.counted_region import CountedRegion
from tests.support.linked_world import LinkedWorld

__all__ = ["NAMES", "Node", "World"]

NAMES = {1: "eu", 2: "us", 3: "ap", 4: "sa", 5: "af"}
TICK_MS = 50


class Node:
    """A region with its replicator, and its end of all links."""

    def __init__(self, world: World, number: int, place: int | None = None, **config: Any) -> None:
        """``place``: where it is in the network, if another server has its number."""
        self.world = world
        self.number = number
        self.place = number if place is None else place
        self.address: Address = (
            NAMES[number] if place is None else f"place{place}",
            world.network.port(self.place),
        )
        self.settings = config
        self.starts = 0
        self.alive = True
        self.local = CountedRegion(world, number)
        self.start()

    def start(self) -> None:
        self.starts += 1
        config = {
            "name": NAMES[self.number],
            "host": self.address[0],
            "port": self.address[1],
            "run_id": f"{self.place}.{self.starts}",
            "wall_ms": lambda: self.world.wall_ms(self.number),
            **self.settings,
        }
        chance = random.Random(f"{self.world.seed} {self.number} {self.starts}")
        self.wire = Wire(self.world.network, self.place, self)
        self.replicator = Replicator(self.local, self.wire, ReplicationConfig(**config), chance)
        self.world.network.listen(self.wire)
        self.alive = True

    def write(self, **what: int) -> None:
        self.local.write(**what)
        self.replicator.appended(self.world.now_ms)

    def crash(self, *, clean: bool = False, silently: bool = False) -> None:
        """The process ends; ``silently``, and the other ends of its links do not notice."""
        self.alive = False
        self.world.network.vanish(self.wire, silently=silently)
        self.local = self.local.crash(clean=clean)

    def set_back(self, disk: dict[str, Any]) -> None:
        """An earlier disk is put in place of the one there is, and nobody knows."""
        self.crash(clean=True)
        self.local = self.local.found_on(disk)
        self.start()

    def peer(self, region: int) -> Any:
        figures = self.replicator.peers(self.world.now_ms)
        return next(each for each in figures if each.region == region)

    # -- as a peer in the network -------------------------------------------------------------

    def link_up(self, link: int, dialled: Address | None) -> None:
        self.replicator.sessions.link_up(link, self.world.now_ms, dialled)

    def link_down(self, link: int) -> None:
        self.replicator.sessions.link_down(link, self.world.now_ms)

    def dial_failed(self, host: str, port: int, why: str) -> None:
        self.replicator.sessions.dial_failed(host, port, self.world.now_ms, why)

    def frame(self, link: int, data: bytes) -> None:
        self.replicator.receive(link, data[4], data[5:], self.world.now_ms)

    def part(self, link: int) -> None:
        self.replicator.heard(link, self.world.now_ms)


class World(LinkedWorld):
    """Nodes, the links between them, and a clock."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.seed = seed
        self.nodes: dict[int, Node] = {}
        """By place."""
        self.clock_ms: dict[int, int] = {}
        self.last_epoch: Counter[int] = Counter()
        self.run(1000.0)

    # -- building -----------------------------------------------------------------------------

    def region(self, number: int, place: int | None = None, **config: Any) -> Node:
        """A region that is not a member of anything yet."""
        node = Node(self, number, place, **config)
        self.nodes[node.place] = node
        self.tick(node)
        return node

    def cluster(self, count: int, **config: Any) -> list[Node]:
        """Members of one cluster that know each other."""
        nodes = [self.region(number, **config) for number in range(1, count + 1)]
        members = {node.number: Member(NAMES[node.number], *node.address) for node in nodes}
        for node in nodes:
            node.local.enter("c", members)
        return nodes

    def wall_ms(self, number: int) -> int:
        return int(self.now_ms) + 1_700_000_000_000 + self.clock_ms.get(number, 0)

    def tick(self, node: Node) -> None:
        """Let a node notice from now on that time passes."""
        if node.alive:
            node.replicator.tick(self.now_ms)
        self.timeline.after(TICK_MS, lambda: self.tick(node))

    # -- what must hold -----------------------------------------------------------------------

    def check_stable(self, local: CountedRegion) -> None:
        for node in self.nodes.values():
            if node.number in local.replica.members:
                assert covers(node.local.durable, local.watermark), "stable, and not on all disks"

    def converged(self) -> bool:
        """Whether everybody alive has the same, by number and by content."""
        members = [node for node in self.nodes.values() if node.alive]
        first = members[0].local
        return all(
            node.local.vector == first.vector and node.local.batches == first.batches
            for node in members
        )

    def is_settled(self) -> bool:
        """Converged, on disk, known to be so, and nothing half-way."""
        if not self.converged():
            return False
        for node in self.nodes.values():
            facts = node.replicator.facts(self.now_ms)
            if facts["held_batches"] or facts["joining_from"] or facts["unstable_effects"]:
                return False
        return True

    def sync_all(self) -> None:
        for node in self.nodes.values():
            if node.alive:
                node.local.sync()
