"""One cursor for many streams that wanders between regions, against what each region had."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.commands.extensions import joint_read
from anabranch.commands.extensions.joint_read import begin, first_look, look, stand
from anabranch.commands.extensions.reading import EntryRequest
from anabranch.keyspace.joint_cursor import JointCursor
from anabranch.scheduling import in_one_go
from tests.support.mesh import Mesh, Node
from tests.support.region_harness import decode_all

KEYS = [b"a", b"b", b"c", b"d"]


def read(node: Node, cursor: bytes | str, *options: object) -> tuple[bytes, dict[bytes, list[Any]]]:
    """The next cursor, and the values of the only field by stream."""
    following, rows = node.do("AB.READ", *options, "FROM", cursor, "PATTERN", "*")
    return following, {key: [fields[1] for _, fields in entries] for key, entries in rows}


def read_in_steps(
    node: Node, cursor: bytes, count: int, between: Callable[[], None]
) -> tuple[bytes, dict[bytes, list[Any]]]:
    """The same, while something else happens between the steps of the look."""
    words = [b"AB.READ", b"COUNT", b"%d" % count, b"FROM", cursor, b"PATTERN", b"*"]
    region = node.region
    ctx = region.context
    session = region.open_session("127.0.0.1:50000", "127.0.0.1:6379")
    ctx.enter(session, 0)
    request = begin(ctx, words, EntryRequest(words, 0))
    assert request is not None
    steps = first_look(ctx, request)
    while True:
        ctx.enter(session, 0)
        try:
            next(steps)
        except StopIteration as end:
            reply = end.value or request.reply()
            break
        between()
    region.close_session(session)
    ((following, rows),) = decode_all(reply)
    return following, {key: [fields[1] for _, fields in entries] for key, entries in rows}


def test_a_reader_that_has_all_has_a_short_cursor_and_late_entries_come() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    for number in range(200):
        one.do("XADD", f"stream:{number}", 100, "f", number)
    two.do("XADD", "stream:7", 50, "f", "late")
    cursor, got = read(one, "0")
    assert len(got) == 200
    assert len(cursor) < 40
    mesh.settle()
    for node in (one, two):
        following, late = read(node, cursor)
        assert late == {b"stream:7": [b"late"]}
        assert read(node, following) == (following, {})


def test_a_region_that_lags_behind_a_cursor_keeps_what_was_not_read() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    for number in range(6):
        one.do("XADD", "a", 100 + number, "f", number)
        one.do("XADD", "b", 100 + number, "f", number)
    cursor, got = read(one, "0", "COUNT", 6)
    assert got == {b"a": [b"0", b"1", b"2"], b"b": [b"0", b"1", b"2"]}
    cursor, got = read(two, cursor)
    assert got == {}
    mesh.settle()
    assert read(two, cursor)[1] == {b"a": [b"3", b"4", b"5"], b"b": [b"3", b"4", b"5"]}


@pytest.mark.parametrize("begin_at", [b"$", b"c1:"])
def test_a_stream_that_is_made_while_a_call_reads_its_cursor_is_not_skipped(
    begin_at: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = Mesh(2)
    node = mesh.nodes[1]
    monkeypatch.setattr(joint_read, "STREAMS_AT_ONCE", 1)
    monkeypatch.setattr("anabranch.keyspace.joint_cursor.PAGE", 1)
    for number in range(8):
        for name in b"abc":
            node.do("XADD", f"stream:{name:c}", "*", "f", number)
    cursor = begin_at
    if begin_at != b"$":  # a reader that stands elsewhere in each stream: more than a page of rows
        cursor, _ = read(node, "0", "COUNT", 6)
    step = 0

    def make() -> None:
        nonlocal step
        step += 1
        node.do("XADD", f"new:{step}", "*", "f", "new")

    got: set[bytes] = set()
    cursor, rows = read_in_steps(node, cursor, 1000, make)
    got.update(rows)
    assert step > 3
    cursor, rows = read(node, cursor)
    got.update(rows)
    assert {f"new:{number}".encode() for number in range(1, step + 1)} <= got


@pytest.mark.parametrize("in_steps", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_every_entry_comes_once_whichever_region_is_asked(
    seed: int, in_steps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    mesh = Mesh(3, stream_node_max_entries=4)
    nodes = list(mesh.nodes.values())
    cursor: bytes = b"0"
    got: set[tuple[bytes, bytes]] = set()
    if in_steps:
        monkeypatch.setattr(joint_read, "STREAMS_AT_ONCE", 1)
        monkeypatch.setattr(joint_read, "TAKEN_AT_ONCE", 1)
    names = iter(range(1_000_000))

    def change() -> None:
        node, key = rng.choice(nodes), rng.choice(KEYS)
        match rng.randrange(6):
            case 0 | 1 | 2:
                for _ in range(rng.randint(1, 4)):
                    node.do("XADD", key, "*", "f", next(names))
            case 3:
                source, target = rng.sample(list(mesh.nodes), 2)
                mesh.send(source, target)
            case 4:
                for entry_id, _ in node.do("XRANGE", key, "-", "+", "COUNT", 3):
                    node.do("XDEL", key, entry_id)
            case 5 if rng.random() < 0.3:
                node.do("DEL", key)

    for _ in range(120):
        if rng.randrange(8) < 6:
            change()
        else:
            node, count = rng.choice(nodes), rng.randint(1, 9)
            if in_steps:
                cursor, rows = read_in_steps(node, cursor, count, change)
            else:
                cursor, rows = read(node, cursor, "COUNT", count)
            for name, values in rows.items():
                for value in values:
                    assert (name, value) not in got, "twice"
                    got.add((name, value))
    mesh.settle()
    for node in rng.sample(nodes, 3):
        cursor, rows = read(node, cursor)
        for name, values in rows.items():
            assert not got & {(name, value) for value in values}
            got |= {(name, value) for value in values}
    for node in nodes:
        assert read(node, cursor) == (cursor, {})
        for key in KEYS:
            for _, fields in node.do("XRANGE", key, "-", "+"):
                assert (key, fields[1]) in got


def test_a_cursor_of_a_server_without_regions_is_refused() -> None:
    mesh = Mesh(2)
    alone = in_one_go(JointCursor({}, {b"a": [0, 5]}, set(), b"").text_steps())
    with pytest.raises(Exception, match="from a server without regions"):
        read(mesh.nodes[1], alone)


def test_one_waits_for_entries_of_other_regions() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XADD", "a", 100, "f", "v")
    cursor, _ = read(one, "0")
    session = one.region.open_session("127.0.0.1:50000", "127.0.0.1:6379")
    words = [b"AB.READ", b"BLOCK", b"0", b"FROM", cursor, b"PATTERN", b"*"]
    one.region.execute(session, [words])
    assert session.blocked
    two.do("XADD", "new", 50, "f", "v")
    mesh.settle()
    assert b"new" in b"".join(session.outbox)


def test_a_look_at_some_streams_claims_nothing_of_the_others() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XADD", "a", 100, "f", "old")
    one.do("XADD", "b", 100, "f", "old")
    cursor, _ = read(one, "0")
    options = EntryRequest([b"AB.READ", b"FROM", cursor, b"PATTERN", b"*"], 0)
    ctx = one.region.context
    ctx.enter(one.region.open_session("127.0.0.1:50000", "127.0.0.1:6379"), 0)
    request = begin(ctx, [], options)
    assert request is not None
    in_one_go(stand(ctx, request))
    two.do("XADD", "a", 200, "f", "new")
    two.do("XADD", "b", 200, "f", "new")
    mesh.settle()
    takings = in_one_go(look(ctx, request, [b"a"], is_whole=False))
    assert takings is not None
    assert [each.key for each in takings] == [b"a"]
    assert read(one, request.text)[1] == {b"b": [b"new"]}


class Gapped:
    """A reader of all streams that keeps which entries of each region it was given or told of."""

    def __init__(self) -> None:
        self.cursor: bytes = b"0"
        self.numbers: dict[bytes, tuple[bytes, int, int]] = {}
        """Key, region, and which one of the region, by the value of the only field."""
        self.known: set[tuple[bytes, int, int]] = set()

    def add(self, node: Node, key: bytes) -> None:
        name = b"%d" % len(self.numbers)
        node.do("XADD", key, "*", "f", name)
        (rows,) = node.do("AB.OFFSETS", "STREAMS", key)
        (end,) = [row[3] for row in rows if int(row[0]) == node.number]
        self.numbers[name] = key, node.number, end

    def read(self, node: Node, *options: object) -> None:
        self.cursor, rows = node.do(
            "AB.READ", "NOTES", *options, "FROM", self.cursor, "PATTERN", "*"
        )
        for key, entries, notes in rows:
            found = [self.numbers[name] for _, (_, name) in entries]
            for _, low, high, region, _ in notes:
                found += [(key, region, number) for number in range(low, high + 1)]
            for each in found:
                assert each not in self.known, each
                self.known.add(each)


@pytest.mark.parametrize("seed", range(6))
def test_gaps_of_all_streams_are_told_once(seed: int) -> None:
    rng = random.Random(seed)
    mesh = Mesh(3, stream_node_max_entries=4)
    nodes = list(mesh.nodes.values())
    reader = Gapped()
    for _ in range(150):
        node, key = rng.choice(nodes), rng.choice(KEYS)
        match rng.randrange(9):
            case 0 | 1 | 2:
                for _ in range(rng.randint(1, 5)):
                    reader.add(node, key)
            case 3:
                mesh.send(*rng.sample(list(mesh.nodes), 2))
            case 4:
                node.do("XTRIM", key, "MAXLEN", rng.randrange(8))
            case 5:
                ids = [each for each, _ in node.do("XRANGE", key, "-", "+", "COUNT", 2)]
                if ids:
                    node.do("XDEL", key, *ids)
            case _:
                reader.read(node, "COUNT", rng.randint(1, 9))
    mesh.settle()
    before = b""
    while before != reader.cursor:
        before = reader.cursor
        reader.read(rng.choice(nodes))
    assert reader.known == set(reader.numbers.values())
