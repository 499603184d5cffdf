"""DUMP and RESTORE."""

from __future__ import annotations

import pytest

from tests.support.region_harness import Harness

NOW_MS = 1_700_000_000_000


@pytest.fixture
def h() -> Harness:
    return Harness(NOW_MS)


def test_a_stream_survives(h: Harness) -> None:
    for number in range(250):
        h.do("XADD", "s", f"{number + 1}-0", "field", f"value {number}", "n", number)
    h.do("XDEL", "s", "7-0", "8-0")
    h.do("XGROUP", "CREATE", "s", "g", "0")
    h.do("XREADGROUP", "GROUP", "g", "alice", "COUNT", "5", "STREAMS", "s", ">")
    h.do("XREADGROUP", "GROUP", "g", "bob", "COUNT", "5", "STREAMS", "s", ">")
    h.do("XNACK", "s", "g", "FAIL", "IDS", "2", "4-0", "2-0")
    h.do("XADD", "s", "IDMP", "p", "i", "*", "f", "v")
    assert h.do("RESTORE", "t", "0", h.do("DUMP", "s")) == b"OK"
    h.check()
    assert h.do("XRANGE", "t", "-", "+") == h.do("XRANGE", "s", "-", "+")
    full = h.do("XINFO", "STREAM", "s", "FULL", "COUNT", "0")
    assert h.do("XINFO", "STREAM", "t", "FULL", "COUNT", "0") == full
    assert h.do("DUMP", "t") == h.do("DUMP", "s")
    duplicate = h.do("XADD", "t", "IDMP", "p", "i", "*", "f", "v")
    assert duplicate == h.do("XREVRANGE", "s", "+", "-", "COUNT", "1")[0][0]


@pytest.mark.parametrize(
    ("setup", "read"),
    [
        (("SET", "k", b"\x00\xff"), ("GET",)),
        (("RPUSH", "k", "a", "b", "x" * 10_000), ("LRANGE", 0, -1)),
        (("SADD", "k", "a", "2", "c"), ("SMEMBERS",)),
    ],
)
def test_other_values_survive(
    h: Harness, setup: tuple[object, ...], read: tuple[object, ...]
) -> None:
    h.do(*setup)
    h.do("RESTORE", "copy", "0", h.do("DUMP", "k"))
    assert h.do(read[0], "copy", *read[1:]) == h.do(read[0], "k", *read[1:])


def test_deadlines(h: Harness) -> None:
    h.do("SET", "k", "v")
    payload = h.do("DUMP", "k")
    h.do("RESTORE", "relative", "5000", payload)
    assert h.do("PTTL", "relative") == 5000
    h.do("RESTORE", "absolute", NOW_MS + 700, payload, "ABSTTL")
    assert h.do("PTTL", "absolute") == 700
    h.do("RESTORE", "far", "9223372036854775807", payload)
    assert h.do("PEXPIRETIME", "far") == 9223372036854775807


def test_a_payload_that_is_too_old_is_not_restored(h: Harness) -> None:
    h.do("SET", "k", "v")
    payload = h.do("DUMP", "k")
    before = h.region.context.changes
    assert h.do("RESTORE", "new", "1", payload, "ABSTTL") == b"OK"
    assert h.region.context.changes == before
    assert h.do("RESTORE", "k", "1", payload, "ABSTTL", "REPLACE") == b"OK"
    assert h.region.context.changes == before + 1
    assert h.do("DBSIZE") == 0


def test_options(h: Harness) -> None:
    h.do("SET", "k", "v")
    payload = h.do("DUMP", "k")
    assert h.error("RESTORE", "k", "0", payload) == "BUSYKEY Target key name already exists."
    h.do("RESTORE", "k", "0", payload, "replace", "IDLETIME", "100")
    assert h.do("OBJECT", "IDLETIME", "k") == 100
    assert h.do("RESTORE", "k", "0", payload, "REPLACE", "FREQ", "255") == b"OK"
    both = h.error("RESTORE", "k", "0", payload, "FREQ", "1", "IDLETIME", "1")
    assert both == "ERR syntax error"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("k", "-1", ""), "ERR Invalid TTL value, must be >= 0"),
        (("k", "x", ""), "ERR value is not an integer or out of range"),
        (("k", "0", ""), "ERR DUMP payload version or checksum are wrong"),
        (("k", "0", "x" * 30), "ERR DUMP payload version or checksum are wrong"),
        (("k", "0", b"\x63" + bytes(10)), "ERR Bad data format"),
        (
            ("k:1", "0", b"\x0d" + bytes(10)),
            "ERR Bad data format: key 'k:1' is of type hash, and this server has only streams, "
            "strings, lists and sets",
        ),
        (("k", "0", "", "IDLETIME", "-1"), "ERR Invalid IDLETIME value, must be >= 0"),
        (("k", "0", "", "FREQ", "256"), "ERR Invalid FREQ value, must be >= 0 and <= 255"),
        (("k", "0", "", "IDLETIME"), "ERR syntax error"),
    ],
)
def test_errors(h: Harness, args: tuple[object, ...], text: str) -> None:
    assert h.error("RESTORE", *args) == text
