"""Order per key with several regions: each region orders what it hands out."""

from __future__ import annotations

import random

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


def test_a_key_that_is_skipped_at_once_goes_on() -> None:
    mesh = Mesh(2)
    eu = mesh.nodes[1]
    eu.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    eu.do("AB.POLICY", "SET", "s", "key-field", "k", "on-poison", "halt")
    fill(eu, "a1", "a2")
    assert read(eu) == [b"a1"]
    first = eu.do("XPENDING", "s", "g", "-", "+", "1")[0][0]
    eu.do("XNACK", "s", "g", "FATAL", "IDS", "1", first)
    assert eu.do("AB.SKIP", "s", "g", "a") == 1
    assert read(eu) == [b"a2"]


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
