"""XACK, XNACK and XPENDING (specification §5.2-§5.4)."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.stream.entry_id import SEQ_BITS
from tests.support.recording import Recording
from tests.support.streams import INVALID_ID, NOT_INTEGER, SYNTAX, WRONGTYPE, Streams

MAX_DELIVERIES = 2**63 - 1


def _nogroup(key: str, group: str) -> str:
    return f"NOGROUP No such key '{key}' or consumer group '{group}'"


def _pending(last: int = 5) -> Streams:
    """Entries 1-0 ... of which all are pending for c."""
    s = Streams()
    s.count_to("s", last)
    s.run("XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >")
    return s


def _unrecognized(token: str) -> str:
    return f"ERR Unrecognized XNACK option '{token}'"


# -- XACK -------------------------------------------------------------------------------------


def test_xack_counts_what_was_pending() -> None:
    """§5.2: a repeated ID once; ghosts and released entries too."""
    s = _pending()
    s.run("XDEL s 1-0", "XNACK s g FAIL IDS 1 2-0")
    assert s.run("XACK s g 1-0 2-0 3 3-0 9-9") == 3
    assert [row[0] for row in s.pending()] == ["4-0", "5-0"]
    assert s.consumer("c")["pel-count"] == 2
    s.check()


@pytest.mark.parametrize("line", ["XACK none g bad", "XACK s nobody bad"])
def test_xack_without_key_or_group_does_not_look_at_the_ids(line: str) -> None:
    """§5.2."""
    assert _pending().run(line) == 0


def test_xack_with_a_bad_id_acknowledges_nothing() -> None:
    """§2.1, §5.2."""
    s = _pending()
    assert s.fails("XACK s g 1-0 bad") == INVALID_ID
    assert len(s.pending()) == 5


# -- XNACK: refusals --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XNACK k g WHAT IDS 0 x", WRONGTYPE),
        ("XNACK none g WHAT IDS 0 x", _nogroup("none", "g")),
        ("XNACK s nobody WHAT IDS 0 x", _nogroup("s", "nobody")),
        ("XNACK s g WHAT IDS 0 x", "ERR mode must be SILENT, FAIL, or FATAL"),
        ("XNACK s g FAIL IDS 0 x", "ERR numids must be a positive integer"),
        ("XNACK s g FAIL IDS -1 x", "ERR numids must be a positive integer"),
        ("XNACK s g FAIL IDS x 1-0", "ERR numids must be a positive integer"),
        ("XNACK s g FAIL IDS 2147483648 1-0", "ERR numids must be a positive integer"),
        ("XNACK s g FAIL IDS 2147483647 1-0", "ERR number of IDs doesn't match numids"),
        ("XNACK s g FAIL IDS 2 1-0", "ERR number of IDs doesn't match numids"),
        ("XNACK s g FAIL IDS 1 bad RETRYCOUNT x", NOT_INTEGER),
        ("XNACK s g FAIL IDS 1 bad RETRYCOUNT -1", "ERR Invalid RETRYCOUNT value, must be >= 0"),
        ("XNACK s g FAIL IDS 1 bad RETRYCOUNT", _unrecognized("RETRYCOUNT")),
        ("XNACK s g FAIL IDS 1 bad IDS", _unrecognized("IDS")),
        ("XNACK s g FAIL IDS 1 bad what", _unrecognized("what")),
        ("XNACK s g FAIL IDS 1 1-0 2-0", _unrecognized("2-0")),
        ("XNACK s g FAIL FATAL IDS 1 1-0", _unrecognized("FATAL")),
        ("XNACK s g FAIL FORCE FORCE FORCE", "ERR syntax error, expected IDS keyword"),
        ("XNACK s g FAIL RETRYCOUNT 5 FORCE", "ERR syntax error, expected IDS keyword"),
        ("XNACK s g FAIL IDS 1 bad", INVALID_ID),
        ("XNACK s g FAIL IDS 2 1-0 bad FORCE RETRYCOUNT 1", INVALID_ID),
    ],
)
def test_a_wrong_xnack_is_refused(line: str, error: str) -> None:
    """§5.3, in this order."""
    s = _pending()
    s.run("SET k v")
    assert s.fails(line) == error
    assert s.full_group()["nacked-count"] == 0


def test_options_of_xnack_may_come_in_any_order() -> None:
    """§5.3."""
    for rest in (
        "IDS 1 1-0 RETRYCOUNT 7 FORCE",
        "RETRYCOUNT 7 FORCE IDS 1 1-0",
        "FORCE IDS 1 1-0 RETRYCOUNT 7",
    ):
        s = _pending(1)
        assert s.run(f"XNACK s g FAIL {rest}") == 1
        assert s.pending() == [["1-0", "", -1, 7]]


# -- XNACK: what it does ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "of_pending", "of_forced"),
    [
        ("SILENT", 2, 0),
        ("FAIL", 3, 0),
        ("FATAL", MAX_DELIVERIES, MAX_DELIVERIES),
        ("SILENT RETRYCOUNT 9", 9, 9),
        ("FAIL RETRYCOUNT 0", 0, 0),
        ("FATAL RETRYCOUNT 5", 5, 5),
    ],
)
def test_the_delivery_count_of_a_released_entry(
    options: str, of_pending: int, of_forced: int
) -> None:
    """§5.3, the table."""
    s = _pending(1)
    s.fill("s", "2-0")
    s.run("XCLAIM s g c 0 1-0 RETRYCOUNT 3")
    assert s.run(f"XNACK s g {options} FORCE IDS 2 1-0 2-0") == 2
    assert s.pending() == [["1-0", "", -1, of_pending], ["2-0", "", -1, of_forced]]
    assert s.full_group()["nacked-count"] == 2
    assert s.consumer("c")["pel-count"] == 0
    s.check()


def test_silent_does_not_count_below_zero() -> None:
    """§5.3."""
    s = _pending(1)
    for expected in (0, 0):
        assert s.run("XNACK s g SILENT IDS 1 1-0") == 1
        assert s.pending()[0][3] == expected


def test_every_occurrence_counts() -> None:
    """§5.3: and counts down again."""
    s = _pending(1)
    s.run("XCLAIM s g c 0 1-0 RETRYCOUNT 5")
    assert s.run("XNACK s g SILENT IDS 3 1-0 1-0 1-0") == 3
    assert s.pending() == [["1-0", "", -1, 2]]


def test_what_is_not_pending_is_skipped_without_force() -> None:
    """§5.3: FORCE needs the entry to exist."""
    s = _pending(2)
    s.run("XACK s g 1-0")
    assert s.run("XNACK s g FAIL IDS 2 1-0 9-9") == 0
    assert s.run("XNACK s g FAIL IDS 2 1-0 9-9 FORCE") == 1
    assert [row[:2] for row in s.pending()] == [["1-0", ""], ["2-0", "c"]]


def test_a_ghost_may_be_released() -> None:
    """§5.3: what is pending, the entry need not exist."""
    s = _pending(1)
    s.run("XDEL s 1-0")
    assert s.run("XNACK s g FAIL IDS 1 1-0") == 1


def test_one_effect_releases_all_entries_unless_an_id_repeats() -> None:
    s = _pending()
    emitted: list[Any] = []
    s.region.effects.record = Recording(emitted)
    assert s.run("XNACK s g FAIL IDS 3 3-0 1-0 4-0") == 3
    assert s.run("XNACK s g SILENT IDS 4 1-0 3-0 1-0 4-0") == 4
    rows = [[row[0] >> SEQ_BITS for row in effect.rows] for effect in emitted]
    assert rows == [[3, 1, 4], [1, 3], [1, 4]]
    [[_, entries]] = s.run("XREADGROUP GROUP g d CLAIM 99999 STREAMS s >")
    assert [entry[0] for entry in entries] == ["3-0", "1-0", "4-0"]


def test_released_entries_queue_up_in_the_order_of_their_release() -> None:
    """§5.3: released again is at the tail again."""
    s = _pending(4)
    s.run("XNACK s g FAIL IDS 3 3-0 1-0 4-0", "XNACK s g FAIL IDS 1 3-0")
    [[_, entries]] = s.run("XREADGROUP GROUP g d CLAIM 99999 STREAMS s >")
    assert [entry[0] for entry in entries] == ["1-0", "4-0", "3-0"]


def test_xnack_leaves_consumers_times_and_the_group_alone() -> None:
    """§5.3."""
    s = _pending(2)
    before = s.full_group()
    s.advance(50)
    s.run("XNACK s g FAIL IDS 1 1-0")
    after = s.full_group()
    for field in ("seen-time", "active-time"):
        assert after["consumers"]["c"][field] == before["consumers"]["c"][field]
    assert after["last-delivered-id"] == "2-0"
    assert after["pending"][0] == ["1-0", "", 0, 1]


@pytest.mark.parametrize(
    "line",
    [
        "XCLAIM s g d 99999 1-0",
        "XAUTOCLAIM s g d 99999 -",
        "XREADGROUP GROUP g d CLAIM 99999 STREAMS s >",
    ],
)
def test_released_entries_satisfy_every_min_idle_test(line: str) -> None:
    """§5.3."""
    s = _pending(2)
    s.run("XNACK s g FAIL IDS 1 1-0", line)
    assert [row[1] for row in s.pending()] == ["d", "c"]
    assert s.full_group()["nacked-count"] == 0


# -- XPENDING ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XPENDING none g", _nogroup("none", "g")),
        ("XPENDING s nobody", _nogroup("s", "nobody")),
        ("XPENDING none g - + 1", _nogroup("none", "g")),
        ("XPENDING s nobody - + 1", _nogroup("s", "nobody")),
        ("XPENDING s g -", SYNTAX),
        ("XPENDING s g - +", SYNTAX),
        ("XPENDING s g IDLE 5 - + 1 c x", SYNTAX),
        ("XPENDING s g - + 1 c x y z", SYNTAX),
        ("XPENDING s g IDLE 5 -", SYNTAX),
        ("XPENDING s g IDLE 5 - +", SYNTAX),
        # IDLE, count, start, end, then the group
        ("XPENDING none g IDLE x bad bad bad", NOT_INTEGER),
        ("XPENDING none g IDLE 5 bad bad bad", NOT_INTEGER),
        ("XPENDING none g bad bad 1", INVALID_ID),
        ("XPENDING none g - bad 1", INVALID_ID),
        ("XPENDING none g (18446744073709551615-18446744073709551615 bad 1",
         "ERR invalid start ID for the interval"),
        ("XPENDING none g - (0-0 1", "ERR invalid end ID for the interval"),
    ],
)  # fmt: skip
def test_a_wrong_xpending_is_refused(line: str, error: str) -> None:
    """§5.4."""
    assert _pending().fails(line) == error


def test_the_summary_counts_per_consumer_in_name_order() -> None:
    """§5.4: counts are bulk strings, consumers without entries are left out."""
    s = Streams()
    s.count_to("s", 6)
    s.run("XGROUP CREATE s g 0", "XREADGROUP GROUP g b COUNT 3 STREAMS s >")
    s.run("XREADGROUP GROUP g a COUNT 2 STREAMS s >", "XGROUP CREATECONSUMER s g idle")
    assert s.shows("XPENDING s g") == "[5, '1-0', '5-0', [['a', '2'], ['b', '3']]]"
    s.run("XNACK s g FAIL IDS 2 1-0 5-0")
    assert s.shows("XPENDING s g") == "[5, '1-0', '5-0', [['a', '1'], ['b', '2']]]"


def test_the_summary_of_released_entries_alone() -> None:
    """§5.4 (recorded)."""
    s = _pending(1)
    s.run("XNACK s g FAIL IDS 1 1-0")
    assert s.shows("XPENDING s g") == "[1, '1-0', '1-0', []]"


def test_the_list_shows_owner_idle_time_and_deliveries() -> None:
    """§5.4: a released entry has no owner and an idle time of -1."""
    s = _pending(3)
    s.advance(1500)
    s.run("XCLAIM s g d 0 2-0", "XNACK s g FATAL IDS 1 3-0")
    assert s.shows("XPENDING s g - + 10") == (
        f"[['1-0', 'c', 1500, 1], ['2-0', 'd', 0, 2], ['3-0', '', -1, {MAX_DELIVERIES}]]"
    )


@pytest.mark.parametrize(
    ("rest", "ids"),
    [
        ("- + 10", "12345"), ("2 + 10", "2345"), ("- 3 10", "123"), ("(2 (4-0 10", "3"),
        ("- + 2", "12"), ("- + 0", ""), ("- + -5", ""), ("+ - 10", ""),
        ("- + 10 c", "135"), ("- + 2 c", "13"), ("- + 0 c", ""), ("- + 10 d", "2"),
        ("- + 10 nobody", ""), ("IDLE 0 - + 10", "12345"), ("IDLE 100 - + 10", "1345"),
        ("IDLE 101 - + 10", "4"), ("IDLE -5 - + 10", "12345"), ("IDLE 100 - + 10 c", "135"),
        ("IDLE 101 - + 10 c", ""), ("IDLE 100 - + 2", "13"), ("idle 100 3 4 1 c", "3"),
    ],
)  # fmt: skip
def test_the_list_is_filtered(rest: str, ids: str) -> None:
    """§5.4: released entries (here 4-0) pass every IDLE filter."""
    s = _pending(5)
    s.advance(100)
    s.run("XCLAIM s g d 0 2-0", "XNACK s g FAIL IDS 1 4-0")
    assert [row[0] for row in s.run(f"XPENDING s g {rest}")] == [f"{ms}-0" for ms in ids]


@pytest.mark.parametrize("rest", ["- + 10 c x", "- + 10 c x y"])
def test_surplus_behind_the_consumer_is_ignored(rest: str) -> None:
    """§5.4 [Q]: without IDLE, up to nine tokens in all."""
    assert len(_pending(2).run(f"XPENDING s g {rest}")) == 2


def test_idle_times_are_never_negative() -> None:
    """§5.4."""
    s = _pending(1)
    s.clock.us -= 10_000_000
    assert s.pending() == [["1-0", "c", 0, 1]]


def test_xpending_touches_nothing() -> None:
    """§5.7."""
    s = _pending(2)
    before = s.full_group()
    s.advance(10)
    s.run("XPENDING s g", "XPENDING s g - + 10 c")
    assert s.full_group() == before


def test_many_rows_show_owners_of_any_bytes_and_ids_of_any_millisecond() -> None:
    streams = Streams()
    names = [b"a", b"\xff\x00\xe2\r\n", "\u00fc".encode(), b""]
    expected = []
    streams.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for index in range(2500):  # more than are joined at a time
        entry_id = b"%d-%d" % (1 + index // 7, index % 7 * 10**9)
        owner = names[index // 3 % len(names)]
        streams.do("XADD", "s", entry_id, "f", "v")
        streams.do("XREADGROUP", "GROUP", "g", owner, "STREAMS", "s", ">")
        expected.append([entry_id, owner, 0, 1])
    assert streams.do("XPENDING", "s", "g", "-", "+", 9999) == expected
    assert streams.do("XPENDING", "s", "g", "-", "+", 1001) == expected[:1001]
    own = streams.do("XPENDING", "s", "g", "-", "+", 9999, names[1])
    assert own == [row for row in expected if row[1] == names[1]]
