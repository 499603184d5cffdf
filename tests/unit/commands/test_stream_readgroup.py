"""XREADGROUP: refusals, new entries, histories (specification §4.2)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.recording import Recording
from tests.support.streams import INVALID_ID, NOT_INTEGER, NOW, SYNTAX, WRONGTYPE, Streams

UNBALANCED = (
    "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be "
    "specified."
)
MISSING_GROUP = "ERR Missing GROUP option for XREADGROUP"
IDLE_BAD = "ERR min-idle-time is not an integer or out of range"
MAX_DELIVERIES = 2**63 - 1


def _nogroup(key: str, group: str) -> str:
    return (
        f"NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
    )


def _grouped(last: int = 5) -> Streams:
    s = Streams()
    s.count_to("s", last)
    s.run("XGROUP CREATE s g 0")
    return s


def _ids(reply: list[list[Any]]) -> list[object]:
    """The IDs of a reply of one stream."""
    [[_, entries]] = reply
    return [entry[0] for entry in entries]


@pytest.mark.parametrize(
    ("line", "hits", "misses"),
    [
        ("XREADGROUP GROUP g c STREAMS s >", 2, 0),
        ("XREADGROUP GROUP g c STREAMS s 0", 2, 0),
        ("XREADGROUP GROUP none c STREAMS s >", 1, 0),
        ("XREADGROUP GROUP g c STREAMS s nokey > >", 1, 1),
        ("XACK s g 1-0", 1, 0),
        ("XACK nokey g 1-0", 0, 1),
    ],
)
def test_hits_and_misses_are_counted_as_in_redis(line: str, hits: int, misses: int) -> None:
    s = _grouped()
    s.shows(line)
    assert (s.region.stats.keyspace_hits, s.region.stats.keyspace_misses) == (hits, misses)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XREADGROUP GROUP g c WHAT STREAMS s >", SYNTAX),
        ("XREADGROUP GROUP g c COUNT 5 STREAMS", SYNTAX),
        ("XREADGROUP GROUP g c COUNT 5 BLOCK 5", SYNTAX),
        ("XREADGROUP COUNT 5 COUNT 5 GROUP g", SYNTAX),
        ("XREADGROUP COUNT 5 COUNT 5 COUNT 5 CLAIM", SYNTAX),
        ("XREADGROUP GROUP g c COUNT x STREAMS s >", NOT_INTEGER),
        ("XREADGROUP GROUP g c MAXCOUNT 0 STREAMS s >", "ERR MAXCOUNT must be a positive integer"),
        ("XREADGROUP GROUP g c MAXSIZE 0 STREAMS s >", "ERR MAXSIZE must be a positive integer"),
        ("XREADGROUP GROUP g c BLOCK -1 STREAMS s >", "ERR timeout is negative"),
        ("XREADGROUP GROUP g c CLAIM x STREAMS s >", IDLE_BAD),
        ("XREADGROUP GROUP g c CLAIM 1.5 STREAMS s >", IDLE_BAD),
        (
            "XREADGROUP GROUP g c CLAIM -1 STREAMS s >",
            "ERR min-idle-time must be a positive integer",
        ),
        ("XREADGROUP GROUP g c STREAMS s t >", UNBALANCED),
        ("XREADGROUP GROUP g c NOACK STREAMS s", UNBALANCED),
        ("XREADGROUP COUNT 5 BLOCK 5 STREAMS s", UNBALANCED),
        ("XREADGROUP COUNT 5 BLOCK 5 STREAMS s >", MISSING_GROUP),
        ("XREADGROUP COUNT 6 MAXCOUNT 5 STREAMS s >", MISSING_GROUP),
        (
            "XREADGROUP GROUP g c COUNT 6 MAXCOUNT 5 STREAMS s >",
            "ERR MAXCOUNT must be greater than or equal to COUNT",
        ),
        ("XREADGROUP GROUP g c STREAMS none >", _nogroup("none", "g")),
        ("XREADGROUP GROUP nobody c STREAMS s >", _nogroup("s", "nobody")),
        ("XREADGROUP GROUP g c STREAMS none bad", _nogroup("none", "g")),
        ("XREADGROUP GROUP g c STREAMS k bad", WRONGTYPE),
        ("XREADGROUP GROUP g c STREAMS s none bad >", INVALID_ID),
        ("XREADGROUP GROUP g c STREAMS none s > bad", _nogroup("none", "g")),
        ("XREADGROUP GROUP g c STREAMS s k > >", WRONGTYPE),
        ("XREADGROUP GROUP g c STREAMS s bad", INVALID_ID),
    ],
)
def test_a_wrong_xreadgroup_is_refused_before_anything_is_delivered(line: str, error: str) -> None:
    """§4.2: options, then stream by stream type, key and group, ID."""
    s = _grouped()
    s.run("SET k v")
    assert s.fails(line) == error
    assert s.group()["consumers"] == 0
    assert s.group()["last-delivered-id"] == "0-0"


def test_group_may_come_late_and_repeat() -> None:
    """§4.2: the last wins."""
    s = _grouped()
    s.run("XREADGROUP COUNT 1 GROUP nobody x NOACK GROUP g c STREAMS s >")
    assert list(s.full_group()["consumers"]) == ["c"]


# -- new entries ------------------------------------------------------------------------------


def test_new_entries_become_pending_once_delivered_now() -> None:
    """§4.2."""
    s = _grouped()
    assert _ids(s.run("XREADGROUP GROUP g c COUNT 2 STREAMS s >")) == ["1-0", "2-0"]
    s.advance(7)
    assert _ids(s.run("XREADGROUP GROUP g d STREAMS s >")) == ["3-0", "4-0", "5-0"]
    assert s.pending() == [
        ["1-0", "c", 7, 1], ["2-0", "c", 7, 1],
        ["3-0", "d", 0, 1], ["4-0", "d", 0, 1], ["5-0", "d", 0, 1],
    ]  # fmt: skip
    assert s.group()["last-delivered-id"] == "5-0"
    assert s.run("XREADGROUP GROUP g c STREAMS s >") is None
    s.check()


@pytest.mark.parametrize("count", ["", "COUNT 0 ", "COUNT -5 ", "COUNT 99 "])
def test_a_count_below_one_is_unlimited(count: str) -> None:
    """§4.2."""
    assert len(_ids(_grouped().run(f"XREADGROUP GROUP g c {count}STREAMS s >"))) == 5


def test_noack_leaves_nothing_pending() -> None:
    """§4.2."""
    s = _grouped()
    assert len(_ids(s.run("XREADGROUP GROUP g c NOACK STREAMS s >"))) == 5
    assert s.pending() == []
    assert s.group()["last-delivered-id"] == "5-0"


def test_an_entry_delivered_again_after_setid_changes_hands_and_starts_at_one() -> None:
    """§4.2: also when it was released."""
    s = _grouped(3)
    s.run("XREADGROUP GROUP g c STREAMS s >", "XCLAIM s g c 0 1-0 RETRYCOUNT 9")
    s.run("XNACK s g FATAL IDS 1 2-0")
    s.advance(50)
    s.run("XGROUP SETID s g 0", "XREADGROUP GROUP g d COUNT 2 STREAMS s >")
    assert s.pending() == [["1-0", "d", 0, 1], ["2-0", "d", 0, 1], ["3-0", "c", 50, 1]]
    assert s.full_group()["nacked-count"] == 0
    s.check()


def test_the_last_live_entry_decides_whether_there_is_something_new() -> None:
    """§4.2."""
    s = _grouped(3)
    s.run("XGROUP SETID s g 2", "XDEL s 3-0")
    assert s.run("XREADGROUP GROUP g c STREAMS s >") is None
    s.run("XGROUP SETID s g 9-9")
    s.fill("s", "9-0", "9-9")
    assert s.run("XREADGROUP GROUP g c STREAMS s >") is None
    s.fill("s", "9-10")
    assert _ids(s.run("XREADGROUP GROUP g c STREAMS s >")) == ["9-10"]


def test_deleted_entries_are_not_delivered() -> None:
    """§4.2."""
    s = _grouped()
    s.run("XDEL s 1-0 3-0")
    assert _ids(s.run("XREADGROUP GROUP g c STREAMS s >")) == ["2-0", "4-0", "5-0"]


def test_several_streams_are_served_in_argument_order() -> None:
    """§4.2: streams with nothing are omitted; histories never are."""
    s = Streams()
    for key in ("a", "b", "e"):
        s.run(f"XGROUP CREATE {key} g 0 MKSTREAM")
    s.count_to("a", 2)
    s.count_to("b", 2)
    reply = s.run("XREADGROUP GROUP g c COUNT 1 STREAMS b e a e > > > 0")
    assert reply == [
        ["b", [["1-0", ["f", "v"]]]], ["a", [["1-0", ["f", "v"]]]], ["e", []],
    ]  # fmt: skip


def test_the_same_stream_twice_goes_on_where_it_stopped() -> None:
    """§2.5: the reply carries the key twice."""
    s = _grouped(3)
    reply = s.run("XREADGROUP GROUP g c COUNT 1 STREAMS s s > >")
    assert [(key, entries[0][0]) for key, entries in reply] == [("s", "1-0"), ("s", "2-0")]


def test_the_consumer_is_created_even_when_nothing_is_returned() -> None:
    """§4.2."""
    s = Streams()
    s.run("XGROUP CREATE s g 0 MKSTREAM", "XGROUP CREATE t g 0 MKSTREAM")
    assert s.run("XREADGROUP GROUP g c STREAMS s t > >") is None
    assert [s.group(key)["consumers"] for key in ("s", "t")] == [1, 1]
    assert s.run("XREADGROUP GROUP g d STREAMS s 0") == [["s", []]]
    assert s.group("s")["consumers"] == 2


def test_a_read_or_a_claim_that_gets_nothing_is_seen_and_not_recorded() -> None:
    """Not even the history of an entry that is gone, which has nothing to count as delivered."""
    s = _grouped(1)
    s.run("XREADGROUP GROUP g c STREAMS s >", "XDEL s 1-0")
    recorded: list[Any] = []
    s.region.effects.record = Recording(recorded)
    for line in (
        "XREADGROUP GROUP g c STREAMS s >",
        "XREADGROUP GROUP g c CLAIM 999999 STREAMS s >",
        "XREADGROUP GROUP g c STREAMS s 0",
        "XCLAIM s g c 999999 5-0",
        "XAUTOCLAIM s g c 999999 5-0",
    ):
        s.clock.us += 1_000_000
        s.run(line)
        assert s.full_group()["consumers"]["c"]["seen-time"] == s.clock.us // 1000, line
        assert recorded == [], line


# -- histories --------------------------------------------------------------------------------


def test_a_history_is_this_consumers_pending_entries_beyond_the_id() -> None:
    """§4.2."""
    s = _grouped()
    s.run("XREADGROUP GROUP g c COUNT 2 STREAMS s >", "XREADGROUP GROUP g d COUNT 1 STREAMS s >")
    s.run("XREADGROUP GROUP g c COUNT 1 STREAMS s >")
    assert _ids(s.run("XREADGROUP GROUP g c STREAMS s 0")) == ["1-0", "2-0", "4-0"]
    assert _ids(s.run("XREADGROUP GROUP g c STREAMS s 1-0")) == ["2-0", "4-0"]
    assert _ids(s.run("XREADGROUP GROUP g c COUNT 1 STREAMS s 1")) == ["2-0"]
    assert _ids(s.run("XREADGROUP GROUP g d STREAMS s 0")) == ["3-0"]
    assert s.run("XREADGROUP GROUP g c STREAMS s 4") == [["s", []]]


def test_a_history_counts_a_delivery_of_each_live_entry() -> None:
    """§4.2: time now, count + 1; a deleted one is null and stays as it was."""
    s = _grouped(3)
    s.run("XREADGROUP GROUP g c STREAMS s >", "XDEL s 2-0")
    s.advance(100)
    assert s.run("XREADGROUP GROUP g c STREAMS s 0") == [
        ["s", [["1-0", ["f", "v"]], ["2-0", None], ["3-0", ["f", "v"]]]]
    ]
    assert s.pending() == [["1-0", "c", 0, 2], ["2-0", "c", 100, 1], ["3-0", "c", 0, 2]]


def test_delivery_counts_saturate() -> None:
    """§4.2."""
    s = _grouped(1)
    s.run("XREADGROUP GROUP g c STREAMS s >", f"XCLAIM s g c 0 1-0 RETRYCOUNT {MAX_DELIVERIES}")
    s.run("XREADGROUP GROUP g c STREAMS s 0")
    assert s.pending()[0][3] == MAX_DELIVERIES


def test_released_entries_are_in_nobodys_history() -> None:
    """§4.2."""
    s = _grouped(2)
    s.run("XREADGROUP GROUP g c STREAMS s >", "XNACK s g FAIL IDS 1 1-0")
    assert _ids(s.run("XREADGROUP GROUP g c STREAMS s 0")) == ["2-0"]


def test_a_history_never_blocks_and_ignores_claim_and_noack() -> None:
    """§4.2."""
    s = _grouped(2)
    s.run("XREADGROUP GROUP g c STREAMS s >")
    s.advance(10)
    assert s.run("XREADGROUP GROUP g d BLOCK 0 CLAIM 0 NOACK STREAMS s 0") == [["s", []]]
    assert _ids(s.run("XREADGROUP GROUP g c BLOCK 0 CLAIM 0 NOACK STREAMS s 0")) == ["1-0", "2-0"]
    assert len(s.pending()) == 2
    assert s.run("XREADGROUP GROUP g c STREAMS s 0")[0][1][0] == ["1-0", ["f", "v"]]


def test_the_greatest_id_reads_new_entries() -> None:
    """§4.2 (recorded): Redis keeps ``>`` as the greatest ID, so the ID itself means the same."""
    s = _grouped(1)
    top = "18446744073709551615-18446744073709551615"
    assert _ids(s.run(f"XREADGROUP GROUP g c STREAMS s {top}")) == ["1-0"]
    assert s.run(f"XREADGROUP GROUP g c STREAMS s {top}") is None


# -- claiming ---------------------------------------------------------------------------------


def test_claim_serves_released_then_idle_then_new_entries() -> None:
    """§4.2: released in NACK order, pending by delivery time, then new ones."""
    s = _grouped(7)
    for _ in range(5):
        s.run("XREADGROUP GROUP g c COUNT 1 STREAMS s >")
        s.advance(10)
    s.run("XCLAIM s g c 0 1-0 JUSTID", "XNACK s g FAIL IDS 2 4-0 2-0")
    s.advance(5)
    reply = s.run("XREADGROUP GROUP g d CLAIM 5 STREAMS s >")
    assert reply == [
        ["s", [
            ["4-0", ["f", "v"], NOW + 55, 1],
            ["2-0", ["f", "v"], NOW + 55, 1],
            ["3-0", ["f", "v"], 35, 1],
            ["5-0", ["f", "v"], 15, 1],
            ["1-0", ["f", "v"], 5, 1],
            ["6-0", ["f", "v"], 0, 0],
            ["7-0", ["f", "v"], 0, 0],
        ]]
    ]  # fmt: skip
    assert s.pending() == [[f"{ms}-0", "d", 0, 1 + (ms < 6)] for ms in range(1, 8)]
    s.check()


@pytest.mark.parametrize(("idle", "claimed"), [(100, 1), (101, 0), (99, 1), (0, 1)])
def test_claim_takes_what_is_idle_for_long_enough(idle: int, claimed: int) -> None:
    """§4.2: now - delivery time >= min-idle."""
    s = _grouped(1)
    s.run("XREADGROUP GROUP g c STREAMS s >")
    s.advance(100)
    reply = s.run(f"XREADGROUP GROUP g d CLAIM {idle} STREAMS s >")
    assert reply == ([["s", [["1-0", ["f", "v"], 100, 1]]]] if claimed else None)


def test_entries_delivered_at_one_moment_are_claimed_in_order_of_their_update() -> None:
    """§4.2: ties."""
    s = _grouped(4)
    s.run("XREADGROUP GROUP g c STREAMS s >", "XCLAIM s g c 0 2-0 JUSTID")
    s.advance(5)
    reply = s.run("XREADGROUP GROUP g d CLAIM 5 STREAMS s >")
    assert _ids(reply) == ["1-0", "3-0", "4-0", "2-0"]


def test_claim_passes_over_ghosts_which_stay_pending() -> None:
    """§4.2."""
    s = _grouped(3)
    s.run("XREADGROUP GROUP g c STREAMS s >", "XNACK s g FAIL IDS 1 1-0", "XDEL s 1-0 2-0")
    assert _ids(s.run("XREADGROUP GROUP g d CLAIM 0 COUNT 5 STREAMS s >")) == ["3-0"]
    assert [row[:2] for row in s.pending()] == [["1-0", ""], ["2-0", "c"], ["3-0", "d"]]


@pytest.mark.parametrize(
    ("count", "ids"), [(1, "2"), (2, "21"), (3, "213"), (4, "2134"), (9, "2134"), (0, "2134")]
)
def test_count_bounds_released_idle_and_new_entries_together(count: int, ids: str) -> None:
    """§4.2."""
    s = _grouped(4)
    s.run("XREADGROUP GROUP g c COUNT 2 STREAMS s >", "XNACK s g FAIL IDS 1 2-0")
    reply = s.run(f"XREADGROUP GROUP g d COUNT {count} CLAIM 0 STREAMS s >")
    assert _ids(reply) == [f"{ms}-0" for ms in ids]


def test_claimed_entries_stay_pending_even_with_noack() -> None:
    """§4.2: NOACK is for new entries."""
    s = _grouped(2)
    s.run("XREADGROUP GROUP g c COUNT 1 STREAMS s >")
    assert _ids(s.run("XREADGROUP GROUP g d CLAIM 0 NOACK STREAMS s >")) == ["1-0", "2-0"]
    assert s.pending() == [["1-0", "d", 0, 2]]


def test_claim_is_decided_stream_by_stream() -> None:
    """§4.2: better than Redis, where a history turns it off for later streams."""
    s = _grouped(1)
    s.run("XGROUP CREATE t g 0 MKSTREAM")
    s.fill("t", "1-0")
    s.run("XREADGROUP GROUP g c STREAMS s t > >")
    reply = s.run("XREADGROUP GROUP g d CLAIM 0 STREAMS s t 0 >")
    assert reply == [["s", []], ["t", [["1-0", ["f", "v"], 0, 1]]]]


def test_claiming_from_oneself_counts_too() -> None:
    """§4.2."""
    s = _grouped(1)
    s.run("XREADGROUP GROUP g c STREAMS s >", "XREADGROUP GROUP g c CLAIM 0 STREAMS s >")
    assert s.pending() == [["1-0", "c", 0, 2]]


def test_a_claim_saturates_the_delivery_count() -> None:
    """§4.2."""
    s = _grouped(1)
    s.run("XREADGROUP GROUP g c STREAMS s >", "XNACK s g FATAL IDS 1 1-0")
    reply = s.run("XREADGROUP GROUP g d CLAIM 0 STREAMS s >")
    assert reply[0][1][0][3] == MAX_DELIVERIES
    assert s.pending()[0][3] == MAX_DELIVERIES


def test_an_entry_delivered_in_the_future_is_not_claimed() -> None:
    """§4.2: the clock went backwards."""
    s = _grouped(1)
    s.run("XREADGROUP GROUP g c STREAMS s >")
    s.clock.us -= 50_000
    assert s.run("XREADGROUP GROUP g d CLAIM 1 STREAMS s >") is None
    assert s.run("XREADGROUP GROUP g d CLAIM 0 STREAMS s >") is None
    assert s.pending()[0][2] == 0
