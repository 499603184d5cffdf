"""The EXPIRE and TTL families, PERSIST, and keys that go by themselves."""

from __future__ import annotations

import pytest

from tests.support.region_harness import Harness

NOW_MS = 1_700_000_000_000


@pytest.fixture
def h() -> Harness:
    harness = Harness(NOW_MS)
    harness.do("XADD", "s", "1-0", "f", "v")
    return harness


def test_times_are_kept_in_milliseconds(h: Harness) -> None:
    assert h.do("EXPIRE", "s", "10") == 1
    assert h.do("PTTL", "s") == 10_000
    h.clock.us += 1_400_000
    assert h.do("PTTL", "s") == 8600
    assert h.do("TTL", "s") == 9
    assert h.do("PEXPIRETIME", "s") == NOW_MS + 10_000
    assert h.do("EXPIRETIME", "s") == (NOW_MS + 10_000) // 1000


def test_absolute_times(h: Harness) -> None:
    assert h.do("EXPIREAT", "s", NOW_MS // 1000 + 5) == 1
    assert h.do("PTTL", "s") == 5000
    assert h.do("PEXPIREAT", "s", "9223372036854775807") == 1
    assert h.do("PEXPIRETIME", "s") == 9223372036854775807


def test_no_deadline_and_no_key(h: Harness) -> None:
    for command in ("TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"):
        assert h.do(command, "s") == -1
        assert h.do(command, "missing") == -2
    assert h.do("EXPIRE", "missing", "10") == 0


@pytest.mark.parametrize(
    ("current", "option", "new", "result"),
    [
        (None, "NX", 100, 1),
        (50, "NX", 100, 0),
        (None, "XX", 100, 0),
        (50, "XX", 100, 1),
        (None, "GT", 100, 0),
        (50, "GT", 100, 1),
        (50, "GT", 50, 0),
        (None, "LT", 100, 1),
        (50, "LT", 100, 0),
        (50, "LT", 49, 1),
    ],
)
def test_conditions(h: Harness, current: int | None, option: str, new: int, result: int) -> None:
    if current is not None:
        h.do("EXPIRE", "s", current)
    assert h.do("EXPIRE", "s", new, option) == result
    expected = new if result else -1 if current is None else current
    assert h.do("TTL", "s") == expected


def test_a_time_that_has_passed_deletes_at_once(h: Harness) -> None:
    before = h.region.context.changes
    assert h.do("PEXPIREAT", "s", NOW_MS) == 1
    assert h.region.context.changes - before == 1
    assert h.do("EXISTS", "s") == 0
    assert h.region.stats.expired_keys == 0


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("EXPIRE", "s", "9223372036854775807"), "ERR invalid expire time in 'expire' command"),
        (("EXPIRE", "s", "-9223372036854775808"), "ERR invalid expire time in 'expire' command"),
        (("PEXPIRE", "s", "9223372036854775807"), "ERR invalid expire time in 'pexpire' command"),
        (("EXPIRE", "s", "1.5"), "ERR value is not an integer or out of range"),
        (("EXPIRE", "missing", "1", "BAD"), "ERR Unsupported option BAD"),
        (
            ("EXPIRE", "s", "1", "GT", "LT"),
            "ERR GT and LT options at the same time are not compatible",
        ),
    ],
)
def test_errors(h: Harness, args: tuple[str, ...], text: str) -> None:
    assert h.error(*args) == text


def test_persist(h: Harness) -> None:
    assert h.do("PERSIST", "s") == 0
    h.do("EXPIRE", "s", "10")
    assert h.do("PERSIST", "s") == 1
    assert h.do("TTL", "s") == -1


def test_keys_go_in_the_background(h: Harness) -> None:
    for number in range(3000):
        h.do("SET", f"k{number}", "v", "PX", "10")
    h.advance(10)
    assert list(h.region.keyspace.databases[0].values) == [b"s"]
    assert h.region.stats.expired_keys == 3000


def test_a_key_is_invisible_before_it_is_removed(h: Harness) -> None:
    h.do("PEXPIRE", "s", "10")
    h.clock.us += 10_000
    assert h.do("EXISTS", "s") == 0
    assert h.do("XLEN", "s") == 0


def test_writing_does_not_change_the_deadline(h: Harness) -> None:
    h.do("PEXPIRE", "s", "1000")
    h.do("XADD", "s", "2-0", "f", "v")
    h.do("XDEL", "s", "1-0", "2-0")
    assert h.do("PTTL", "s") == 1000


def test_blocked_group_readers_are_told_that_the_key_is_gone(h: Harness) -> None:
    h.do("XGROUP", "CREATE", "s", "g", "$")
    h.do("PEXPIRE", "s", "100")
    reader = h.connect()
    h.raw("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">", session=reader)
    h.advance(99)
    assert h.received(reader) == b""
    h.advance(1)
    assert h.received(reader).startswith(b"-NOGROUP")
