"""Entries that a deleted consumer leaves: other regions deliver them, and nothing waits for others.

XGROUP SETID and XCLAIM FORCE make entries pending again that were acknowledged before. No other
region would deliver them, so they must not hold back the acknowledgements behind them.
"""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.stream.stream import Stream
from tests.support.mesh import Mesh, Node


def read(node: Node, consumer: str, *words: Any) -> list[bytes]:
    reply = node.do("XREADGROUP", "GROUP", "g", consumer, *words, "STREAMS", "s", ">")
    return [entry_id for entry_id, _ in reply[0][1]] if reply else []


def lag(node: Node) -> int:
    (group,) = node.do("XINFO", "GROUPS", "s")
    return int(dict(zip(group[::2], group[1::2], strict=True))[b"lag"])


@pytest.mark.parametrize("how", ["FORCE", "SETID"])
def test_what_was_acknowledged_before_holds_nothing_back(how: str) -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for value in range(4):
        one.do("XADD", "s", "*", "f", value)
    ids = read(one, "c")
    one.do("XACK", "s", "g", *ids)
    mesh.settle()
    if how == "FORCE":
        assert one.do("XCLAIM", "s", "g", "d", 0, ids[0], "FORCE")
    else:
        one.do("XGROUP", "SETID", "s", "g", "0")
        assert read(one, "d", "COUNT", 1) == ids[:1]
    assert one.do("XGROUP", "DELCONSUMER", "s", "g", "d") == 1
    for _ in range(3):
        one.do("XADD", "s", "*", "f", "later")
        one.do("XACK", "s", "g", *read(one, "c"))
        mesh.settle()
        assert lag(two) == 0
    assert read(two, "c") == []


def test_what_was_not_acknowledged_holds_back_what_is_behind_it() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for value in range(4):
        one.do("XADD", "s", "*", "f", value)
    ids = read(one, "c", "COUNT", 3)
    one.do("XACK", "s", "g", ids[0], ids[2])
    one.do("XGROUP", "DELCONSUMER", "s", "g", "c")
    mesh.settle()
    assert lag(two) == 3
    assert read(two, "c")[0] == ids[1]
    two.do("XACK", "s", "g", ids[1])
    mesh.settle()
    assert lag(two) == 0


def test_what_is_trimmed_is_not_kept_in_mind() -> None:
    """Nobody acknowledges; consumers come and go."""
    one = Mesh(1, stream_node_max_entries=3).nodes[1]
    one.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for consumer in range(5):
        for value in range(6):
            one.do("XADD", "s", "*", "f", value)
        assert len(read(one, str(consumer))) == 6
        one.do("XTRIM", "s", "MAXLEN", 3)
        one.do("XGROUP", "DELCONSUMER", "s", "g", consumer)
    stream = one.region.keyspace.databases[0].values[b"s"]
    assert type(stream) is Stream
    assert len(stream.groups[b"g"].runs.discarded[one.replica_id]) == 3
