"""What a stream command does besides its reply (specification §7).

Keyspace events, whether a WATCHed key counts as changed, and how far the counter behind
``rdb_changes_since_last_save`` moves.
"""

from __future__ import annotations

import pytest

from tests.support.streams import Streams

# Streams s and e (empty) exist, with group g. Of s, c has 1-0 to 3-0 pending (3-0 a ghost), 4-0
# and 5-0 are new; producer p used iid i for 1-0. Key new does not exist.
ROWS = [
    # line                                        events                        watch changes
    ("XADD s * f v",                              "xadd s",                     True,  1),
    ("XADD new * f v",                            "new new, xadd new",          True,  1),
    ("XADD s NOMKSTREAM * f v",                   "xadd s",                     True,  1),
    ("XADD new NOMKSTREAM * f v",                 "",                           False, 0),
    ("XADD s MAXLEN 2 * f v",                     "xadd s, xtrim s",            True,  1),
    ("XADD s MAXLEN 99 * f v",                    "xadd s",                     True,  1),
    ("XADD new MAXLEN 0 * f v",                   "new new, xadd new, xtrim new", True, 1),
    ("XADD s DELREF MAXLEN 2 * f v",              "xadd s, xtrim s",            True,  1),
    ("XADD s IDMP p other * f v",                 "xadd s",                     True,  1),
    ("XADD s IDMP p i * f v",                     "",                           False, 1),
    ("XADD s IDMP p i MAXLEN 0 * f v",            "",                           False, 1),
    ("XTRIM s MAXLEN 1",                          "xtrim s",                    True,  3),
    ("XTRIM s MAXLEN 1 DELREF",                   "xtrim s",                    True,  3),
    ("XTRIM s MAXLEN 0 ACKED",                    "",                           False, 0),
    ("XTRIM s MAXLEN 99",                         "",                           False, 0),
    ("XTRIM new MAXLEN 1",                        "",                           False, 0),
    ("XDEL s 1-0 4-0 9-9",                        "xdel s",                     True,  2),
    ("XDEL s 9-9",                                "",                           False, 0),
    ("XDEL new 1-0",                              "",                           False, 0),
    ("XDELEX s IDS 2 1-0 4-0",                    "xdel s",                     True,  2),
    ("XDELEX s DELREF IDS 3 1-0 3-0 9-9",         "xdel s",                     True,  2),
    ("XDELEX s DELREF IDS 1 3-0",                 "",                           False, 1),
    ("XDELEX s ACKED IDS 1 1-0",                  "",                           False, 0),
    ("XDELEX s IDS 1 9-9",                        "",                           False, 0),
    ("XDELEX new IDS 1 9-9",                      "",                           False, 0),
    ("XACKDEL s g IDS 2 1-0 2-0",                 "xdel s",                     True,  2),
    ("XACKDEL s g IDS 2 1-0 3-0",                 "xdel s",                     True,  2),
    ("XACKDEL s g IDS 1 3-0",                     "",                           False, 1),
    ("XACKDEL s g IDS 1 4-0",                     "",                           False, 0),
    ("XACKDEL new g IDS 1 4-0",                   "",                           False, 0),
    ("XSETID s 9",                                "xsetid s",                   False, 1),
    ("XSETID s 5",                                "xsetid s",                   False, 1),
    ("XGROUP CREATE s h 0",                       "xgroup-create s",            False, 1),
    ("XGROUP CREATE s h 0 MKSTREAM",              "xgroup-create s",            False, 1),
    ("XGROUP CREATE new h 0 MKSTREAM",            "new new, xgroup-create new", True,  1),
    ("XGROUP SETID s g 0",                        "xgroup-setid s",             False, 1),
    ("XGROUP DESTROY s g",                        "xgroup-destroy s",           False, 1),
    ("XGROUP DESTROY s nobody",                   "",                           False, 0),
    ("XGROUP CREATECONSUMER s g d",               "xgroup-createconsumer s",    False, 1),
    ("XGROUP CREATECONSUMER s g c",               "",                           False, 0),
    ("XGROUP DELCONSUMER s g c",                  "xgroup-delconsumer s",       False, 1),
    ("XGROUP DELCONSUMER s g nobody",             "",                           False, 0),
    ("XREADGROUP GROUP g c STREAMS s >",          "",                           False, 1),
    ("XREADGROUP GROUP g c NOACK STREAMS s >",    "",                           False, 1),
    ("XREADGROUP GROUP g d STREAMS s >",          "xgroup-createconsumer s",    False, 2),
    ("XREADGROUP GROUP g d STREAMS e >",          "xgroup-createconsumer e",    False, 1),
    ("XREADGROUP GROUP g c CLAIM 0 COUNT 1 STREAMS s >", "",                    False, 1),
    ("XREADGROUP GROUP g c CLAIM 0 STREAMS s >",  "",                           False, 1),
    ("XREADGROUP GROUP g c STREAMS s s > >",      "",                           False, 1),
    ("XREADGROUP GROUP g c STREAMS s 0",          "",                           False, 0),
    ("XREADGROUP GROUP g d STREAMS s 0",          "xgroup-createconsumer s",    False, 1),
    ("XREADGROUP GROUP g c STREAMS e 0",          "xgroup-createconsumer e",    False, 1),
    ("XACK s g 1-0 2-0 9-9",                      "",                           False, 2),
    ("XACK s g 9-9",                              "",                           False, 0),
    ("XNACK s g FAIL IDS 3 1-0 2-0 9-9",          "",                           False, 2),
    ("XNACK s g FAIL IDS 1 9-9",                  "",                           False, 0),
    ("XCLAIM s g c 0 1-0 2-0",                    "",                           False, 2),
    ("XCLAIM s g c 0 1-0 3-0 9-9",                "",                           False, 2),
    ("XCLAIM s g d 0 1-0",                        "xgroup-createconsumer s",    False, 2),
    ("XCLAIM s g d 9999 1-0",                     "xgroup-createconsumer s",    False, 1),
    ("XCLAIM s g c 9999 1-0",                     "",                           False, 0),
    ("XCLAIM s g c 0 JUSTID LASTID 9",            "",                           False, 1),
    ("XCLAIM s g c 0 JUSTID LASTID 3",            "",                           False, 0),
    ("XCLAIM s g c 0 1-0 LASTID 1",               "",                           False, 1),
    ("XAUTOCLAIM s g c 0 -",                      "",                           False, 3),
    ("XAUTOCLAIM s g d 9999 -",                   "xgroup-createconsumer s",    False, 2),
    ("XAUTOCLAIM s g c 9999 4",                   "",                           False, 0),
    ("XCFGSET s IDMP-DURATION 5",                 "",                           False, 1),
    ("XCFGSET s IDMP-DURATION 100",               "",                           False, 0),
    ("XIDMP CFGSET s MAXSIZE 5",                  "",                           False, 1),
    ("XIDMPRECORD s p j 2-0",                     "",                           False, 1),
    ("XIDMPRECORD s p i 1-0",                     "",                           False, 0),
    ("XLEN s",                                    "",                           False, 0),
    ("XRANGE s - +",                              "",                           False, 0),
    ("XREAD STREAMS s 0",                         "",                           False, 0),
    ("XPENDING s g",                              "",                           False, 0),
    ("XINFO STREAM s FULL",                       "",                           False, 0),
    # what is refused does nothing
    ("XADD s 1-0 f v",                            "",                           False, 0),
    ("XGROUP CREATE s g 0",                       "",                           False, 0),
    ("XSETID s 1",                                "",                           False, 0),
    ("XREADGROUP GROUP g d STREAMS s none > >",   "keymiss none",               False, 0),
]  # fmt: skip

ALL = pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])


def _setup() -> Streams:
    s = Streams(now_ms=5000)  # young enough for 1-0 not to be an old entry
    s.fill("s", "1-0", "2-0", "3-0")
    s.run("XGROUP CREATE s g 0", "XGROUP CREATE e g 0 MKSTREAM", "XREADGROUP GROUP g c STREAMS s >")
    s.run("XDEL s 3-0", "XIDMPRECORD s p i 1-0")
    s.fill("s", "4-0", "5-0")
    return s


@ALL
def test_the_keyspace_events_of_a_command(row: tuple[str, str, bool, int]) -> None:
    """§7."""
    line, events, _, _ = row
    s = _setup()
    assert ", ".join(s.events_of(lambda: s.shows(line))) == events


@ALL
def test_what_a_command_adds_to_the_changes(row: tuple[str, str, bool, int]) -> None:
    """§7."""
    line, _, _, changes = row
    assert _setup().changes_of(line) == changes


@ALL
def test_whether_a_watched_key_counts_as_changed(row: tuple[str, str, bool, int]) -> None:
    """§7: a transaction then does nothing."""
    line, _, touched, _ = row
    s = _setup()
    watcher = s.connect()
    s.run("WATCH s new e", session=watcher)
    s.shows(line)
    s.run("MULTI", session=watcher)
    assert (s.run("EXEC", session=watcher) is None) == touched


def test_reading_two_streams_counts_for_each() -> None:
    """§7: +1 per stream, however many entries."""
    s = _setup()
    s.fill("e", "1-0", "2-0")
    assert s.changes_of("XREADGROUP GROUP g c STREAMS s e > >") == 3  # and a consumer of e


def test_an_expired_stream_is_an_event_and_a_change_to_those_who_watch() -> None:
    """§7; class x."""
    s = _setup()
    watcher = s.connect()
    s.run("PEXPIRE s 100")
    s.run("WATCH s", session=watcher)
    assert s.events_of(lambda: s.advance(100)) == ["expired s"]
    s.run("MULTI", session=watcher)
    assert s.run("EXEC", session=watcher) is None


def test_forgetting_old_idempotent_ids_is_no_event() -> None:
    """§7, idempotency §5."""
    s = _setup()
    changes = s.region.context.changes
    assert s.events_of(lambda: s.advance(200_000)) == []
    assert s.info()["pids-tracked"] == 0
    assert s.region.context.changes == changes


@pytest.mark.parametrize(
    ("classes", "heard"),
    [
        ("Et", ["xadd"]), ("En", ["new"]), ("EA", ["xadd"]), ("Etn", ["new", "xadd"]),
        ("Kt", ["new"]), ("Eg", []), ("t", []), ("E", []), ("", []),
    ],
)  # fmt: skip
def test_stream_events_are_of_class_t(classes: str, heard: list[str]) -> None:
    """§7: and ``new`` is of class n, which A does not include."""
    s = Streams()
    listener = s.connect()
    s.run("PSUBSCRIBE __key*", session=listener)
    s.run(f"CONFIG SET notify-keyspace-events '{classes}'")
    s.run("XADD new * f v")
    messages = s.answer(listener)
    expected = len(heard) if classes != "Kt" else 1
    assert messages.count("'pmessage'") == expected
    if classes == "Kt":
        assert "'__keyspace@0__:new', 'xadd'" in messages
    else:
        assert all(f"'__keyevent@0__:{event}', 'new'" in messages for event in heard)
