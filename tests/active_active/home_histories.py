"""Random lives of a group with a home: moves, takes, cuts, kills and power failures, in a mesh.

What a client has seen is on the disk (``appendfsync always``); what regions tell each other of
homes may get lost with the power. In the end everything is exchanged, and compared with what was
delivered where.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Final

from anabranch.simulator import looking
from anabranch.stream.entry_id import text
from anabranch.stream.stream import Stream
from tests.support.mesh import Mesh, Node

EVENTS: Final = 120
REGIONS: Final = 3


class HomeHistory:
    """The life of a seed; ``reached`` counts what it has come to."""

    def __init__(self, seed: int, *, forces: int = 1, full_syncs: bool = False) -> None:
        """At most so many forced takes: what overlapping ones repeat is not known exactly.

        ``full_syncs``: these come in place of effects, too; a hand-over may be in many pieces.
        """
        self.chance = random.Random(seed)
        self.full_syncs = full_syncs
        self.mesh = Mesh(REGIONS)
        self.forces = forces
        self.reached: Counter[str] = Counter()
        self.got: dict[int, set[bytes]] = {number: set() for number in self.mesh.nodes}
        """By region, the entries that it has delivered as new ones."""
        self.done: set[bytes] = set()
        """What clients have acknowledged."""
        self.is_forced = False
        first = self.mesh.nodes[1]
        first.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        self.mesh.settle()
        self._connect()
        first.do("AB.POLICY", "SET", "s", "GROUP", "g", "home-region", 1)
        self.mesh.settle()

    def _connect(self) -> None:
        """Let commands know the other regions: nodes of a mesh have no links."""
        for node in self.mesh.nodes.values():
            node.host.regions = node.exchange

    def run(self) -> None:
        """All of it; AssertionError if anything is wrong."""
        for _ in range(EVENTS):
            self._event(self.mesh.nodes[self.chance.randint(1, REGIONS)])
        self.finish()

    def _event(self, node: Node) -> None:
        dice = self.chance.random()
        if dice < 0.15:
            node.do("XADD", "s", "*", "f", "v")
            node.sync()
        elif dice < 0.35:
            self._read(node)
        elif dice < 0.5:
            self._acknowledge(node)
        elif dice < 0.75:
            source, target = self.chance.sample(list(self.mesh.nodes), 2)
            if self.full_syncs and self.chance.random() < 0.2:
                self.mesh.send_full_sync(source, target)
                self.reached["full sync"] += 1
            elif self.mesh.is_up(source, target):
                self.mesh.send(source, target)
        elif dice < 0.83:
            node.tick()
        elif dice < 0.89:
            self._home(node)
        elif dice < 0.93:
            self.mesh.cut_links ^= {frozenset(self.chance.sample(list(self.mesh.nodes), 2))}
        elif dice < 0.96:
            node.sync()
        else:
            self._ends(node)

    def _read(self, node: Node, *words: object) -> None:
        (reply,) = node.ask(("XREADGROUP", "GROUP", "g", "c", *words, "STREAMS", "s", ">"))
        if isinstance(reply, Exception):
            assert str(reply).startswith("HOMED")
            self.reached["HOMED"] += 1
            return
        ids = {entry_id for entry_id, _ in reply[0][1]} if reply else set()
        self.got[node.number] |= ids
        self.reached["delivered"] += len(ids)
        node.sync()

    def _acknowledge(self, node: Node) -> None:
        rows = node.do("XPENDING", "s", "g", "-", "+", 100)
        ids = self.chance.sample([row[0] for row in rows], min(len(rows), 2))
        if ids:
            self.reached["acknowledged"] += node.do("XACK", "s", "g", *ids)
            self.done.update(ids)
            node.sync()

    def _home(self, node: Node) -> None:
        verb = self.chance.choice(["MOVE", "MOVE", "TAKE", "FORCE"])
        if verb == "TAKE":
            asks = node.region.open_session("127.0.0.1:50002", "127.0.0.1:6379")
            node.region.execute(asks, [b"AB.HOME TAKE s GROUP g".split()])
            node.end_turn()
            self.reached[verb] += bool(not asks.outbox)
        elif verb == "FORCE" and self.reached[verb] < self.forces:
            (reply,) = node.ask(("AB.HOME", "TAKE", "s", "GROUP", "g", "FORCE"))
            self.reached[verb] += reply == b"OK"
            self.is_forced |= reply == b"OK"
        elif verb == "MOVE":
            target = self.chance.randint(1, REGIONS)
            for each in self.mesh.nodes.values():
                (reply,) = each.ask(("AB.HOME", "MOVE", "s", "GROUP", "g", target))
                self.reached[verb] += reply == b"OK"

    def _ends(self, node: Node) -> None:
        if self.chance.random() < 0.5:
            node.restart()
        else:
            node.fail()
        self.reached["ended"] += 1
        self._connect()

    # -- the end ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Heal everything, and check what must hold then."""
        self.mesh.cut_links.clear()
        for _ in range(60 if self.full_syncs else 4):  # hand-overs follow each other
            self.mesh.settle()
            for node in self.mesh.nodes.values():
                node.tick()
        self.mesh.settle()
        shown = [self._shown(node) for node in self.mesh.nodes.values()]
        assert len({each[b"home"] for each in shown}) == 1
        (home,) = (
            node for node in self.mesh.nodes.values() if self._shown(node)[b"state"] == b"here"
        )
        twice = {
            one
            for one, count in Counter(i for some in self.got.values() for i in some).items()
            if count > 1
        }
        told = {entry_id for each in shown for entry_id in each[b"delivered-twice"]}
        assert self.is_forced or not twice, f"{twice} delivered in two regions"
        assert twice == told, f"{twice} were delivered twice, {told} are reported"
        self.reached["delivered twice"] += len(twice)
        self._read(home)
        self._check_all_is_known(home)

    def _shown(self, node: Node) -> dict[bytes, Any]:
        reply = node.do("AB.HOME", "SHOW", "s", "GROUP", "g")
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def _check_all_is_known(self, home: Node) -> None:
        """Every entry was delivered; what is not acknowledged is pending in the home."""
        stream = home.region.keyspace.databases[0].values[b"s"]
        assert isinstance(stream, Stream)
        entries = {text(entry.entry_id) for entry in looking.entries(stream)}
        pending = {row[0] for row in home.do("XPENDING", "s", "g", "-", "+", 1000)}
        lost = entries - self.done - pending
        assert not lost, f"{lost} are neither acknowledged nor pending in the home"
        assert not self.done & pending, f"{self.done & pending} are acknowledged and pending"
        undelivered = entries.difference(*self.got.values())
        assert not undelivered, f"{undelivered} were never delivered"
