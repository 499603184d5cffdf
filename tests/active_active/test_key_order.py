"""Order per key with several regions: each region orders what it hands out."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.support.mesh import Mesh, Node


def read(node: Node, *options: str) -> list[bytes]:
    reply = node.do("XREADGROUP", "GROUP", "g", "ann", *options, "STREAMS", "s", ">")
    return [entry[1][1] for entry in reply[0][1]] if reply else []


def fill(node: Node, *names: str) -> None:
    for name in names:
        node.do("XADD", "s", "*", "n", name, "k", name[0])


def test_each_region_orders_the_entries_of_all() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    eu.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    eu.do("AB.POLICY", "SET", "s", "key-field", "k")
    fill(eu, "a1", "b1")
    mesh.settle()
    fill(us, "a2", "c1")
    mesh.settle()
    assert read(eu) == [b"a1", b"b1", b"c1"]
    assert read(us, "COUNT", "2") == [b"a1", b"b1"]
    rows = eu.do("XPENDING", "s", "g", "-", "+", "9")
    eu.do("XACK", "s", "g", rows[0][0])
    assert read(eu) == [b"a2"]
    assert read(us) == [b"c1"]
    mesh.settle()  # what eu has acknowledged is not pending in us any more
    assert read(us) == [b"a2"]


def test_what_another_region_acknowledges_or_deletes_frees_the_key() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    eu.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    eu.do("AB.POLICY", "SET", "s", "key-field", "k", "on-poison", "halt")
    fill(eu, "a1", "a2", "a3")
    mesh.settle()
    assert read(eu) == [b"a1"]
    first = eu.do("XPENDING", "s", "g", "-", "+", "1")[0][0]
    eu.do("XNACK", "s", "g", "FATAL", "IDS", "1", first)
    reader = eu.region.open_session("127.0.0.1:1", "127.0.0.1:2")
    words = b"XREADGROUP GROUP g bob BLOCK 0 STREAMS s >".split()
    eu.region.execute(reader, [words])
    assert not reader.outbox
    us.do("XDEL", "s", first)
    mesh.settle()
    assert b"a2" in b"".join(reader.outbox)


def test_order_is_kept_over_restarts_of_a_region() -> None:
    for seed in range(10):
        rng = random.Random(seed)
        mesh = Mesh(2)
        eu, us = mesh.nodes.values()
        eu.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        eu.do("AB.POLICY", "SET", "s", "key-field", "k", "key-waiting", rng.choice([2, 100]))
        mesh.settle()
        taken: list[bytes] = []
        for number in range(10, 40):
            fill(rng.choice([eu, us]), f"{rng.choice('abc')}{number}")
            if rng.random() < 0.5:
                mesh.settle()
            taken += read(eu, "COUNT", "3")
            rows = [row for row in eu.do("XPENDING", "s", "g", "-", "+", "99") if row[1]]
            if rows and rng.random() < 0.7:
                eu.do("XACK", "s", "g", rng.choice(rows)[0])
            if rng.random() < 0.2:
                eu.restart()
        mesh.settle()
        while rows := [row for row in eu.do("XPENDING", "s", "g", "-", "+", "99") if row[1]]:
            eu.do("XACK", "s", "g", rows[0][0])
            taken += read(eu)
        assert len(taken) == 30
        assert len(set(taken)) == 30


# -- with a home ------------------------------------------------------------------------------


class OrderedAtHome:
    """A group that one region delivers in the order of each key, through moves and takes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.mesh = Mesh(3)
        self.nodes = list(self.mesh.nodes.values())
        self.reached: Counter[str] = Counter()
        self.given: dict[str, list[int]] = {}
        """By key, the numbers of the entries in the order in which they were handed out."""
        self.at_work: dict[str, tuple[int, bytes]] = {}
        """By key, the entry that somebody has got and not acknowledged."""
        self.added = 0
        first = self.nodes[0]
        first.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        self.settle()
        first.do("AB.POLICY", "SET", "s", "GROUP", "g", "home-region", 1, "key-field", "k")
        self.settle()

    def settle(self) -> None:
        for _ in range(3):
            for node in self.nodes:
                node.host.regions = node.exchange
                node.tick()
            self.mesh.settle()

    def shown(self, node: Node) -> dict[bytes, Any]:
        reply = node.do("AB.HOME", "SHOW", "s", "GROUP", "g")
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def home(self) -> Node:
        (home,) = (node for node in self.nodes if self.shown(node)[b"state"] == b"here")
        return home

    def add(self) -> None:
        self.added += 1
        key = self.chance.choice("abc")
        self.chance.choice(self.nodes).do("XADD", "s", "*", "n", self.added, "k", key)
        self.settle()

    def read(self, node: Node) -> list[tuple[str, int, bytes]]:
        count = self.chance.choice([1, 3])
        words = ("XREADGROUP", "GROUP", "g", "ann", "COUNT", count, "STREAMS", "s", ">")
        reply = node.do(*words)
        entries = reply[0][1] if reply else []
        self.reached["read"] += len(entries)
        return [(fields[3].decode(), int(fields[1]), entry_id) for entry_id, fields in entries]

    def work(self, node: Node) -> None:
        """The home hands out entries; nobody has another one of their keys, in any region."""
        for key, number, entry_id in self.read(node):
            assert key not in self.at_work, (key, number, self.at_work[key])
            self.at_work[key] = number, entry_id
            self.given.setdefault(key, []).append(number)

    def acknowledge(self, node: Node) -> None:
        """A worker acknowledges, perhaps in the region that was the home when it got the entry."""
        if self.at_work:
            key = self.chance.choice(sorted(self.at_work))
            if node.do("XACK", "s", "g", self.at_work[key][1]):
                del self.at_work[key]
                self.settle()
                self.reached["acknowledged"] += 1

    def drain(self) -> None:
        """Everything is handed out in the end."""
        home = self.home()
        for _ in range(3 * self.added):
            for row in home.do("XPENDING", "s", "g", "-", "+", 99):
                if row[1]:
                    home.do("XACK", "s", "g", row[0])
            self.at_work.clear()
            self.work(home)
        assert home.do("XPENDING", "s", "g")[0] == 0


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_a_key_holds_over_moves_of_the_home(seed: int) -> None:
    life = OrderedAtHome(seed)
    for _ in range(60):
        home, dice = life.home(), life.chance.random()
        if dice < 0.3:
            life.add()
        elif dice < 0.55:
            life.work(home)
        elif dice < 0.75:
            life.acknowledge(life.chance.choice([home, life.chance.choice(life.nodes)]))
        elif dice < 0.9:
            target = life.chance.choice([node for node in life.nodes if node is not home])
            home.do("AB.HOME", "MOVE", "s", "GROUP", "g", target.number)
            life.settle()
            assert life.home() is target
            life.reached["moved"] += 1
        else:
            life.chance.choice(life.nodes).restart()
            life.settle()
    life.drain()
    assert sorted(each for some in life.given.values() for each in some) == [
        *range(1, life.added + 1)
    ], "each entry once"
    assert all(some == sorted(some) for some in life.given.values())
    assert life.reached["moved"] > 2


@pytest.mark.parametrize("seed", range(4))
def test_a_forced_take_repeats_entries_in_their_order_and_reports_them(seed: int) -> None:
    life = OrderedAtHome(seed)
    for _ in range(15):
        life.add()
    old, new = life.nodes[:2]
    life.work(old)
    life.acknowledge(old)
    life.mesh.cut_links = {frozenset((1, 2)), frozenset((1, 3))}
    alone: list[tuple[str, int, bytes]] = []
    for _ in range(2):  # nobody hears of these
        alone += life.read(old)
        for row in old.do("XPENDING", "s", "g", "-", "+", 99):
            if row[1]:
                old.do("XACK", "s", "g", row[0])
        alone += life.read(old)
    assert new.do("AB.HOME", "TAKE", "s", "GROUP", "g", "FORCE") == b"OK"
    before = [*life.at_work.items()]
    life.at_work.clear()  # the operator says that these workers are dead
    life.given.clear()
    for _ in range(3):
        life.work(new)
        for _, entry_id in life.at_work.values():
            assert new.do("XACK", "s", "g", entry_id) == 1
        life.at_work.clear()
    in_new = {number for some in life.given.values() for number in some}
    in_old = {number for _, number, _ in alone} | {number for _, (number, _) in before}
    life.mesh.cut_links.clear()
    for _ in range(3):
        life.settle()
    assert life.home() is new
    ids = {int(fields[1]): entry_id for entry_id, fields in new.do("XRANGE", "s", "-", "+")}
    twice = [entry_id for number, entry_id in ids.items() if number in in_new & in_old]
    assert life.shown(new)[b"delivered-twice"] == twice
    assert twice
    life.drain()
    assert all(some == sorted(some) for some in life.given.values())
    delivered = in_old | {number for some in life.given.values() for number in some}
    assert len(delivered) >= life.added - 3  # others were acknowledged before
