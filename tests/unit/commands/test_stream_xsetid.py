"""XSETID and XLEN (specification §3.8, §3.9; counters §1, §7)."""

from __future__ import annotations

import pytest

from tests.support.streams import INVALID_ID, NO_SUCH_KEY, NOT_INTEGER, SYNTAX, WRONGTYPE, Streams

BELOW_GIVEN = "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id"
BELOW_DELETED = "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"
BELOW_TOP = "ERR The ID specified in XSETID is smaller than the target stream top item"
BELOW_LENGTH = "ERR The entries_added specified in XSETID is smaller than the target stream length"


def _five() -> Streams:
    s = Streams()
    s.count_to("s", 5)
    return s


@pytest.mark.parametrize(
    ("rest", "error"),
    [
        ("bad", INVALID_ID),
        ("bad ENTRIESADDED bad", INVALID_ID),
        ("9 ENTRIESADDED x", NOT_INTEGER),
        ("9 ENTRIESADDED -1", "ERR entries_added must be positive"),
        ("9 MAXDELETEDID x", INVALID_ID),
        ("9 MAXDELETEDID 9-1", BELOW_GIVEN),
        ("9 ENTRIESADDED -1 MAXDELETEDID x", "ERR entries_added must be positive"),
        ("9 MAXDELETEDID 9-1 ENTRIESADDED -1", BELOW_GIVEN),
        ("9 WHAT", SYNTAX),
        ("9 ENTRIESADDED", SYNTAX),
        ("9 MAXDELETEDID", SYNTAX),
        ("9 ENTRIESADDED 5 5", SYNTAX),
    ],
)
def test_arguments_are_checked_first(rest: str, error: str) -> None:
    """§3.8, checks 1 to 4."""
    assert Streams().fails(f"XSETID missing {rest}") == error
    assert _five().fails(f"XSETID s {rest}") == error


def test_then_the_key() -> None:
    """§3.8, check 5."""
    s = Streams()
    assert s.fails("XSETID missing 9") == NO_SUCH_KEY
    s.run("SET k v")
    assert s.fails("XSETID k 9") == WRONGTYPE


@pytest.mark.parametrize(
    ("rest", "error"),
    [
        ("4-9", BELOW_TOP),
        ("0", BELOW_TOP),
        ("4-9 ENTRIESADDED 1", BELOW_TOP),
        ("9 ENTRIESADDED 4", BELOW_LENGTH),
        ("9 ENTRIESADDED 0", BELOW_LENGTH),
    ],
)
def test_then_the_entries(rest: str, error: str) -> None:
    """§3.8, checks 7 and 8."""
    assert _five().fails(f"XSETID s {rest}") == error


@pytest.mark.parametrize("emptied", [False, True])
def test_the_id_may_not_be_below_what_was_deleted(emptied: bool) -> None:
    """§3.8, check 6, also for an empty stream and before check 7."""
    s = _five()
    s.run("XDEL s 5-0")
    if emptied:
        s.run("XTRIM s MAXLEN 0")
    assert s.fails("XSETID s 4-9") == BELOW_DELETED
    assert s.fails("XSETID s 1") == BELOW_DELETED
    s.run("XSETID s 5")


def test_the_last_id_may_go_down_to_the_last_live_entry() -> None:
    """§3.8, effects."""
    s = _five()
    s.run("XSETID s 9-9")
    assert s.info()["last-generated-id"] == "9-9"
    s.run("XSETID s 5-0")
    assert s.info()["last-generated-id"] == "5-0"
    assert s.run("XADD s 5-1 f v") == "5-1"


def test_the_last_id_of_an_emptied_stream_may_go_down_to_zero() -> None:
    """§3.8: trimming leaves no trace; new entries then go below the old ones."""
    s = _five()
    s.run("XTRIM s MAXLEN 0", "XSETID s 0")
    assert s.run("XADD s 1-0 f v") == "1-0"
    assert s.ids("s") == ["1-0"]
    s.check()


def test_entries_added_is_set_as_given() -> None:
    """§3.8, counters §7: on an empty stream even 0."""
    s = _five()
    s.run("XSETID s 5 ENTRIESADDED 5")
    s.run("XSETID s 5 ENTRIESADDED 9223372036854775807")
    assert s.info()["entries-added"] == 9223372036854775807
    s.run("XADD s 6 f v")
    assert s.info()["entries-added"] == 9223372036854775807  # saturates, counters §1
    s.run("XTRIM s MAXLEN 0", "XSETID s 6 ENTRIESADDED 0")
    assert s.info()["entries-added"] == 0


def test_max_deleted_id_may_be_lowered_and_zero_is_ignored() -> None:
    """§3.8, effects."""
    s = _five()
    s.run("XDEL s 4-0", "XSETID s 9 MAXDELETEDID 0-0")
    assert s.info()["max-deleted-entry-id"] == "4-0"
    s.run("XSETID s 9 MAXDELETEDID 2-0")
    assert s.info()["max-deleted-entry-id"] == "2-0"
    s.run("XSETID s 9 MAXDELETEDID 9-0")
    assert s.info()["max-deleted-entry-id"] == "9-0"


def test_a_lowered_entries_added_clamps_what_groups_have_read() -> None:
    """§3.8 [N], counters §2."""
    s = _five()
    s.run("XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >", "XGROUP CREATE s u 0")
    s.run("XTRIM s MAXLEN 2", "XSETID s 5 ENTRIESADDED 3")
    assert (s.group()["entries-read"], s.group()["lag"]) == (3, 0)
    assert s.group(name="u")["entries-read"] is None
    s.check()


def test_repeated_options_take_the_last() -> None:
    """§3.8."""
    s = _five()
    s.run("XSETID s 9 ENTRIESADDED 7 ENTRIESADDED 8 MAXDELETEDID 1 MAXDELETEDID 2")
    info = s.info()
    assert (info["entries-added"], info["max-deleted-entry-id"]) == (8, "2-0")


def test_xlen_counts_live_entries() -> None:
    """§3.9."""
    s = _five()
    assert s.run("XLEN missing") == 0
    s.run("XDEL s 2-0")
    assert s.run("XLEN s") == 4
