"""Blocked XREAD and XREADGROUP: waiting, waking, order (specification §4.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Self

import pytest

from anabranch.server.process import is_compiled
from tests.support.streams import BOTH_PROTOCOLS, NOW, Streams, words

READERS = pytest.mark.parametrize(
    ("begin", "new"), [("XREAD", "$"), ("XREADGROUP GROUP g c", ">")], ids=["XREAD", "XREADGROUP"]
)


def _streams(*keys: str) -> Streams:
    """Empty streams with a group g each."""
    s = Streams()
    for key in keys or ("s",):
        s.run(f"XGROUP CREATE {key} g $ MKSTREAM")
    return s


def _entries(key: str, *ids: str) -> str:
    """A reply of one stream as ``shown`` writes it."""
    return f"[['{key}', [{', '.join(_entry(entry_id) for entry_id in ids)}]]]"


def _entry(entry_id: str) -> str:
    return f"['{entry_id}', ['f', 'v']]"


# -- time -------------------------------------------------------------------------------------


@READERS
@BOTH_PROTOCOLS
def test_a_wait_ends_with_null(begin: str, new: str, resp3: bool) -> None:
    """§4.3: BLOCK is in milliseconds."""
    s = _streams()
    reader = s.waits(f"{begin} BLOCK 100 STREAMS s {new}", resp3=resp3)
    s.advance(99)
    assert s.answer(reader) == ""
    s.advance(1)
    assert s.answer(reader) == ("_" if resp3 else "*-1")
    s.fill("s", "1-0")
    assert s.answer(reader) == ""


def test_a_wait_that_begins_as_the_clock_strikes_lasts_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request came 0.3 ms before; a whole millisecond has begun when its wait does."""
    s = _streams()
    reader, clock = s.connect(), s.clock
    begin_us = clock.us
    seen = iter([begin_us + 700])
    with monkeypatch.context() as patch:
        patch.setattr(clock, "now_us", lambda: next(seen, begin_us + 1000))
        assert s.shows("XREAD BLOCK 1 STREAMS s $", reader) == ""
    assert next(seen, None) is None
    s.advance(1)
    assert s.answer(reader) == ""
    s.advance(1)
    assert s.answer(reader) == "*-1"


@READERS
def test_block_zero_waits_for_ever(begin: str, new: str) -> None:
    """§4.3."""
    s = _streams()
    reader = s.waits(f"{begin} BLOCK 0 STREAMS s {new}")
    s.advance(10**10)
    assert s.answer(reader) == ""
    s.fill("s", "1-0")
    assert s.answer(reader) == _entries("s", "1-0")


def test_the_region_says_when_the_next_wait_ends() -> None:
    """§4.3: what the event loop sleeps for."""
    s = _streams()
    assert s.region.keyspace.waiters.next_timer_ms() is None
    s.waits("XREAD BLOCK 0 STREAMS s $")
    assert s.region.keyspace.waiters.next_timer_ms() is None
    s.waits("XREAD BLOCK 300 STREAMS s $")
    first = s.waits("XREAD BLOCK 200 STREAMS s $")
    assert s.region.keyspace.waiters.next_timer_ms() == NOW + 200
    s.region.close_session(first)
    assert s.region.keyspace.waiters.next_timer_ms() == NOW + 300
    s.fill("s", "1-0")
    assert s.region.keyspace.waiters.next_timer_ms() is None


@READERS
@BOTH_PROTOCOLS
def test_nothing_blocks_inside_a_transaction(begin: str, new: str, resp3: bool) -> None:
    """§4.3: null at once."""
    s = _streams()
    session = s.connect(resp3=resp3)
    s.run("MULTI", f"{begin} BLOCK 0 STREAMS s {new}", session=session)
    assert s.shows("EXEC", session) == ("[_]" if resp3 else "[*-1]")
    assert not session.blocked


@READERS
def test_data_that_is_there_is_given_at_once(begin: str, new: str) -> None:
    """§4.3."""
    s = _streams()
    s.fill("s", "1-0")
    reply = s.shows(f"{begin} BLOCK 100 STREAMS s {new if new == '>' else 0}")
    assert reply == _entries("s", "1-0")


def test_a_blocked_connection_does_not_run_what_it_sends_meanwhile() -> None:
    """§4.3: further pipelined commands wait, in order."""
    s = _streams()
    session = s.connect()
    pipeline = ["XLEN s", "XREAD BLOCK 0 STREAMS s $", "XLEN s", "XREAD BLOCK 0 STREAMS s $"]
    s.region.execute(session, [[word.encode() for word in words(line)] for line in pipeline])
    assert s.answer(session) == "0"
    assert s.shows("XLEN s", session) == ""
    s.fill("s", "1-0")
    assert s.answer(session) == f"{_entries('s', '1-0')} 1"
    s.fill("s", "2-0")
    assert s.answer(session) == f"{_entries('s', '2-0')} 2"


def test_a_connection_that_is_gone_waits_no_more() -> None:
    """§4.3."""
    s = _streams()
    first = s.waits("XREADGROUP GROUP g c BLOCK 0 STREAMS s >")
    second = s.waits("XREADGROUP GROUP g d BLOCK 0 STREAMS s >")
    s.region.close_session(first)
    s.fill("s", "1-0")
    assert s.answer(second) == _entries("s", "1-0")
    assert s.pending() == [["1-0", "d", 0, 1]]


# -- what an ID means while waiting -----------------------------------------------------------


def test_dollar_is_resolved_once_when_the_command_blocks() -> None:
    """§4.3."""
    s = Streams()
    s.fill("s", "5-0")
    reader = s.waits("XREAD BLOCK 0 STREAMS s t $ $")
    s.run("MULTI", "XADD s 6-0 f v", "XADD s 7-0 f v", "XADD t 1-0 f v", "EXEC")
    assert s.answer(reader) == f"{_entries('s', '6-0', '7-0')[:-1]}, {_entries('t', '1-0')[1:]}"


def test_plus_is_looked_up_again_on_wake_up() -> None:
    """§4.3."""
    s = Streams()
    reader = s.waits("XREAD BLOCK 0 STREAMS s +")
    s.run("MULTI", "XADD s 6-0 f v", "XADD s 7-0 f v", "EXEC")
    assert s.answer(reader) == _entries("s", "7-0")


def test_a_blocked_reader_on_a_missing_key_gets_everything_of_it() -> None:
    """§4.2: ``$`` of a missing key is 0-0."""
    s = Streams()
    reader = s.waits("XREAD BLOCK 0 STREAMS s $")
    s.run("MULTI", "XADD s 1-0 f v", "XADD s 2-0 f v", "EXEC")
    assert s.answer(reader) == _entries("s", "1-0", "2-0")


def test_a_stream_deleted_and_made_again_is_read_beyond_the_resolved_id() -> None:
    """§4.3."""
    s = Streams()
    s.fill("s", "5-0")
    reader = s.waits("XREAD BLOCK 0 STREAMS s $")
    s.run("DEL s", "XADD s 4-0 f v", "XADD s 5-0 f v")
    assert s.answer(reader) == ""
    s.run("XADD s 5-1 f v")
    assert s.answer(reader) == _entries("s", "5-1")


# -- when -------------------------------------------------------------------------------------


class _Journal(list[bytes]):
    """An outbox that notes in a common list who was written to."""

    def __init__(self, name: str, journal: list[str]) -> None:
        super().__init__()
        self.name = name
        self.journal = journal

    def append(self, data: bytes) -> None:
        self.journal.append(self.name)
        super().append(data)

    def __iadd__(self, parts: Iterable[bytes]) -> Self:
        for data in parts:
            self.append(data)
        return self


@pytest.mark.skipif(is_compiled(), reason="machine code appends to a list without asking its class")
def test_the_writer_is_answered_before_the_readers() -> None:
    """§4.3: XADD's own reply goes first, then the readers in the order in which they blocked."""
    s = Streams()
    journal: list[str] = []
    readers = [s.waits("XREAD BLOCK 0 STREAMS s $") for _ in range(2)]
    for name, session in (("writer", s.session), ("one", readers[0]), ("two", readers[1])):
        session.outbox = _Journal(name, journal)
    s.region.execute(s.session, [[b"XADD", b"s", b"*", b"f", b"v"], [b"XLEN", b"s"]])
    assert journal == ["writer", "one", "two", "writer"]


def test_readers_are_served_after_the_whole_transaction() -> None:
    """§4.3: an add and a delete inside it wake nobody."""
    s = _streams()
    readers = [
        s.waits("XREAD BLOCK 0 STREAMS s $"),
        s.waits("XREADGROUP GROUP g c BLOCK 0 STREAMS s >"),
    ]
    s.run("MULTI", "XADD s 1-0 f v", "XDEL s 1-0", "EXEC")
    assert [s.answer(reader) for reader in readers] == ["", ""]
    s.run("MULTI", "XADD s 2-0 f v", "XADD s 3-0 f v", "XADD s 4-0 f v", "XDEL s 3-0", "EXEC")
    assert [s.answer(reader) for reader in readers] == [_entries("s", "2-0", "4-0")] * 2


def test_an_add_that_trims_itself_away_wakes_nobody() -> None:
    """§4.3."""
    s = _streams()
    readers = [
        s.waits("XREAD BLOCK 0 STREAMS s $"),
        s.waits("XREADGROUP GROUP g c BLOCK 0 STREAMS s >"),
    ]
    s.run("XADD s MAXLEN 0 * f v")
    assert [s.answer(reader) for reader in readers] == ["", ""]


def test_a_duplicate_wakes_nobody() -> None:
    """Idempotency §2."""
    s = Streams()
    s.run("XADD s IDMP p i * f v")
    reader = s.waits("XREAD BLOCK 0 STREAMS s $")
    s.run("XADD s IDMP p i * f v")
    assert s.answer(reader) == ""


def _restore(s: Streams) -> None:
    payload = s.do("DUMP", "other")
    s.do("RESTORE", "s", 0, payload)


BRING: dict[str, Callable[[Streams], object]] = {
    "XADD": lambda s: s.run("XADD s 1-0 f v"),
    "RENAME": lambda s: s.run("RENAME other s"),
    "RENAMENX": lambda s: s.run("RENAMENX other s"),
    "COPY": lambda s: s.run("COPY other s"),
    "RESTORE": _restore,
    "MOVE": lambda s: s.run("RENAME other t", "SELECT 3", "MOVE s 0", "SELECT 0"),
    "SWAPDB": lambda s: s.run("SWAPDB 0 3"),
}


@pytest.mark.parametrize("how", BRING)
def test_whatever_brings_a_stream_to_the_key_wakes_xread(how: str) -> None:
    """§4.3."""
    s = Streams()
    s.fill("other", "1-0")
    s.run("SELECT 3", "XADD s 1-0 f v", "SELECT 0")
    reader = s.waits("XREAD BLOCK 0 STREAMS s 0")
    BRING[how](s)
    assert s.answer(reader) == _entries("s", "1-0")


@pytest.mark.parametrize("how", ["RENAME", "COPY", "SWAPDB"])
def test_a_stream_that_replaces_the_key_wakes_xreadgroup(how: str) -> None:
    """§4.3: where the new one has the group."""
    s = _streams("s", "other")
    s.fill("other", "1-0")
    s.run("SELECT 3", "XGROUP CREATE s g 0 MKSTREAM", "XADD s 1-0 f v", "SELECT 0")
    reader = s.waits("XREADGROUP GROUP g c BLOCK 0 STREAMS s >")
    s.run({"RENAME": "RENAME other s", "COPY": "COPY other s REPLACE", "SWAPDB": "SWAPDB 0 3"}[how])
    assert s.answer(reader) == _entries("s", "1-0")


def test_setid_backwards_does_not_wake_but_counts_at_the_next_wake_up() -> None:
    """§4.3."""
    s = _streams()
    s.fill("s", "1-0", "2-0")
    s.run("XGROUP SETID s g $")
    reader = s.waits("XREADGROUP GROUP g c BLOCK 0 STREAMS s >")
    s.run("XGROUP SETID s g 0")
    assert s.answer(reader) == ""
    s.fill("s", "3-0")
    assert s.answer(reader) == _entries("s", "1-0", "2-0", "3-0")


# -- running again ----------------------------------------------------------------------------


@READERS
def test_a_woken_reader_gets_all_its_keys_in_argument_order(begin: str, new: str) -> None:
    """§4.3: not in the order of arrival."""
    s = _streams("a", "b", "c")
    reader = s.waits(f"{begin} BLOCK 0 STREAMS a b c {new} {new} {new}")
    s.run("MULTI", "XADD c 1-0 f v", "XADD a 1-0 f v", "EXEC")
    assert s.answer(reader) == f"[['a', [{_entry('1-0')}]], ['c', [{_entry('1-0')}]]]"


def test_options_hold_when_a_reader_is_woken() -> None:
    """§4.3: the full command runs again."""
    s = _streams()
    readers = [
        s.waits("XREAD COUNT 1 BLOCK 0 STREAMS s $"),
        s.waits("XREADGROUP GROUP g c COUNT 1 BLOCK 0 NOACK STREAMS s >"),
    ]
    s.run("MULTI", "XADD s 1-0 f v", "XADD s 2-0 f v", "EXEC")
    assert [s.answer(reader) for reader in readers] == [_entries("s", "1-0")] * 2
    assert s.pending() == []
    assert s.group()["last-delivered-id"] == "1-0"


def test_the_protocol_of_a_blocked_reader_is_its_own() -> None:
    """§2.5."""
    s = _streams()
    readers = [
        s.waits("XREAD BLOCK 0 STREAMS s $", resp3=True),
        s.waits("XREADGROUP GROUP g c BLOCK 0 STREAMS s >", resp3=True),
    ]
    s.fill("s", "1-0")
    assert [s.answer(reader) for reader in readers] == [f"{{'s': [{_entry('1-0')}]}}"] * 2


def test_a_reader_stays_in_its_database() -> None:
    """§4.3."""
    s = Streams()
    session = s.connect()
    s.run("SELECT 5", session=session)
    assert s.shows("XREAD BLOCK 0 STREAMS s $", session) == ""
    s.fill("s", "1-0")
    assert s.answer(session) == ""
    s.run("SELECT 5", "XADD s 1-0 f v")
    assert s.answer(session) == _entries("s", "1-0")


# -- fairness ---------------------------------------------------------------------------------


def test_every_xread_gets_the_entry() -> None:
    """§4.3: all eligible waiters."""
    s = Streams()
    s.fill("s", "1-0")
    readers = [s.waits(f"XREAD BLOCK 0 STREAMS s {start}") for start in ("$", "1-0", "5", "9")]
    s.fill("s", "6-0")
    assert [s.answer(reader) for reader in readers] == [_entries("s", "6-0")] * 3 + [""]


def test_the_first_group_reader_takes_all() -> None:
    """§4.3: later ones only what is left; who blocked first comes first."""
    s = _streams()
    readers = [s.waits(f"XREADGROUP GROUP g {name} BLOCK 0 STREAMS s >") for name in "xyz"]
    s.run("MULTI", "XADD s 1-0 f v", "XADD s 2-0 f v", "EXEC")
    assert [s.answer(reader) for reader in readers] == [_entries("s", "1-0", "2-0"), "", ""]
    s.fill("s", "3-0")
    assert [s.answer(reader) for reader in readers] == ["", _entries("s", "3-0"), ""]


def test_with_count_the_rest_is_for_the_next() -> None:
    """§4.3."""
    s = _streams()
    readers = [s.waits(f"XREADGROUP GROUP g {n} COUNT 2 BLOCK 0 STREAMS s >") for n in "xyz"]
    s.run("MULTI", *(f"XADD s {ms}-0 f v" for ms in (1, 2, 3)), "EXEC")
    assert [s.answer(reader) for reader in readers] == [
        _entries("s", "1-0", "2-0"), _entries("s", "3-0"), "",
    ]  # fmt: skip


def test_a_reader_served_and_blocked_again_is_behind_the_others() -> None:
    """§4.3: first come is by the moment of blocking."""
    s = _streams()
    first = s.waits("XREADGROUP GROUP g x BLOCK 0 STREAMS s >")
    second = s.waits("XREADGROUP GROUP g y BLOCK 0 STREAMS s >")
    s.fill("s", "1-0")
    assert s.answer(first) == _entries("s", "1-0")
    assert s.shows("XREADGROUP GROUP g x BLOCK 0 STREAMS s >", first) == ""
    s.fill("s", "2-0")
    assert (s.answer(first), s.answer(second)) == ("", _entries("s", "2-0"))


def test_groups_do_not_compete() -> None:
    """§4.3."""
    s = _streams()
    s.run("XGROUP CREATE s h $")
    readers = [s.waits(f"XREADGROUP GROUP {g} c BLOCK 0 STREAMS s >") for g in ("g", "h")]
    s.fill("s", "1-0")
    assert [s.answer(reader) for reader in readers] == [_entries("s", "1-0")] * 2


def test_a_reader_that_finds_nothing_keeps_its_deadline() -> None:
    """§4.3: it blocks again."""
    s = _streams()
    s.waits("XREADGROUP GROUP g x BLOCK 0 STREAMS s >")
    late = s.waits("XREADGROUP GROUP g y BLOCK 100 STREAMS s >")
    s.advance(60)
    s.fill("s", "1-0")
    assert s.answer(late) == ""
    s.advance(39)
    assert s.answer(late) == ""
    s.advance(1)
    assert s.answer(late) == "*-1"


def test_a_consumer_deleted_while_it_waits_is_made_again_on_delivery() -> None:
    """§4.3."""
    s = _streams()
    reader = s.waits("XREADGROUP GROUP g c BLOCK 0 STREAMS s >")
    s.run("XGROUP DELCONSUMER s g c")
    assert s.answer(reader) == ""
    s.fill("s", "1-0")
    assert s.answer(reader) == _entries("s", "1-0")
    assert s.pending() == [["1-0", "c", 0, 1]]


def test_the_same_key_twice_is_one_wait() -> None:
    """§4.2."""
    s = _streams()
    reader = s.waits("XREAD BLOCK 0 STREAMS s s 0 5")
    s.fill("s", "3-0")
    assert s.answer(reader) == _entries("s", "3-0")
    assert s.region.keyspace.databases[0].waiters == {}
