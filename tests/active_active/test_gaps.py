"""Notes of AB.READ about removed entries, while a reader wanders between regions.

Entries and gaps together are all entries that each region ever added, each once: nothing is told
twice, nothing is left out, whichever region is asked and however the data came to it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest

from tests.support.mesh import Mesh, Node


class Reader:
    """A reader of one key that keeps which entries of each region it was given or told of."""

    def __init__(self, writers: Writers) -> None:
        self.writers = writers
        self.cursor: bytes = b"0"
        self.known: defaultdict[int, dict[int, str]] = defaultdict(dict)

    def read(self, node: Node, *options: object) -> list[Any]:
        """The notes of one call."""
        ((_, self.cursor, entries, notes),) = node.do(
            "AB.READ", "NOTES", *options, "STREAMS", "s", self.cursor
        )
        for _, (_, name) in entries:
            self._learn(*self.writers.numbers[name], "read")
        for kind, low, high, region, _ in notes:
            assert kind == b"gap"
            for number in range(low, high + 1):
                self._learn(region, number, "gap")
        return notes

    def _learn(self, region: int, number: int, how: str) -> None:
        assert number not in self.known[region], (region, number, how, self.known[region][number])
        self.known[region][number] = how

    def told(self, region: int) -> list[str]:
        """What it knows of a region's entries, in their order."""
        return [how for _, how in sorted(self.known[region].items())]


class Writers:
    """Adds entries, and remembers which one of its region each of them is."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, tuple[int, int]] = {}
        """By the value of the only field."""

    def add(self, node: Node, count: int = 1) -> None:
        for _ in range(count):
            name = b"%d" % len(self.numbers)
            node.do("XADD", "s", "*", "f", name)
            (rows,) = node.do("AB.OFFSETS", "STREAMS", "s")
            (end,) = [row[3] for row in rows if int(row[0]) == node.number]
            self.numbers[name] = node.number, end

    def all_of(self, region: int) -> list[int]:
        """The entries that a region has added."""
        return sorted(number for where, number in self.numbers.values() if where == region)


def test_entries_of_another_region_that_were_removed_before_they_were_seen_here() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    writers = Writers()
    reader = Reader(writers)
    writers.add(one, 2)
    writers.add(two, 5)
    two.do("XTRIM", "s", "MAXLEN", 2)
    assert reader.read(one) == []
    mesh.settle()
    first = writers.all_of(2)[0]
    assert reader.read(one) == [[b"gap", first, first + 2, 2, 0]]
    assert reader.told(2) == ["gap", "gap", "gap", "read", "read"]
    cursor = reader.cursor
    assert reader.read(two) == []
    assert reader.cursor == cursor


def test_a_trim_that_arrives_is_told_where_the_reader_was_behind() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    writers = Writers()
    reader = Reader(writers)
    writers.add(one, 10)
    mesh.settle()
    reader.read(two, "COUNT", 3)
    one.do("XTRIM", "s", "MAXLEN", 4)
    mesh.settle()
    assert len(reader.read(two, "COUNT", 2)) == 1
    assert reader.told(1) == ["read"] * 3 + ["gap"] * 3 + ["read"] * 2
    one.do("XDEL", "s", *[each for each, _ in one.do("XRANGE", "s", "-", "+")])
    mesh.settle()
    assert len(reader.read(two)) == 1
    assert reader.told(1)[-2:] == ["gap", "gap"]


def test_a_reader_that_waits_in_a_region_is_told() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    writers = Writers()
    reader = Reader(writers)
    writers.add(one)
    reader.read(one)
    session = one.region.open_session("127.0.0.1:50000", "127.0.0.1:6379")
    words = [b"AB.READ", b"NOTES", b"BLOCK", b"0", b"STREAMS", b"s", reader.cursor]
    one.region.execute(session, [words])
    assert session.blocked
    two.do("MULTI")
    for value in range(3):
        two.do("XADD", "s", "*", "f", value)
    two.do("XTRIM", "s", "MAXLEN", 1)
    two.do("EXEC")
    mesh.settle()
    (rows,) = one.do("AB.OFFSETS", "STREAMS", "s")
    first = rows[1][3] - 2
    gap = b"gap\r\n:%d\r\n:%d\r\n:2\r\n:0\r\n" % (first, first + 1)
    assert gap in b"".join(session.outbox)


def test_a_cursor_without_places_tells_of_what_goes_from_then_on() -> None:
    mesh = Mesh(1, stream_node_max_entries=2)
    (one,) = mesh.nodes.values()
    writers = Writers()
    reader = Reader(writers)
    writers.add(one, 8)
    ((_, reader.cursor, _),) = one.do("AB.READ", "COUNT", 1, "STREAMS", "s", "0")
    one.do("XTRIM", "s", "MAXLEN", 4)
    assert reader.read(one, "COUNT", 1) == []  # what is gone may have been read
    one.do("XTRIM", "s", "MAXLEN", 1)
    reader.read(one)
    assert reader.told(1) == ["read", "gap", "gap", "read"]


@pytest.mark.parametrize("cursor", [b"$", b"v1"])
def test_a_reader_that_had_all_is_told_of_nothing(cursor: bytes) -> None:
    mesh = Mesh(1, stream_node_max_entries=2)
    (one,) = mesh.nodes.values()
    writers = Writers()
    reader = Reader(writers)
    writers.add(one, 8)
    if cursor == b"v1":
        ((_, cursor, _),) = one.do("AB.READ", "STREAMS", "s", "0")
    one.do("XDEL", "s", *[each for each, _ in one.do("XREVRANGE", "s", "+", "-", "COUNT", 5)])
    reader.cursor = cursor
    assert reader.read(one) == []
    writers.add(one, 2)
    one.do("XDEL", "s", *[each for each, _ in one.do("XREVRANGE", "s", "+", "-", "COUNT", 2)])
    (gap,) = reader.read(one)
    assert gap[:3] == [b"gap", *writers.all_of(1)[-2:]]


def test_a_token_with_places_is_a_token() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    writers = Writers()
    reader = Reader(writers)
    writers.add(one)
    reader.read(one)
    assert reader.cursor.startswith(b"n1:")
    mesh.settle()
    assert two.do("AB.WAITFOR", reader.cursor, 1) == b"OK"
    ((_, _, entries),) = two.do("AB.READ", "STREAMS", "s", reader.cursor)
    assert not entries
    for bad in (b"n1:", reader.cursor[:-2], reader.cursor + b"AA", b"n1:kwAABQ"):
        with pytest.raises(Exception, match="Invalid cursor"):
            two.do("AB.READ", "NOTES", "STREAMS", "s", bad)


@pytest.mark.parametrize("deletes", [False, True], ids=["", "key-deleted"])
@pytest.mark.parametrize("seed", range(8))
def test_entries_and_gaps_together_are_all_that_was_added_once(seed: int, deletes: bool) -> None:
    rng = random.Random(f"{seed} {deletes}")
    mesh = Mesh(3, stream_node_max_entries=4)
    nodes = list(mesh.nodes.values())
    writers = Writers()
    reader = Reader(writers)
    for node in nodes:
        writers.add(node)
    mesh.settle()
    reader.read(nodes[0], "COUNT", 1)
    for _ in range(150):
        node = rng.choice(nodes)
        match rng.randrange(10):
            case 0 | 1 | 2:
                writers.add(node, rng.randint(1, 5))
            case 3:
                mesh.send(*rng.sample(list(mesh.nodes), 2))
            case 4 if rng.random() < 0.3:
                mesh.send_full_sync(*rng.sample(list(mesh.nodes), 2))
            case 5:
                ids = [each for each, _ in node.do("XRANGE", "s", "-", "+")]
                if ids:
                    node.do("XDEL", "s", *rng.sample(ids, min(3, len(ids))))
            case 6:
                node.do("XTRIM", "s", "MAXLEN", rng.randrange(12))
            case 7 if deletes and rng.random() < 0.3:
                node.do("DEL", "s")
            case _:
                reader.read(node, "COUNT", rng.randint(1, 6))
    for node in nodes:
        writers.add(node)
    mesh.settle()
    reader.read(rng.choice(nodes))
    for node in nodes:
        assert sorted(reader.known[node.number]) == writers.all_of(node.number)
        assert reader.read(node) == []
    assert {how for known in reader.known.values() for how in known.values()} == {"read", "gap"}
