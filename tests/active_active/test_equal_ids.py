"""Entries with equal IDs, as clients may give them in several regions: every command on streams."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.stream.image import StreamImage
from tests.active_active.comparison import pairs
from tests.support.mesh import Mesh, Node
from tests.support.payloads import decode_payload

SHOWN = [(b"1-1", b"eu1"), (b"2-1", b"eu2"), (b"2-1", b"us2"), (b"2-2", b"us3"), (b"3-1", b"us4")]
"""Entries of two regions, and what their fields hold."""

RENUMBERED = [b"1-1", b"2-1", b"2-2", b"2-3", b"3-1"]


@pytest.fixture
def mesh() -> Mesh:
    mesh = Mesh(2, xadd_id_uniqueness_mode="liberal", enable_debug_command="yes")
    eu, us = mesh.nodes.values()
    for entry_id, value in SHOWN:
        node = eu if value.startswith(b"eu") else us
        node.do("XADD", "s", entry_id, "f", value)
    mesh.settle()
    eu.do("XGROUP", "CREATE", "s", "g", "0")
    return mesh


@pytest.fixture
def eu(mesh: Mesh) -> Node:
    return mesh.nodes[1]


def rows(reply: Any) -> list[tuple[bytes, bytes]]:
    return [(entry_id, fields[1]) for entry_id, fields in reply]


def read(node: Node, count: int, key: str = "s", consumer: str = "c") -> list[tuple[bytes, bytes]]:
    words = ("XREADGROUP", "GROUP", "g", consumer, "COUNT", count, "STREAMS", key, ">")
    reply = node.do(*words)
    return rows(reply[0][1]) if reply else []


def pending(node: Node, key: str = "s") -> list[bytes]:
    return [row[0] for row in node.do("XPENDING", key, "g", "-", "+", 100)]


def group(node: Node, key: str = "s") -> dict[bytes, Any]:
    (row,) = node.do("XINFO", "GROUPS", key)
    return pairs(row)


def walked(node: Node, count: int) -> Iterator[list[bytes]]:
    """Pages of XPENDING, as scripts ask for them."""
    start = "-"
    for _ in range(10):
        page = [row[0] for row in node.do("XPENDING", "s", "g", start, "+", count)]
        if not page:
            return
        yield page
        start = "(" + page[-1].decode()
    raise AssertionError("it does not end")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9])
def test_walks_see_everything_once_and_end(eu: Node, count: int) -> None:
    def xrange_() -> list[Any]:
        found, start = [], "-"
        while reply := eu.do("XRANGE", "s", start, "+", "COUNT", count):
            found += rows(reply)
            start = "(" + reply[-1][0].decode()
        return found

    def xrevrange() -> list[Any]:
        found, end = [], "+"
        while reply := eu.do("XREVRANGE", "s", end, "-", "COUNT", count):
            found += rows(reply)
            end = "(" + reply[-1][0].decode()
        return found[::-1]

    def xread() -> list[Any]:
        found: list[Any] = []
        last: object = "0"
        while reply := eu.do("XREAD", "COUNT", count, "STREAMS", "s", last):
            found += rows(reply[0][1])
            last = found[-1][0]
        return found

    def history() -> list[Any]:
        found: list[Any] = []
        last: object = "0"
        words = ("XREADGROUP", "GROUP", "g", "c", "COUNT", count, "STREAMS", "s")
        while reply := eu.do(*words, last)[0][1]:
            found += rows(reply)
            last = found[-1][0]
        return found

    def ab_read() -> list[Any]:
        found: list[Any] = []
        cursor: object = "0"
        while reply := eu.do("AB.READ", "COUNT", count, "STREAMS", "s", cursor)[0][2]:
            found += rows(reply)
            cursor = eu.do("AB.READ", "COUNT", count, "STREAMS", "s", cursor)[0][1]
        return found

    assert xrange_() == xrevrange() == xread() == ab_read() == SHOWN
    delivered = []
    while some := read(eu, count):
        delivered += some
    assert delivered == history() == SHOWN
    pages = list(walked(eu, count))
    assert [each for page in pages for each in page] == [entry_id for entry_id, _ in SHOWN]
    assert all(len(page) <= count + 1 for page in pages)
    found, start = [], b"0-0"
    while True:
        start, some, gone = eu.do("XAUTOCLAIM", "s", "g", "d", 0, start, "COUNT", count)
        found += rows(some)
        assert not gone
        if start == b"0-0":
            break
    assert found == SHOWN


def test_commands_by_id_are_about_both(eu: Node) -> None:
    assert len(read(eu, 9)) == 5
    assert rows(eu.do("XCLAIM", "s", "g", "d", 0, "2-1")) == SHOWN[1:3]
    assert eu.do("XCLAIM", "s", "g", "d", 0, "2-1", "JUSTID") == [b"2-1", b"2-1"]
    assert eu.do("XNACK", "s", "g", "FAIL", "IDS", 1, "2-1") == 2
    assert pairs(eu.do("XINFO", "GROUPS", "s")[0])[b"pending"] == 5
    assert eu.do("XACK", "s", "g", "2-1") == 2
    assert pending(eu) == [b"1-1", b"2-2", b"3-1"]
    assert eu.do("XCLAIM", "s", "g", "d", 0, "2-1", "FORCE", "JUSTID") == [b"2-1", b"2-1"]
    assert eu.do("XACKDEL", "s", "g", "DELREF", "IDS", 1, "2-1") == [1]
    assert rows(eu.do("XRANGE", "s", "-", "+")) == [SHOWN[0], *SHOWN[3:]]
    assert pending(eu) == [b"1-1", b"2-2", b"3-1"]


@pytest.mark.parametrize(
    ("command", "reply"), [(("XDEL", "s", "2-1"), 2), (("XDELEX", "s", "IDS", 1, "2-1"), [1])]
)
def test_deleting_by_id_deletes_both(mesh: Mesh, command: tuple[Any, ...], reply: Any) -> None:
    eu, us = mesh.nodes.values()
    read(eu, 9)
    assert eu.do(*command) == reply
    mesh.settle()
    for node in (eu, us):
        assert rows(node.do("XRANGE", "s", "-", "+")) == [SHOWN[0], *SHOWN[3:]]
    assert pending(eu) == [b"1-1", b"2-1", b"2-1", b"2-2", b"3-1"]
    start, some, gone = eu.do("XAUTOCLAIM", "s", "g", "d", 0, "-", "COUNT", 2)
    assert (start, rows(some), gone) == (b"2-2", SHOWN[:1], [b"2-1", b"2-1"])


@pytest.mark.parametrize(("maxlen", "left"), [(4, 4), (3, 3), (2, 2)])
def test_trimming_by_length_may_keep_one_of_them(mesh: Mesh, maxlen: int, left: int) -> None:
    eu, us = mesh.nodes.values()
    assert eu.do("XTRIM", "s", "MAXLEN", maxlen) == 5 - left
    mesh.settle()
    assert rows(eu.do("XRANGE", "s", "-", "+")) == SHOWN[-left:]
    assert rows(us.do("XRANGE", "s", "-", "+")) == SHOWN[-left:]


def test_information_shows_the_same_first_and_last_entry_everywhere() -> None:
    mesh = Mesh(2, xadd_id_uniqueness_mode="liberal")
    for node, value in zip(mesh.nodes.values(), ("eu", "us"), strict=True):
        node.do("XADD", "s", "1-1", "f", value)
    mesh.settle()
    for node in mesh.nodes.values():
        figures = pairs(node.do("XINFO", "STREAM", "s"))
        assert rows([figures[b"first-entry"], figures[b"last-entry"]]) == [
            (b"1-1", b"eu"),
            (b"1-1", b"us"),
        ]


def test_trimming_by_id_and_information(eu: Node) -> None:
    assert eu.do("XLEN", "s") == 5
    info = pairs(eu.do("XINFO", "STREAM", "s", "FULL"))
    assert rows(info[b"entries"]) == SHOWN
    assert pairs(eu.do("XINFO", "STREAM", "s"))[b"length"] == 5
    assert eu.do("AB.COUNT", "s", "2-1", "2-1") == 2
    assert eu.do("XTRIM", "s", "MINID", "2-1") == 1
    assert eu.do("XTRIM", "s", "MINID", "2-2") == 2
    assert rows(eu.do("XRANGE", "s", "-", "+")) == SHOWN[3:]


# -- where each ID can be there once ----------------------------------------------------------


def image(node: Node, key: str = "s") -> StreamImage:
    found = decode_payload(node.do("DUMP", key))
    assert isinstance(found, StreamImage)
    return found


def shown(entry_id: int) -> bytes:
    return b"%d-%d" % (entry_id >> 64, entry_id & (1 << 64) - 1)


def entries(found: StreamImage) -> list[tuple[bytes, bytes]]:
    return [(shown(each), fields[1]) for node in found.nodes for each, fields in node.entries]


def test_a_payload_renumbers_them(eu: Node) -> None:
    assert entries(image(eu)) == list(zip(RENUMBERED, [v for _, v in SHOWN], strict=True))
    assert eu.do("DEBUG", "OBJECT", "s")
    assert eu.do("AB.EQUALIDS", "s") == 2
    assert eu.do("AB.EQUALIDS", "none") == 0


@pytest.mark.parametrize("count", range(6))
def test_a_group_in_a_payload_goes_on_with_the_same_entries(eu: Node, count: int) -> None:
    values = [value for _, value in SHOWN]
    # One of two with one ID comes alone only where another region is heard of late.
    given = [value for _, value in read(eu, count)] if count else []
    found = image(eu)
    (made,) = found.groups
    held = [shown(each.entry_id) for each in made.pending if each.consumer]
    late = [shown(each) for each in made.nacked]
    by_id = dict(entries(found))
    assert [by_id[each] for each in held] == given
    due = [by_id[each] for each in late]
    due += [value for each, value in entries(found) if id_number(each) > made.last_id]
    assert sorted(due) == sorted(set(values) - set(given))


def id_number(text: bytes) -> int:
    ms, _, seq = text.partition(b"-")
    return int(ms) << 64 | int(seq)


@pytest.mark.parametrize("command", ["COPY", "RENAME", "RESTORE"])
def test_moving_keeps_all_entries(mesh: Mesh, command: str) -> None:
    eu, us = mesh.nodes.values()
    given = [value for _, value in read(eu, 2)]
    eu.do("XNACK", "s", "g", "FAIL", "IDS", 1, "1-1")
    payload = eu.do("DUMP", "s")
    words = ("RESTORE", "t", 0, payload) if command == "RESTORE" else (command, "s", "t")
    eu.do(*words)
    mesh.settle()
    due = list(zip(RENUMBERED, [value for _, value in SHOWN], strict=True))
    for node in (eu, us):
        assert rows(node.do("XRANGE", "t", "-", "+")) == due
        assert pairs(node.do("XINFO", "STREAM", "t"))[b"entries-added"] == 5
    if command == "RENAME":  # groups stay behind
        return
    assert len(pending(eu, "t")) >= 2
    words = ("XREADGROUP", "GROUP", "g", "d", "CLAIM", 0, "STREAMS", "t", ">")
    got = [fields[1] for _, fields, *_ in eu.do(*words)[0][1]]
    assert sorted(got) == sorted(value for _, value in SHOWN)
    assert set(given) <= set(got)


def test_where_a_greater_id_is_needed_the_last_id_follows() -> None:
    mesh = Mesh(2, xadd_id_uniqueness_mode="liberal", enable_debug_command="yes")
    eu, us = mesh.nodes.values()
    for node in (eu, us):
        node.do("XADD", "s", "7-7", "f", node.number)
    mesh.settle()
    eu.do("XGROUP", "CREATE", "s", "g", "0")
    read(eu, 9)
    found = image(eu)
    assert (shown(found.last_id), shown(found.groups[0].last_id)) == (b"7-8", b"7-8")
    eu.do("COPY", "s", "t")
    assert not read(eu, 9, "t")
    assert pending(eu, "t") == [b"7-7", b"7-8"]
    assert eu.do("XADD", "t", "7-*", "f", "v") > b"7-8"


def test_where_no_greater_id_is_left_an_error_says_so() -> None:
    mesh = Mesh(2, xadd_id_uniqueness_mode="liberal", enable_debug_command="yes")
    eu, us = mesh.nodes.values()
    greatest = f"{(1 << 64) - 1}-{(1 << 64) - 1}"
    for node in (eu, us):
        node.do("XADD", "s", greatest, "f", node.number)
    mesh.settle()
    for words in (("DUMP", "s"), ("COPY", "s", "t"), ("DEBUG", "OBJECT", "s")):
        with pytest.raises(Exception, match="no greater ID is left"):
            eu.do(*words)
    assert eu.do("EXISTS", "t") == 0
    assert eu.do("XLEN", "s") == 2


@pytest.mark.parametrize("seed", range(25))
def test_random_streams_keep_all_in_payloads_and_copies(seed: int) -> None:
    """What a group has and what it still delivers is the same in a payload and in a copy."""
    chance = random.Random(seed)
    mesh = Mesh(3, xadd_id_uniqueness_mode="liberal")
    nodes = list(mesh.nodes.values())
    nodes[0].do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    mesh.settle()
    eu = nodes[0]
    value = 0
    for _ in range(25):
        node = chance.choice(nodes)
        match chance.randrange(8):
            case 0 | 1 | 2 | 3:
                value += 1
                node.ask(
                    ("XADD", "s", f"{chance.randint(1, 6)}-{chance.randint(1, 3)}", "f", value)
                )
            case 4:
                mesh.settle()
            case 5:
                read(eu, chance.randint(1, 4), consumer=chance.choice("cd"))
            case 6:
                ids = [entry_id for entry_id, _ in rows(node.do("XRANGE", "s", "-", "+"))]
                if ids:
                    node.do("XDEL", "s", chance.choice(ids))
            case 7:
                if ids := pending(eu):
                    words = chance.choice(
                        [("XACK", "s", "g"), ("XNACK", "s", "g", "FAIL", "IDS", 1)]
                    )
                    eu.do(*words, chance.choice(ids))
    mesh.settle()
    before = sorted(value for _, value in rows(eu.do("XRANGE", "s", "-", "+")))
    live = set(before)
    held = dict(held_by(eu, "s"))
    eu.do("COPY", "s", "t")
    found = image(eu)
    assert [v for _, v in entries(found)] == [v for _, v in rows(eu.do("XRANGE", "t", "-", "+"))]
    assert sorted(v for _, v in entries(found)) == before
    assert len({each for each, _ in entries(found)}) == len(before)
    assert dict(held_by(eu, "t")) == held
    assert due_of(eu, "t") == due_of(eu, "s") <= live
    by_id = dict(entries(found))
    (made,) = found.groups
    released = {by_id.get(shown(each)) for each in made.nacked} - {None}
    behind = {value for each, value in entries(found) if id_number(each) > made.last_id}
    taken = {
        by_id[shown(each.entry_id)]: each.consumer
        for each in made.pending
        if each.consumer and shown(each.entry_id) in by_id
    }
    assert taken == {value: owner for value, owner in held.items() if owner}
    assert released | behind >= due_of(eu, "s")


def held_by(node: Node, key: str) -> Iterator[tuple[bytes, bytes]]:
    """What entries that are there hold, and their owners: empty for released ones."""
    stream: Any = node.region.keyspace.databases[0].values[key.encode()]
    each = stream.groups[b"g"]
    for replica_id, some in each.pending.lists.items():
        for entry in some.entries.values():
            found = stream.find_pending(each, entry)
            if found is not None and found[0] == replica_id:
                value = found[1].fragment(found[2]).rstrip(b"\r\n").rpartition(b"\r\n")[2]
                yield value, b"" if entry.consumer is None else entry.consumer.name


def due_of(node: Node, key: str) -> set[bytes]:
    """What the group would still be given here."""
    stream: Any = node.region.keyspace.databases[0].values[key.encode()]
    return {
        block.fragment(at).rstrip(b"\r\n").rpartition(b"\r\n")[2]
        for _, (block, low, high) in stream.spans_for(stream.groups[b"g"])
        for at in range(low, high)
    }
