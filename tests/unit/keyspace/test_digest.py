"""Equal data has equal digests, and only equal data."""

from __future__ import annotations

import pytest

from anabranch.keyspace.digest import keyspace_digest, value_digest
from anabranch.keyspace.values import ListValue, SetValue, StringValue
from tests.support.region_harness import Harness

BASE = [
    ["XADD", "s", "1-0", "f", "v"],
    ["XADD", "s", "2-0", "f", "v"],
    ["XGROUP", "CREATE", "s", "g", "0"],
    ["XREADGROUP", "GROUP", "g", "c", "COUNT", "1", "STREAMS", "s", ">"],
]


def server_with(*commands):
    server = Harness()
    for command in commands:
        server.do(*command)
    return server


def digest(*commands):
    return keyspace_digest(server_with(*commands).region.keyspace)


def test_an_empty_keyspace_has_digest_zero():
    assert digest() == bytes(20)
    assert digest(["SET", "a", "b"], ["DEL", "a"]) == bytes(20)


def test_the_order_of_keys_does_not_matter():
    assert digest(["SET", "a", "1"], ["SET", "b", "2"]) == digest(
        ["SET", "b", "2"], ["SET", "a", "1"]
    )


@pytest.mark.parametrize(
    "change",
    [
        ["XADD", "s", "3-0", "f", "v"],
        ["XDEL", "s", "1-0"],
        ["XSETID", "s", "9-0"],
        ["XGROUP", "CREATE", "s", "h", "0"],
        ["XGROUP", "CREATECONSUMER", "s", "g", "d"],
        ["XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"],
        ["XACK", "s", "g", "1-0"],
        ["XCLAIM", "s", "g", "d", "0", "1-0"],
        ["XNACK", "s", "g", "SILENT", "IDS", "1", "1-0"],
        ["PEXPIRE", "s", "100000"],
        ["RENAME", "s", "t"],
        ["MOVE", "s", "1"],
    ],
)
def test_whatever_clients_can_see_counts(change):
    assert digest(*BASE) != digest(*BASE, change)


def test_how_a_stream_is_kept_does_not_count():
    plain, other = server_with(*BASE), Harness()
    other.do("CONFIG", "SET", "stream-node-max-entries", 1)
    other.advance(100_000)
    for command in BASE:
        other.do(*command)
    assert keyspace_digest(plain.region.keyspace) == keyspace_digest(other.region.keyspace)


def test_values_of_different_types_differ():
    digests = {
        value_digest(value)
        for value in (
            StringValue(b"a"),
            ListValue([b"a"]),
            SetValue([b"a"]),
            ListValue([b"a", b"b"]),
            ListValue([b"b", b"a"]),
            ListValue([b"ab"]),
        )
    }
    assert len(digests) == 6
    assert value_digest(SetValue([b"a", b"b"])) == value_digest(SetValue([b"b", b"a"]))
