"""When an entry opens a node (stream-commands §3.3): slots, dead or live, and bytes."""

from __future__ import annotations

import pytest

from tests.support.region_harness import Harness


def nodes(server: Harness) -> int:
    """What XINFO calls radix-tree-keys."""
    reply = server.do("XINFO", "STREAM", "s")
    return int(reply[reply.index(b"radix-tree-keys") + 1])


def fill(server: Harness, first: int, last: int, value: str = "v") -> None:
    for ms in range(first, last + 1):
        server.do("XADD", "s", f"{ms}-0", "f", value)


@pytest.mark.parametrize(
    ("limit", "entries", "count"), [(1, 3, 3), (2, 5, 3), (7, 7, 1), (7, 8, 2)]
)
def test_a_node_holds_so_many_slots(limit: int, entries: int, count: int) -> None:
    server = Harness()
    server.do("CONFIG", "SET", "stream-node-max-entries", limit)
    fill(server, 1, entries)
    assert nodes(server) == count


def test_a_deleted_entry_keeps_its_slot() -> None:
    server = Harness()
    server.do("CONFIG", "SET", "stream-node-max-entries", 3)
    fill(server, 1, 3)
    server.do("XDEL", "s", "2-0")
    fill(server, 4, 4)
    assert nodes(server) == 2


def test_no_limit_of_entries_makes_one_node() -> None:
    server = Harness()
    server.do("CONFIG", "SET", "stream-node-max-entries", 0, "stream-node-max-bytes", 0)
    fill(server, 1, 500)
    assert nodes(server) == 1


def test_bytes_end_a_node_before_its_slots_do() -> None:
    server = Harness()
    server.do("CONFIG", "SET", "stream-node-max-bytes", 4096)
    fill(server, 1, 100, "x" * 200)
    assert 4 <= nodes(server) <= 6  # about twenty entries of some two hundred bytes each
    server.do("DEL", "s")
    server.do("CONFIG", "SET", "stream-node-max-bytes", 0)
    fill(server, 1, 100, "x" * 200)
    assert nodes(server) == 1
