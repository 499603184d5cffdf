"""KEYS, SCAN, DBSIZE, RANDOMKEY, SWAPDB, FLUSHDB, FLUSHALL."""

from __future__ import annotations

import pytest

from tests.support.region_harness import Harness


@pytest.fixture
def h() -> Harness:
    return Harness()


def scan(h: Harness, *options: object) -> list[bytes]:
    found: list[bytes] = []
    cursor = b"0"
    while True:
        cursor, keys = h.do("SCAN", cursor, *options)
        found += keys
        if cursor == b"0":
            return found


def test_patterns(h: Harness) -> None:
    for key in ("one", "two", "three", "t[x"):
        h.do("SET", key, "v")
    assert sorted(h.do("KEYS", "t*")) == [b"t[x", b"three", b"two"]
    assert h.do("KEYS", "t[hw]?") == [b"two"]
    assert h.do("KEYS", r"t\[x") == [b"t[x"]
    assert len(h.do("KEYS", "*")) == 4


def test_scan_finds_everything_and_filters(h: Harness) -> None:
    for number in range(300):
        h.do("SET", f"string:{number}", "v")
        h.do("XADD", f"stream:{number}", "1-0", "f", "v")
    assert len(scan(h)) == 600
    assert len(scan(h, "COUNT", "7", "MATCH", "stream:*")) == 300
    assert len(scan(h, "TYPE", "STREAM", "COUNT", "1000")) == 300
    assert scan(h, "TYPE", "nonsense") == []
    assert len(h.do("SCAN", "0", "COUNT", "20")[1]) >= 20


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("x",), "ERR invalid cursor"),
        (("-1",), "ERR invalid cursor"),
        (("18446744073709551616",), "ERR invalid cursor"),
        (("0", "COUNT", "0"), "ERR syntax error"),
        (("0", "COUNT", "x"), "ERR value is not an integer or out of range"),
        (("0", "COUNT"), "ERR syntax error"),
        (("0", "BAD", "x"), "ERR syntax error"),
    ],
)
def test_scan_errors(h: Harness, args: tuple[str, ...], text: str) -> None:
    assert h.error("SCAN", *args) == text


def test_keys_past_their_deadline_are_nowhere(h: Harness) -> None:
    h.region.services.active_expire = False
    h.do("SET", "stays", "v")
    for number in range(50):
        h.do("SET", f"goes:{number}", "v", "PX", "10")
    h.advance(10)
    assert h.do("KEYS", "*") == [b"stays"]
    assert {h.do("RANDOMKEY") for _ in range(20)} == {b"stays"}
    assert scan(h) == [b"stays"]
    assert h.do("DBSIZE") == 1
    assert h.region.stats.expired_keys == 50


def test_no_random_key_in_an_empty_database(h: Harness) -> None:
    assert h.raw("RANDOMKEY") == b"$-1\r\n"


def test_swapdb(h: Harness) -> None:
    other = h.connect()
    h.do("SELECT", "1", session=other)
    h.do("SET", "k", "zero", "EX", "100")
    assert h.do("SWAPDB", "0", "1") == b"OK"
    assert h.do("GET", "k") is None
    assert h.do("GET", "k", session=other) == b"zero"
    assert h.do("TTL", "k", session=other) == 100
    assert h.do("SCAN", "0", session=other)[1] == [b"k"]
    assert h.error("SWAPDB", "x", "0") == "ERR invalid first DB index"
    assert h.error("SWAPDB", "0", "x") == "ERR invalid second DB index"
    assert h.error("SWAPDB", str(2**31), "x") == "ERR invalid first DB index"
    assert h.error("SWAPDB", "0", str(-(2**31) - 1)) == "ERR invalid second DB index"
    assert h.error("SWAPDB", "0", "16") == "ERR DB index is out of range"
    for database in h.region.keyspace.databases:
        database.check()


def test_swapdb_serves_blocked_readers(h: Harness) -> None:
    reader = h.connect()
    h.raw("XREAD", "BLOCK", "0", "STREAMS", "s", "0", session=reader)
    h.do("SELECT", "1")
    h.do("XADD", "s", "1-0", "f", "v")
    assert h.received(reader) == b""
    h.do("SWAPDB", "0", "1")
    assert b"1-0" in h.received(reader)


def test_flushing(h: Harness) -> None:
    h.do("SET", "a", "v")
    h.do("SELECT", "1")
    h.do("SET", "b", "v")
    h.do("SET", "c", "v")
    before = h.region.context.changes
    assert h.do("FLUSHDB", "async") == b"OK"
    assert h.region.context.changes - before == 2
    h.do("SELECT", "0")
    assert h.do("DBSIZE") == 1
    assert h.do("FLUSHALL") == b"OK"
    assert h.do("DBSIZE") == 0
    assert h.do("SCAN", "0") == [b"0", []]
    assert h.error("FLUSHALL", "NOW") == "ERR syntax error"
    assert h.error("FLUSHDB", "SYNC", "ASYNC") == "ERR syntax error"
