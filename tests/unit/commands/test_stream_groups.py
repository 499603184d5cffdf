"""XGROUP (specification §5.1; entries-read: counters §2)."""

from __future__ import annotations

import pytest

from tests.support.streams import INVALID_ID, NOT_INTEGER, Streams

KEY_NEEDED = (
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to "
    "use the MKSTREAM option to create an empty stream automatically."
)
BUSY = "BUSYGROUP Consumer Group name already exists"
NOT_POSITIVE = "ERR value for ENTRIESREAD must be positive or -1"


def _wrong_form(word: str) -> str:
    return f"ERR unknown subcommand or wrong number of arguments for '{word}'. Try XGROUP HELP."


def _nogroup(key: str, group: str) -> str:
    return f"NOGROUP No such consumer group '{group}' for key name '{key}'"


def _five() -> Streams:
    s = Streams()
    s.count_to("s", 5)
    s.run("XGROUP CREATE s g 0")
    return s


@pytest.mark.parametrize(
    ("line", "error"),
    [
        # surplus and unknown options
        ("XGROUP CREATE s h 0 WHAT", _wrong_form("CREATE")),
        ("xgroup Create s h 0 WHAT", _wrong_form("Create")),
        ("XGROUP CREATE s h 0 MKSTREAM WHAT", _wrong_form("CREATE")),
        ("XGROUP CREATE s h 0 ENTRIESREAD", _wrong_form("CREATE")),
        ("XGROUP CREATE s h 0 MKSTREAM ENTRIESREAD", _wrong_form("CREATE")),
        ("XGROUP CREATE s h 0 MKSTREAM ENTRIESREAD 1 MKSTREAM", _wrong_form("CREATE")),
        ("XGROUP CREATE s h 0 ENTRIESREAD 1 ENTRIESREAD 1", _wrong_form("CREATE")),
        ("XGROUP SETID s g 0 MKSTREAM", _wrong_form("SETID")),
        ("XGROUP CREATE none g 8-3 ENTRIESREAD 3 ENTRIESREAD 3", KEY_NEEDED),
        ("XGROUP SETID s nobody 0 ENTRIESREAD 3 ENTRIESREAD 3", _nogroup("s", "nobody")),
        ("XGROUP SETID s g 0 ENTRIESREAD 3 ENTRIESREAD 3", _wrong_form("SETID")),
        ("XGROUP SETID s g 0 ENTRIESREAD", _wrong_form("SETID")),
        ("XGROUP SETID s g 0 ENTRIESREAD 1 WHAT", _wrong_form("SETID")),
        ("xgroup setid s g 0 what", _wrong_form("setid")),
        # ENTRIESREAD
        ("XGROUP CREATE s h 0 ENTRIESREAD x", NOT_INTEGER),
        ("XGROUP CREATE s h 0 ENTRIESREAD -2", NOT_POSITIVE),
        ("XGROUP SETID s g 0 ENTRIESREAD x", NOT_INTEGER),
        ("XGROUP SETID s g 0 ENTRIESREAD -2", NOT_POSITIVE),
        # options, then the key, then the ID
        ("XGROUP CREATE none h bad ENTRIESREAD -2", NOT_POSITIVE),
        ("XGROUP CREATE none h bad", KEY_NEEDED),
        ("XGROUP CREATE none h bad MKSTREAM", INVALID_ID),
        ("XGROUP CREATE s g bad", INVALID_ID),
        ("XGROUP SETID none g bad ENTRIESREAD -2", NOT_POSITIVE),
        ("XGROUP SETID none g bad", KEY_NEEDED),
        ("XGROUP SETID s nobody bad", _nogroup("s", "nobody")),
        ("XGROUP SETID s g bad", INVALID_ID),
        # the key
        ("XGROUP CREATE none h 0", KEY_NEEDED),
        ("XGROUP SETID none h 0", KEY_NEEDED),
        ("XGROUP DESTROY none h", KEY_NEEDED),
        ("XGROUP CREATECONSUMER none h c", KEY_NEEDED),
        ("XGROUP DELCONSUMER none h c", KEY_NEEDED),
        # the group
        ("XGROUP CREATE s g 0", BUSY),
        ("XGROUP CREATE s g 0 MKSTREAM", BUSY),
        ("XGROUP SETID s nobody 0", _nogroup("s", "nobody")),
        ("XGROUP CREATECONSUMER s nobody c", _nogroup("s", "nobody")),
        ("XGROUP DELCONSUMER s nobody c", _nogroup("s", "nobody")),
    ],
)
def test_a_wrong_xgroup_is_refused(line: str, error: str) -> None:
    """§5.1: option errors, then key errors, then the ID."""
    s = _five()
    assert s.fails(line) == error
    assert s.run("EXISTS none") == 0
    assert len(s.run("XINFO GROUPS s")) == 1


def test_mkstream_creates_an_empty_stream_where_there_is_none() -> None:
    """§5.1: harmless on an existing key."""
    s = Streams()
    s.run("XGROUP CREATE s g $ MKSTREAM")
    assert s.info()["length"] == 0
    assert s.group()["last-delivered-id"] == "0-0"
    s.count_to("s", 2)
    s.run("XGROUP CREATE s h $ MKSTREAM")
    assert s.group(name="h")["last-delivered-id"] == "2-0"


def test_dollar_is_the_last_generated_id() -> None:
    """§5.1."""
    s = _five()
    s.run("XDEL s 5-0", "XGROUP CREATE s h $", "XGROUP SETID s g $")
    assert s.group(name="h")["last-delivered-id"] == "5-0"
    assert s.group()["last-delivered-id"] == "5-0"


@pytest.mark.parametrize(
    ("option", "entries_read"),
    [
        ("", None), ("ENTRIESREAD -1", None), ("ENTRIESREAD 0", 0), ("ENTRIESREAD 3", 3),
        ("ENTRIESREAD 5", 5), ("ENTRIESREAD 6", 5), ("ENTRIESREAD 9223372036854775807", 5),
    ],
)  # fmt: skip
def test_entries_read_is_unknown_unless_given_and_never_above_entries_added(
    option: str, entries_read: int | None
) -> None:
    """§5.1, counters §2."""
    s = _five()
    s.run(f"XGROUP CREATE s h 0 {option}", "XGROUP SETID s g 0 ENTRIESREAD 1")
    assert s.group(name="h")["entries-read"] == entries_read
    s.run(f"XGROUP SETID s g 2 {option}")
    assert s.group()["entries-read"] == entries_read


def test_options_of_create_may_come_in_either_order() -> None:
    """§5.1."""
    s = Streams()
    s.run(
        "XGROUP CREATE s g 0 ENTRIESREAD 0 MKSTREAM", "XGROUP CREATE s h 0 MKSTREAM ENTRIESREAD 0"
    )
    assert s.group(name="h")["entries-read"] == 0
    s.run("XGROUP CREATE t g 0 MKSTREAM ENTRIESREAD 9")
    assert s.group("t")["entries-read"] == 0


def test_setid_moves_the_last_delivered_id_only() -> None:
    """§5.1."""
    s = _five()
    s.run("XREADGROUP GROUP g c COUNT 2 STREAMS s >")
    before = s.full_group()
    s.run("XGROUP SETID s g 1-0")
    after = s.full_group()
    assert after["last-delivered-id"] == "1-0"
    for field in ("pending", "consumers", "pel-count"):
        assert after[field] == before[field]


def test_destroy_drops_everything_of_the_group() -> None:
    """§5.1."""
    s = _five()
    s.run("XREADGROUP GROUP g c STREAMS s >")
    assert s.run("XGROUP DESTROY s g") == 1
    assert s.run("XGROUP DESTROY s g") == 0
    assert s.run("XINFO GROUPS s") == []
    s.run("XGROUP CREATE s g 0")
    assert s.pending() == []
    assert s.group()["consumers"] == 0


def test_a_consumer_is_created_once() -> None:
    """§5.1."""
    s = _five()
    assert s.run("XGROUP CREATECONSUMER s g c") == 1
    s.advance(10)
    assert s.run("XGROUP CREATECONSUMER s g c") == 0
    assert s.run("XINFO CONSUMERS s g") == [["name", "c", "pending", 0, "idle", 10, "inactive", -1]]


def test_delconsumer_discards_its_pending_entries() -> None:
    """§5.1: they are not delivered again; released entries survive."""
    s = _five()
    s.run("XREADGROUP GROUP g c COUNT 3 STREAMS s >", "XREADGROUP GROUP g d COUNT 1 STREAMS s >")
    s.run("XNACK s g FAIL IDS 1 2-0")
    assert s.run("XGROUP DELCONSUMER s g c") == 2
    assert s.run("XGROUP DELCONSUMER s g c") == 0
    assert [row[:2] for row in s.pending()] == [["2-0", ""], ["4-0", "d"]]
    assert s.run("XREADGROUP GROUP g d STREAMS s >")[0][1][0][0] == "5-0"
    s.check()


def test_a_name_in_an_error_ends_at_a_nul_byte_and_keeps_to_one_line() -> None:
    """Recorded quirk; §2.1."""
    s = Streams()
    s.fill("s", "1-0")
    error = s.error("XGROUP", "SETID", b"s", b"a\r\nb\x00c", "0")
    assert error == _nogroup("s", "a  b")


def test_help_is_a_list_of_status_lines() -> None:
    """§6: text is free, the first line and the closing pair are not."""
    for name in ("XGROUP", "XINFO", "XIDMP"):
        shown = Streams().shows(f"{name} HELP")
        assert shown.startswith(f"[+{name} <subcommand> [<arg")
        assert "Subcommands are:, +" in shown
        assert "+HELP, +" in shown


def test_a_wrong_type_is_named_before_an_option_that_is_there_twice() -> None:
    s = Streams()
    s.run("SET text v")
    line = "XGROUP CREATE text g 0 MKSTREAM MKSTREAM ENTRIESREAD 1 ENTRIESREAD 1"
    assert s.fails(line) == "WRONGTYPE Operation against a key holding the wrong kind of value"
