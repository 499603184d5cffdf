"""XCLAIM and XAUTOCLAIM (specification §5.5, §5.6)."""

from __future__ import annotations

import pytest

from tests.support.streams import INVALID_ID, NOW, SYNTAX, WRONGTYPE, Streams

MAX_DELIVERIES = 2**63 - 1
COUNT_ERROR = "ERR COUNT must be > 0"


def _nogroup(key: str, group: str) -> str:
    return f"NOGROUP No such key '{key}' or consumer group '{group}'"


def _pending(last: int = 5, idle: int = 1000) -> Streams:
    """Entries 1-0 ..., all pending for c since ``idle`` ms."""
    s = Streams()
    s.count_to("s", last)
    s.run("XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >")
    s.advance(idle)
    return s


def _owners(s: Streams) -> str:
    """The owners of the pending entries; ``-`` for a released one."""
    return "".join(row[1] or "-" for row in s.pending())


# -- XCLAIM: refusals -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XCLAIM k g d x bad", WRONGTYPE),
        ("XCLAIM none g d x bad", _nogroup("none", "g")),
        ("XCLAIM s nobody d x bad", _nogroup("s", "nobody")),
        ("XCLAIM s g d x bad", "ERR Invalid min-idle-time argument for XCLAIM"),
        ("XCLAIM s g d 0 1-0 IDLE x", "ERR Invalid IDLE option argument for XCLAIM"),
        ("XCLAIM s g d 0 1-0 TIME x", "ERR Invalid TIME option argument for XCLAIM"),
        ("XCLAIM s g d 0 1-0 RETRYCOUNT x", "ERR Invalid RETRYCOUNT option argument for XCLAIM"),
        ("XCLAIM s g d 0 1-0 idle x", "ERR Invalid IDLE option argument for XCLAIM"),
        ("XCLAIM s g d 0 1-0 LASTID x", INVALID_ID),
        ("XCLAIM s g d 0 1-0 bad", "ERR Unrecognized XCLAIM option 'bad'"),
        ("XCLAIM s g d 0 1-0 FORCE 2-0", "ERR Unrecognized XCLAIM option '2-0'"),
        ("XCLAIM s g d 0 1-0 IDLE", "ERR Unrecognized XCLAIM option 'IDLE'"),
        ("XCLAIM s g d 0 1-0 TIME", "ERR Unrecognized XCLAIM option 'TIME'"),
        ("XCLAIM s g d 0 1-0 RETRYCOUNT", "ERR Unrecognized XCLAIM option 'RETRYCOUNT'"),
        ("XCLAIM s g d 0 1-0 LASTID", "ERR Unrecognized XCLAIM option 'LASTID'"),
        ("XCLAIM s g d 0 bad", "ERR Unrecognized XCLAIM option 'bad'"),
    ],
)
def test_a_wrong_xclaim_is_refused(line: str, error: str) -> None:
    """§5.5, in this order."""
    s = _pending()
    s.run("SET k v")
    assert s.fails(line) == error
    assert _owners(s) == "ccccc"
    assert s.group()["consumers"] == 1


# -- XCLAIM: what it does ---------------------------------------------------------------------


def test_xclaim_without_ids_is_legal() -> None:
    """§5.5: the consumer is created all the same."""
    s = _pending()
    assert s.run("XCLAIM s g d 0 JUSTID") == []
    assert s.group()["consumers"] == 2


def test_claimed_entries_are_listed_in_argument_order() -> None:
    """§5.5: a repeated ID is repeated."""
    s = _pending()
    assert s.run("XCLAIM s g d 0 3-0 1-0 3") == [
        ["3-0", ["f", "v"]], ["1-0", ["f", "v"]], ["3-0", ["f", "v"]],
    ]  # fmt: skip
    assert _owners(s) == "dcdcc"
    assert s.run("XCLAIM s g e 0 3-0 1-0 JUSTID") == ["3-0", "1-0"]
    s.check()


@pytest.mark.parametrize(
    ("min_idle", "claimed"), [("1000", True), ("1001", False), ("0", True), ("-5", True)]
)
def test_only_what_is_idle_for_long_enough_is_claimed(min_idle: str, claimed: bool) -> None:
    """§5.5: a negative min-idle is 0; the consumer is created in any case."""
    s = _pending(1)
    assert bool(s.run(f"XCLAIM s g d {min_idle} 1-0")) == claimed
    assert _owners(s) == ("d" if claimed else "c")
    assert s.group()["consumers"] == 2


def test_a_deleted_entry_is_silently_removed_from_the_pending_list() -> None:
    """§5.5, step 1: whatever its idle time, and never reported."""
    s = _pending(2)
    s.run("XDEL s 1-0", "XCLAIM s g c 0 1-0")
    s = _pending(2)
    s.run("XDEL s 1-0")
    assert s.run("XCLAIM s g d 99999 1-0 9-9 FORCE JUSTID") == []
    assert [row[0] for row in s.pending()] == ["2-0"]


def test_force_makes_an_existing_entry_pending() -> None:
    """§5.5, step 2: min-idle is then ignored."""
    s = _pending(2)
    s.run("XACK s g 1-0")
    assert s.run("XCLAIM s g d 99999 1-0 9-9") == []
    assert s.run("XCLAIM s g d 99999 1-0 9-9 FORCE JUSTID") == ["1-0"]
    assert s.pending() == [["1-0", "d", 0, 1], ["2-0", "c", 1000, 1]]


@pytest.mark.parametrize(
    ("options", "of_pending", "of_forced"),
    [
        ("", 2, 2),
        ("JUSTID", 1, 1),
        ("RETRYCOUNT 7", 7, 7),
        ("RETRYCOUNT 7 JUSTID", 7, 7),
        ("RETRYCOUNT 0", 0, 0),
        ("RETRYCOUNT -5", 2, 2),
        ("RETRYCOUNT -5 JUSTID", 1, 1),
    ],
)
def test_the_delivery_count_of_a_claimed_entry(
    options: str, of_pending: int, of_forced: int
) -> None:
    """§5.5, step 4."""
    s = _pending(2)
    s.run("XACK s g 2-0", f"XCLAIM s g d 0 1-0 2-0 FORCE {options}")
    assert [row[3] for row in s.pending()] == [of_pending, of_forced]


def test_the_delivery_count_saturates() -> None:
    """§5.5, step 4."""
    s = _pending(1)
    s.run(f"XCLAIM s g d 0 1-0 RETRYCOUNT {MAX_DELIVERIES}", "XCLAIM s g d 0 1-0")
    assert s.pending()[0][3] == MAX_DELIVERIES


@pytest.mark.parametrize(
    ("options", "delivered"),
    [
        ("", NOW + 1000),
        ("IDLE 300", NOW + 700),
        ("IDLE 0", NOW + 1000),
        ("IDLE -5", NOW + 1000),
        (f"IDLE {NOW + 1000}", 0),
        (f"IDLE {NOW + 1001}", NOW + 1000),
        ("TIME 5", 5),
        ("TIME 0", 0),
        ("TIME -1", NOW + 1000),
        (f"TIME {NOW + 1000}", NOW + 1000),
        (f"TIME {NOW + 1001}", NOW + 1000),
        ("TIME 5 IDLE 300", NOW + 700),
        ("IDLE 300 TIME 5", 5),
    ],
)
def test_the_delivery_time_of_a_claimed_entry(options: str, delivered: int) -> None:
    """§5.5, step 4: what would be negative or in the future is now; the last option counts."""
    s = _pending(1)
    s.run(f"XCLAIM s g d 0 1-0 {options}")
    assert s.full_group()["pending"][0][2] == delivered


def test_lastid_raises_the_last_delivered_id_and_never_lowers_it() -> None:
    """§5.5; entries-read stays: counters §6.12."""
    s = _pending(3)
    s.run("XCLAIM s g c 0 1-0 JUSTID LASTID 2-0")
    assert s.group()["last-delivered-id"] == "3-0"
    s.run("XCLAIM s g c 0 1-0 JUSTID LASTID 9")
    assert s.group()["last-delivered-id"] == "9-0"
    assert s.group()["entries-read"] == 3
    s.run("XCLAIM s g c 0 JUSTID LASTID 9-1")
    assert s.group()["last-delivered-id"] == "9-1"


def test_claiming_from_oneself_is_a_claim() -> None:
    """§5.5."""
    s = _pending(1)
    s.run("XCLAIM s g c 0 1-0")
    assert s.pending() == [["1-0", "c", 0, 2]]
    s.check()


# -- XAUTOCLAIM: refusals ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XAUTOCLAIM none g d x bad COUNT 0", "ERR Invalid min-idle-time argument for XAUTOCLAIM"),
        ("XAUTOCLAIM none g d 0 bad COUNT 0", INVALID_ID),
        ("XAUTOCLAIM none g d 0 - COUNT 0", COUNT_ERROR),
        ("XAUTOCLAIM none g d 0 - COUNT -1", COUNT_ERROR),
        ("XAUTOCLAIM none g d 0 - COUNT x", COUNT_ERROR),
        ("XAUTOCLAIM none g d 0 - COUNT 576460752303423488", COUNT_ERROR),
        ("XAUTOCLAIM none g d 0 - COUNT 9223372036854775807", COUNT_ERROR),
        ("XAUTOCLAIM none g d 0 - COUNT", SYNTAX),
        ("XAUTOCLAIM none g d 0 - WHAT", SYNTAX),
        ("XAUTOCLAIM none g d 0 - JUSTID 5", SYNTAX),
        ("XAUTOCLAIM k g d 0 - COUNT 5", WRONGTYPE),
        ("XAUTOCLAIM none g d 0 -", _nogroup("none", "g")),
        ("XAUTOCLAIM s nobody d 0 -", _nogroup("s", "nobody")),
    ],
)
def test_a_wrong_xautoclaim_is_refused(line: str, error: str) -> None:
    """§5.6, in this order."""
    s = _pending()
    s.run("SET k v")
    assert s.fails(line) == error
    assert s.group()["consumers"] == 1


# -- XAUTOCLAIM: what it does -----------------------------------------------------------------


def test_xautoclaim_takes_what_is_idle_for_long_enough() -> None:
    """§5.6."""
    s = _pending(4)
    s.run("XCLAIM s g c 0 2-0 JUSTID", "XNACK s g FAIL IDS 1 3-0")
    assert s.run("XAUTOCLAIM s g d 1000 -") == [
        "0-0", [["1-0", ["f", "v"]], ["3-0", ["f", "v"]], ["4-0", ["f", "v"]]], [],
    ]  # fmt: skip
    assert _owners(s) == "dcdd"
    assert [row[3] for row in s.pending()] == [2, 1, 2, 2]
    s.check()


def test_justid_leaves_the_delivery_count_alone() -> None:
    """§5.6."""
    s = _pending(2)
    assert s.run("XAUTOCLAIM s g d 0 - JUSTID") == ["0-0", ["1-0", "2-0"], []]
    assert [row[2:] for row in s.pending()] == [[0, 1], [0, 1]]


def test_xautoclaim_goes_on_from_where_it_stopped() -> None:
    """§5.6: next-start-id is the next pending entry; 0-0 at the end."""
    s = _pending(5)
    assert s.run("XAUTOCLAIM s g d 0 - COUNT 2 JUSTID") == ["3-0", ["1-0", "2-0"], []]
    assert s.run("XAUTOCLAIM s g d 0 3-0 COUNT 2 JUSTID") == ["5-0", ["3-0", "4-0"], []]
    assert s.run("XAUTOCLAIM s g d 0 5-0 COUNT 2 JUSTID") == ["0-0", ["5-0"], []]
    assert s.run("XAUTOCLAIM s g d 0 (5-0 COUNT 2 JUSTID") == ["0-0", [], []]
    assert s.run("XAUTOCLAIM s g d 0 - COUNT 5 JUSTID")[0] == "0-0"


def test_a_hundred_entries_unless_told_otherwise() -> None:
    """§5.6."""
    s = _pending(150)
    reply = s.run("XAUTOCLAIM s g d 0 -")
    assert (reply[0], len(reply[1])) == ("101-0", 100)


def test_at_most_ten_entries_are_examined_for_each_that_may_be_reported() -> None:
    """§5.6."""
    s = _pending(35, idle=0)
    assert s.run("XAUTOCLAIM s g d 500 - COUNT 1") == ["11-0", [], []]
    assert s.run("XAUTOCLAIM s g d 500 - COUNT 3") == ["31-0", [], []]
    assert s.run("XAUTOCLAIM s g d 500 - COUNT 4") == ["0-0", [], []]
    assert s.run("XAUTOCLAIM s g d 500 26-0 COUNT 1") == ["0-0", [], []]


def test_ghosts_are_listed_once_and_count() -> None:
    """§5.6: removed regardless of idle time."""
    s = _pending(5)
    s.run("XDEL s 1-0 2-0 4-0")
    assert s.run("XAUTOCLAIM s g d 99999 - COUNT 2") == ["3-0", [], ["1-0", "2-0"]]
    assert s.run("XAUTOCLAIM s g d 0 - COUNT 2 JUSTID") == ["5-0", ["3-0"], ["4-0"]]
    assert [row[0] for row in s.pending()] == ["3-0", "5-0"]
    assert s.run("XAUTOCLAIM s g d 0 -")[2] == []
    s.check()


def test_a_released_ghost_is_purged_too() -> None:
    """§5.6."""
    s = _pending(1)
    s.run("XNACK s g FAIL IDS 1 1-0", "XDEL s 1-0")
    assert s.run("XAUTOCLAIM s g d 99999 -") == ["0-0", [], ["1-0"]]
    assert s.full_group()["nacked-count"] == 0
    s.check()


def test_the_consumer_is_created_even_when_nothing_is_claimed() -> None:
    """§5.5, §5.6."""
    s = _pending(1)
    s.run("XAUTOCLAIM s g d 99999 -")
    assert s.group()["consumers"] == 2


def test_a_negative_min_idle_is_zero() -> None:
    """§5.5, §5.6."""
    s = _pending(1)
    assert s.run("XAUTOCLAIM s g d -99 - JUSTID")[1] == ["1-0"]


def test_an_absurd_count_is_refused_for_want_of_memory() -> None:
    """§5.6; large ones are fine, as nothing is reserved beforehand."""
    s = _pending(1)
    assert s.fails("XAUTOCLAIM s g d 0 - COUNT 576460752303423487") == (
        "ERR Insufficient memory, failed allocating transient memory, COUNT too high."
    )
    assert s.run(f"XAUTOCLAIM s g d 0 - COUNT {2**40} JUSTID")[1] == ["1-0"]
