"""Strings, sets and lists: SET, GET, INCR, SADD, SMEMBERS, LPUSH, RPUSH, LPOP, LRANGE, BLPOP."""

from __future__ import annotations

import time

import pytest

from anabranch.effects import kinds
from anabranch.keyspace.values import SetValue
from tests.support.recording import Recording
from tests.support.region_harness import Harness

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


@pytest.fixture
def h() -> Harness:
    return Harness()


# -- strings ----------------------------------------------------------------------------------


def test_set_conditions_and_old_value(h: Harness) -> None:
    assert h.do("SET", "k", "1", "XX") is None
    assert h.do("SET", "k", "1", "NX") == b"OK"
    assert h.do("SET", "k", "2", "NX") is None
    assert h.do("SET", "k", "3", "NX", "GET") == b"1"
    assert h.do("SET", "k", "4", "XX", "GET") == b"1"
    assert h.do("SET", "new", "5", "GET") is None
    assert h.do("GET", "k") == b"4"


def test_the_log_holds_what_append_and_setrange_add(h: Harness) -> None:
    effects: list[kinds.Effect] = []
    h.do("SET", "k", "x" * 10_000, "EX", "10")
    h.region.effects.record = Recording(effects)
    assert h.do("APPEND", "k", "abc") == 10_003
    assert h.do("SETRANGE", "k", "9998", "yyyyyyy") == 10_005
    assert h.do("SETRANGE", "k", "10007", "z") == 10_008
    assert h.do("SETRANGE", "k", "0", "w") == 10_008
    assert h.do("APPEND", "new", "abc") == 3
    assert effects == [
        kinds.Overwrite(0, b"k", 10_000, b"abc", "append"),
        kinds.Overwrite(0, b"k", 9_998, b"yyyyyyy", "setrange"),
        kinds.Overwrite(0, b"k", 10_007, b"z", "setrange"),
        kinds.Overwrite(0, b"k", 0, b"w", "setrange"),
        kinds.Overwrite(0, b"new", 0, b"abc", "append"),
    ]
    assert h.do("GET", "k") == b"w" + b"x" * 9_997 + b"yyyyyyy\0\0z"
    assert h.do("TTL", "k") == 10


def test_set_and_deadlines(h: Harness) -> None:
    h.do("SET", "k", "v", "EX", "10")
    assert h.do("PTTL", "k") == 10_000
    h.do("SET", "k", "v", "KEEPTTL")
    assert h.do("PTTL", "k") == 10_000
    h.do("SET", "k", "v", "PXAT", h.clock.us // 1000 + 5)
    assert h.do("PTTL", "k") == 5
    h.do("SET", "k", "v")
    assert h.do("PTTL", "k") == -1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("NX", "XX"), "ERR syntax error"),
        (("EX",), "ERR syntax error"),
        (("EX", "1", "PX", "1"), "ERR syntax error"),
        (("EX", "1", "KEEPTTL"), "ERR syntax error"),
        (("KEEPTTL", "EX", "1"), "ERR syntax error"),
        (("EX", "x"), "ERR value is not an integer or out of range"),
        (("EX", "0"), "ERR invalid expire time in 'set' command"),
        (("EX", "9223372036854775807"), "ERR invalid expire time in 'set' command"),
    ],
)
def test_set_errors_change_nothing(h: Harness, options: tuple[str, ...], text: str) -> None:
    assert h.error("SET", "k", "v", *options) == text
    assert h.do("EXISTS", "k") == 0


def test_set_overwrites_a_stream_and_wakes_its_group_readers(h: Harness) -> None:
    h.do("XGROUP", "CREATE", "k", "g", "$", "MKSTREAM")
    reader = h.connect()
    h.raw("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "k", ">", session=reader)
    h.do("SET", "k", "v")
    assert h.received(reader) == b"-%b\r\n" % WRONGTYPE.encode()
    assert h.error("XADD", "k", "*", "f", "v") == WRONGTYPE


def test_incr(h: Harness) -> None:
    assert h.do("INCR", "n") == 1
    h.do("EXPIRE", "n", "10")
    assert h.do("INCR", "n") == 2
    assert h.do("TTL", "n") == 10
    h.do("SET", "n", "9223372036854775807")
    assert h.error("INCR", "n") == "ERR increment or decrement would overflow"
    h.do("SET", "n", "x")
    assert h.error("INCR", "n") == "ERR value is not an integer or out of range"


# -- sets -------------------------------------------------------------------------------------


def test_sets(h: Harness) -> None:
    assert h.do("SADD", "k", "a", "b", "a") == 2
    before = h.region.context.changes
    assert h.do("SADD", "k", "a") == 0
    assert h.region.context.changes == before
    assert sorted(h.do("SMEMBERS", "k")) == [b"a", b"b"]
    assert h.raw("SMEMBERS", "k", session=h.connect(resp3=True)).startswith(b"~2\r\n")


def test_a_set_is_scanned_on_one_page(h: Harness) -> None:
    members = [b"m%d" % number for number in range(30)]
    h.do("SADD", "k", *members)
    assert h.do("SSCAN", "k", "0", "COUNT", "5") == [b"0", sorted(members)]
    assert h.do("SSCAN", "k", "0", "MATCH", "m2?") == [b"0", [b"m2%d" % n for n in range(10)]]
    assert h.do("SSCAN", "nosuch", "0", "nonsense") == [b"0", []]
    for words in (
        ["k", "x"],
        ["k", "0", "TYPE", "set"],
        ["k", "0", "COUNT", "0"],
        ["k", "0", "MATCH"],
    ):
        assert h.error("SSCAN", *words).startswith("ERR ")
    h.do("RPUSH", "l", "a")
    assert h.error("SSCAN", "l", "0").startswith("WRONGTYPE ")


class Compared(bytes):
    """A member that counts how often members are compared by their order."""

    times = 0

    def __lt__(self, other: bytes) -> bool:
        Compared.times += 1
        return super().__lt__(other)


def test_drawing_from_a_large_set_does_not_go_through_it_each_time(h: Harness) -> None:
    h.do("SADD", "k", "a")
    value = h.region.keyspace.databases[0].values[b"k"]
    assert isinstance(value, SetValue)
    value.members = {Compared(b"%d" % number) for number in range(1_000)}
    h.do("SPOP", "k")
    Compared.times = 0
    for _ in range(50):
        h.do("SPOP", "k")
        h.do("SRANDMEMBER", "k")
    assert Compared.times == 0
    assert h.do("SCARD", "k") == 1_000 - 51


def test_random_members_follow_what_is_added_and_removed(h: Harness) -> None:
    h.do("SADD", "k", *range(8))
    assert len(set(h.do("SRANDMEMBER", "k", "3"))) == 3
    h.do("SREM", "k", *range(6))
    h.do("SADD", "k", "8", "0")
    left = {b"0", b"6", b"7", b"8"}
    assert set(h.do("SRANDMEMBER", "k", "100")) == left
    assert set(h.do("SRANDMEMBER", "k", "-200")) == left
    assert {h.do("SPOP", "k") for _ in range(4)} == left
    assert h.do("EXISTS", "k") == 0


# -- lists ------------------------------------------------------------------------------------


def test_lists(h: Harness) -> None:
    assert h.do("LPUSH", "k", "a", "b") == 2
    assert h.do("RPUSH", "k", "c", "d") == 4
    assert h.do("LRANGE", "k", "0", "-1") == [b"b", b"a", b"c", b"d"]
    assert h.do("LRANGE", "k", "-3", "2") == [b"a", b"c"]
    assert h.do("LRANGE", "k", "-100", "100") == [b"b", b"a", b"c", b"d"]
    assert h.do("LRANGE", "k", "3", "1") == []
    assert h.do("LPOP", "k") == b"b"
    assert h.do("LPOP", "k", "0") == []
    assert h.do("LPOP", "k", "9") == [b"a", b"c", b"d"]
    assert h.do("EXISTS", "k") == 0
    assert h.raw("LPOP", "k") == b"$-1\r\n"
    assert h.raw("LPOP", "k", "1") == b"*-1\r\n"


def test_blpop_takes_the_first_list_there_is(h: Harness) -> None:
    h.do("RPUSH", "second", "a", "b")
    assert h.do("BLPOP", "first", "second", "0") == [b"second", b"a"]
    h.do("XADD", "first", "*", "f", "v")
    assert h.error("BLPOP", "first", "second", "0") == WRONGTYPE


def test_blpop_waits(h: Harness) -> None:
    first, second = h.connect(), h.connect()
    assert h.raw("BLPOP", "k", "0", session=first) == b""
    assert h.raw("BLPOP", "other", "k", "0", session=second) == b""
    assert h.do("LPUSH", "k", "a") == 1
    assert h.replies(first) == [[b"k", b"a"]]
    assert h.received(second) == b""
    h.do("XADD", "other", "*", "f", "v")
    assert h.received(second) == b""
    assert h.do("RPUSH", "k", "b", "c") == 2
    assert h.replies(second) == [[b"k", b"b"]]
    assert h.do("LRANGE", "k", "0", "-1") == [b"c"]


def test_blpop_times_out(h: Harness) -> None:
    waiting = h.connect()
    h.raw("BLPOP", "k", "0.0101", session=waiting)
    h.advance(10)
    assert h.received(waiting) == b""
    h.advance(1)
    assert h.received(waiting) == b"*-1\r\n"


@pytest.mark.parametrize(
    ("timeout", "text"),
    [
        ("-1", "ERR timeout is negative"),
        ("x", "ERR timeout is not a float or out of range"),
        ("nan", "ERR timeout is not a float or out of range"),
        ("1_0", "ERR timeout is not a float or out of range"),
        ("1e300", "ERR timeout is out of range"),
        ("inf", "ERR timeout is out of range"),
        ("-inf", "ERR timeout is negative"),
        ("-0x1", "ERR timeout is negative"),
        ("-0.0011", "ERR timeout is negative"),
    ],
)
def test_blpop_timeout_errors(h: Harness, timeout: str, text: str) -> None:
    assert h.error("BLPOP", "k", timeout) == text


@pytest.mark.parametrize("timeout", ["-0.001", "-0x0", "-1e-5", "000000000000"])
def test_a_timeout_that_rounds_up_to_zero_waits_for_ever(h: Harness, timeout: str) -> None:
    waiting = h.connect()
    assert h.raw("BLPOP", "k", timeout, session=waiting) == b""
    h.advance(1_000_000_000)
    assert waiting.waiter is not None


@pytest.mark.parametrize("timeout", ["0x.4p-1", "0.1249", "12.5e-2"])
def test_a_timeout_is_any_number_that_c_reads(h: Harness, timeout: str) -> None:
    waiting = h.connect()
    assert h.raw("BLPOP", "k", timeout, session=waiting) == b""
    h.advance(124)
    assert waiting.waiter is not None
    h.advance(1)
    assert waiting.waiter is None


def test_what_is_no_number_is_refused_in_time_that_follows_its_length(h: Harness) -> None:
    """With the square of the length the long ones take hours, and the others seconds."""
    started = time.process_time()
    for size in (100_000, 5_000):
        for start in ("1", "1.1", "1e0", "0x1", "0x.1", "0x1p0"):
            text = start + start[-1] * size + "x"
            assert h.error("INCRBYFLOAT", "k", text) == "ERR value is not a valid float"
            h.error("BLPOP", "k", text)
    assert time.process_time() - started < 1


def test_keys_somebody_blocks_on(h: Harness) -> None:
    waiters = h.region.keyspace.waiters
    h.do("XGROUP", "CREATE", "k", "g", "$", "MKSTREAM")
    popping, reading = h.connect(), h.connect()
    h.raw("BLPOP", "list", "k2", "0", session=popping)
    assert waiters.blocking_keys() == (2, 0)
    h.raw("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "k", ">", session=reading)
    assert waiters.blocking_keys() == (3, 1)
    h.do("LPUSH", "list", "a")
    h.do("XADD", "k", "*", "f", "v")
    assert waiters.blocking_keys() == (0, 0)


@pytest.mark.parametrize(
    "args",
    [
        ("GET", "s"),
        ("SET", "s", "v", "GET"),
        ("INCR", "s"),
        ("SADD", "s", "a"),
        ("SMEMBERS", "s"),
        ("LPUSH", "s", "a"),
        ("RPUSH", "s", "a"),
        ("LPOP", "s"),
        ("LRANGE", "s", "0", "1"),
    ],
)
def test_wrong_types(h: Harness, args: tuple[str, ...]) -> None:
    h.do("XADD", "s", "*", "f", "v")
    assert h.error(*args) == WRONGTYPE
