"""Order per key: entries with an equal field are in flight one at a time, in the order of IDs."""

from __future__ import annotations

import pytest

from anabranch.engine.session import Session
from anabranch.stream.groups.ordering import value_of
from tests.support.streams import Streams, as_map

PAST_MAX = 9_223_372_036_854_775_807


class Keyed(Streams):
    """A group with ``key-field k``; entries are added as ``1a``: ID and key, or ``1`` without."""

    def __init__(self, *policies: str, entries: str = "") -> None:
        super().__init__(enable_debug_command="yes")
        self.run("XGROUP CREATE s g 0 MKSTREAM")
        self.run(f"AB.POLICY SET PATTERN * key-field k {' '.join(policies)}")
        self.add(entries)

    def add(self, entries: str) -> None:
        for each in entries.split():
            number, key = each.rstrip("abc"), each.lstrip("0123456789")
            field = f"k {key}" if key else "other a"
            self.run(f"XADD s {number}-0 n {number} {field}")

    def read(self, options: str = "", consumer: str = "ann", key: str = "s") -> str:
        """The numbers that a read gives."""
        reply = self.run(f"XREADGROUP GROUP g {consumer} {options} STREAMS {key} >")
        return " ".join(entry[0][:-2] for _, entries in reply or [] for entry in entries)

    def blocked(self, consumer: str = "bob") -> Session:
        return self.waits(f"XREADGROUP GROUP g {consumer} BLOCK 0 STREAMS s >")

    def waiting(self) -> str:
        return " ".join(row[0][:-2] for row in self.pending() if row[1] == "")

    def passes(self, ms: int) -> None:
        for _ in range(ms // 50):
            self.advance(50)

    def halted(self) -> list[list[object]]:
        return [[row[1], row[3], row[5]] for row in self.run("AB.SKIP LIST s g")]


def test_entries_of_a_key_are_in_flight_one_at_a_time_and_others_overtake() -> None:
    w = Keyed(entries="1a 2a 3b 4 5a 6")
    assert w.read() == "1 3 4 6"
    assert w.waiting() == "2 5"
    assert w.read(consumer="bob") == ""
    w.run("XACK s g 3-0 4-0")
    assert w.read(consumer="bob") == ""
    w.run("XACK s g 1-0")
    assert w.read(consumer="bob") == "2"
    w.run("XNACK s g FAIL IDS 1 2-0")
    assert w.read() == "2"
    w.run("XACK s g 2-0")
    assert w.read() == "5"
    w.check()


def test_what_waits_is_pending_without_a_consumer_and_not_in_the_lag() -> None:
    w = Keyed(entries="1a 2a 3a")
    w.read("COUNT 1")
    assert as_map(w.run("XINFO GROUPS s")[0])["lag"] == 2
    w.read("COUNT 1", "bob")
    assert w.run("XPENDING s g - + 9") == [
        ["1-0", "ann", 0, 1],
        ["2-0", "", -1, 0],
        ["3-0", "", -1, 0],
    ]
    facts = as_map(w.run("XINFO GROUPS s")[0])
    assert (facts["entries-read"], facts["lag"], facts["pending"]) == (3, 0, 3)


@pytest.mark.parametrize(
    "line",
    [
        "XACK s g 1-0",
        "XACKDEL s g IDS 1 1-0",
        "XDELEX s DELREF IDS 1 1-0",
        "XTRIM s MAXLEN 1 DELREF",
        "XGROUP DELCONSUMER s g ann",
        "XNACK s g FATAL IDS 1 1-0",
        "XGROUP SETID s g 1-0",
    ],
)
def test_a_blocked_reader_gets_the_next_one_of_a_key(line: str) -> None:
    w = Keyed("dead-letter dead", entries="1a 2a")
    assert w.read() == "1"
    reader = w.blocked()
    if "SETID" in line:  # what was in flight was deleted in the meantime
        w.run("XACK s g 2-0", "XDEL s 1-0")
        w.run("XACK s g 1-0")
    w.run(line)
    assert "2-0" in w.answer(reader)
    w.check()


def test_a_lease_that_ends_gives_the_entry_to_others_and_not_its_key() -> None:
    w = Keyed("lease time:1s", entries="1a 2a")
    assert w.read() == "1"
    reader = w.blocked()
    w.passes(900)
    assert w.answer(reader) == ""
    w.passes(200)
    assert "1-0" in (answer := w.answer(reader))
    assert "2-0" not in answer


def test_a_key_waits_while_its_entry_waits_for_the_next_attempt() -> None:
    w = Keyed("backoff 1s", entries="1a 2a 3b")
    assert w.read() == "1 3"
    w.run("XNACK s g FAIL IDS 1 1-0")
    reader = w.blocked()
    w.passes(900)
    assert w.read() == ""
    assert w.answer(reader) == ""
    w.passes(200)
    assert "1-0" in w.answer(reader)
    w.run("XACK s g 1-0")
    assert w.read() == "2"


@pytest.mark.parametrize(
    "line",
    [
        "XCLAIM s g bob 0 2-0",
        "XCLAIM s g bob 0 2-0 FORCE",
        "XCLAIM s g bob 0 2-0 JUSTID",
        "XCLAIM s g bob 0 3-0 FORCE",
        "XAUTOCLAIM s g bob 0 2-0",
        "XREADGROUP GROUP g bob CLAIM 50000 STREAMS s >",
    ],
)
def test_what_waits_cannot_be_claimed(line: str) -> None:
    w = Keyed(entries="1a 2a")
    w.read()
    w.add("3a")
    w.run(line)
    assert [row[0] for row in w.pending() if row[1] == "bob"] == []
    assert w.read() == ""
    w.check()


def test_what_is_in_flight_can_be_claimed() -> None:
    w = Keyed(entries="1a 2a 3b")
    w.read()
    assert [row[0] for row in w.run("XCLAIM s g bob 0 1-0")] == ["1-0"]
    assert [row[0] for row in w.run("XAUTOCLAIM s g eve 0 0")[1]] == ["1-0", "3-0"]
    w.run("XACK s g 1-0")
    reply = w.run("XREADGROUP GROUP g bob CLAIM 0 STREAMS s >")
    assert [row[0] for row in reply[0][1]] == ["2-0", "3-0"]
    w.check()


def test_force_makes_pending_what_is_in_its_turn() -> None:
    w = Keyed(entries="1a 2a")
    w.read()
    w.run("XACK s g 1-0")
    assert [row[0] for row in w.run("XCLAIM s g bob 0 1-0 2-0 FORCE")] == ["1-0"]
    assert w.waiting() == "2"
    w.run("XACK s g 1-0", "XNACK s g SILENT IDS 1 1-0 FORCE")
    assert w.read() == "1"


def test_without_receipts_entries_come_in_order() -> None:
    w = Keyed(entries="1a 2a 3b 4a")
    assert w.read("COUNT 2") == "1 3"
    w.add("5c 6c")
    assert w.read("NOACK", "bob") == "5 6"
    w.run("XACK s g 1-0")
    assert w.read("NOACK", "bob") == "2"
    assert w.read("NOACK", "bob") == "4"
    assert [row[0] for row in w.pending()] == ["3-0"]
    w.check()


def test_a_consumer_reads_its_history_as_ever() -> None:
    w = Keyed(entries="1a 2a 3b")
    w.read()
    reply = w.run("XREADGROUP GROUP g ann STREAMS s 0")
    assert [row[0] for row in reply[0][1]] == ["1-0", "3-0"]
    assert w.read(consumer="bob") == ""


def test_count_maxcount_and_room_are_kept() -> None:
    w = Keyed("max-pending consumer:2", entries="1a 2a 3b 4c 5 6")
    assert w.read("COUNT 1") == "1"
    assert w.read() == "3"
    reader = w.blocked("ann")
    assert w.read("MAXCOUNT 1", "bob") == "4"
    w.run("XACK s g 1-0")
    assert "2-0" in w.answer(reader)


def test_new_entries_have_their_share_beside_those_that_fail() -> None:
    w = Keyed(entries="1a 2b 3 4 5 6")
    assert w.read("COUNT 2") == "1 2"
    w.run("XNACK s g FAIL IDS 2 1-0 2-0")
    assert w.read("COUNT 2") == "1 3"
    w.run("XNACK s g FAIL IDS 1 1-0")
    assert w.read("COUNT 4") == "2 1 4 5"


def test_no_more_wait_than_key_waiting_allows() -> None:
    w = Keyed("key-waiting 2", entries="1a 2a 3a 4a 5b")
    assert w.read() == "1"
    assert w.waiting() == "2 3"
    assert as_map(w.run("XINFO GROUPS s")[0])["lag"] == 2
    reader = w.blocked()
    w.add("6b")
    assert w.answer(reader) == ""
    w.run("XACK s g 1-0")
    answer = w.answer(reader)
    assert "2-0" in answer
    assert "5-0" in answer
    assert w.read() == ""
    assert w.waiting() == "3 4"
    w.check()


def test_one_read_looks_at_a_limited_number_and_a_blocked_one_goes_on() -> None:
    w = Keyed()
    for number in range(1, 2502):
        w.do("XADD", "s", f"{number}-0", "k", "a")
    w.add("2502b")
    assert w.read("COUNT 10") == "1"
    assert len(w.waiting().split()) == 1000
    reader = w.connect()
    w.raw(*"XREADGROUP GROUP g bob COUNT 10 BLOCK 0 STREAMS s >".split(), session=reader)
    w.passes(100)
    assert "2502-0" in w.answer(reader)
    w.check()


def test_many_pending_entries_are_looked_at_in_steps() -> None:
    w = Keyed()
    w.run("AB.POLICY DEL PATTERN *")
    for number in range(1, 11_001):
        w.do("XADD", "s", f"{number}-0", "k", number)
    w.read()
    w.add("20000a")
    w.run("AB.POLICY SET s key-field k")
    w.run("XADD s 20001-0 k 10", "XADD s 20002-0 k 11000")
    assert "try again" in w.fails("AB.SKIP LIST s g")
    assert w.read() == ""
    assert w.read(consumer="bob") == "20000"
    assert w.waiting() == "20001 20002"
    w.check()


def test_a_blocked_reader_waits_for_these_steps() -> None:
    w = Keyed()
    w.run("AB.POLICY DEL PATTERN *")
    for number in range(1, 11_001):
        w.do("XADD", "s", f"{number}-0", "k", number)
    w.read()
    w.run("AB.POLICY SET s key-field k", "XADD s 20001-0 k 10", "XADD s 20002-0 k new")
    reader = w.blocked()
    w.passes(100)
    assert "20002-0" in w.answer(reader)


def test_what_was_in_flight_before_the_policy_is_waited_for() -> None:
    w = Keyed()
    w.run("AB.POLICY DEL PATTERN *")
    w.add("1a 2a 3a 4b")
    assert w.read("COUNT 2") == "1 2"
    w.run("AB.POLICY SET s key-field k")
    assert w.read(consumer="bob") == "4"
    w.run("XACK s g 1-0")
    assert w.read(consumer="bob") == ""
    w.run("XACK s g 2-0")
    assert w.read(consumer="bob") == "3"
    w.check()


def test_without_the_policy_what_waits_is_released() -> None:
    w = Keyed(entries="1a 2a")
    w.read()
    w.run("AB.POLICY DEL PATTERN *", "AB.POLICY SET s redeliver first")
    assert w.read(consumer="bob") == "2"
    w.check()


# -- poison -----------------------------------------------------------------------------------


def test_a_key_goes_on_after_a_dead_letter() -> None:
    w = Keyed("max-deliveries 1 dead-letter dead", entries="1a 2a")
    w.read()
    w.run("XNACK s g FAIL IDS 1 1-0")
    assert w.run("XLEN dead") == 1
    assert w.read() == "2"
    assert w.halted() == []


HALT = "max-deliveries 1 dead-letter dead on-poison halt"


def test_a_dead_letter_stops_its_key_until_it_is_skipped() -> None:
    w = Keyed(HALT, entries="1a 2a 3b 4a 5b")
    assert w.read() == "1 3"
    events = w.events_of(lambda: w.run("XNACK s g FAIL IDS 2 1-0 3-0"))
    assert events.count("xhalt s") == 2
    assert w.run("XLEN dead") == 2
    assert w.read() == ""
    assert w.halted() == [["a", "1-0", 2], ["b", "3-0", 1]]
    assert len(w.run("AB.SKIP LIST s g COUNT 1")) == 1
    assert w.run("XPENDING s g - + 1") == [["1-0", "", -1, PAST_MAX]]
    reader = w.blocked()
    assert w.run("AB.SKIP s g a a c") == 1
    assert "2-0" in w.answer(reader)
    assert w.halted() == [["b", "3-0", 1]]
    assert w.run("XLEN dead") == 2
    assert "policy_halted:2" in w.run("INFO policies")
    facts = as_map(as_map(w.run("AB.INFO s"))["groups"][0])
    assert (facts["halted-keys"], facts["released"]) == (1, 3)
    w.check()


def test_redriven_it_is_tried_once_more() -> None:
    w = Keyed(HALT, entries="1a 2a")
    w.read()
    w.run("XNACK s g FAIL IDS 1 1-0")
    reader = w.blocked()
    assert as_map(w.run("AB.REDRIVE dead"))["done"] == 1
    assert "1-0" in w.answer(reader)
    assert w.halted() == []
    w.run("XACK s g 1-0")
    assert w.read() == "2"


def test_redriven_after_it_was_skipped_it_comes_late() -> None:
    w = Keyed(HALT, entries="1a 2a 3a")
    w.read()
    w.run("XNACK s g FAIL IDS 1 1-0", "AB.SKIP s g a")
    assert w.read() == "2"
    w.run("AB.REDRIVE dead")
    assert w.read() == ""
    w.run("XACK s g 2-0")
    assert w.read() == "1"


@pytest.mark.parametrize("line", ["XDEL s 1-0", "XTRIM s MAXLEN 1", "XACK s g 1-0"])
def test_a_key_goes_on_without_its_poison(line: str) -> None:
    w = Keyed(HALT, entries="1a 2a")
    w.read()
    w.run("XNACK s g FAIL IDS 1 1-0")
    reader = w.blocked()
    w.run(line)
    assert "2-0" in w.answer(reader)
    assert w.halted() == []
    assert [row[0] for row in w.pending()] == ["2-0"]
    w.check()


def test_deleted_poison_that_had_waited_stops_nothing() -> None:
    w = Keyed("on-poison halt", entries="1a 2a 3a")
    w.read()
    w.run("XNACK s g FATAL IDS 1 2-0", "XTRIM s MAXLEN 1")
    reader = w.blocked()
    w.run("XACK s g 1-0")
    w.passes(100)
    assert "3-0" in w.answer(reader)
    assert w.halted() == []


def test_poison_behind_deleted_poison_is_listed_before_anybody_reads() -> None:
    w = Keyed("on-poison halt", entries="1a 2a 3a")
    w.read()
    w.run("XNACK s g FATAL IDS 2 2-0 3-0", "XTRIM s MAXLEN 1", "XACK s g 1-0")
    assert "3-0" in str(w.halted())
    assert w.run("AB.SKIP s g a") == 1
    assert w.halted() == []


def test_what_nobody_orders_stops_nothing() -> None:
    w = Keyed(HALT, entries="1 2a 3")
    w.read("COUNT 1")
    w.run("XNACK s g FAIL IDS 1 1-0")
    assert w.halted() == []
    assert w.read() == "2 3"
    assert [row[0] for row in w.pending()] == ["2-0", "3-0"]


@pytest.mark.parametrize(
    "line",
    [
        "XCLAIM s g bob 0 1-0",
        "XCLAIM s g bob 0 1-0 JUSTID",
        "XAUTOCLAIM s g bob 0 0",
        "XREADGROUP GROUP g bob CLAIM 0 STREAMS s >",
        "XNACK s g FAIL IDS 1 1-0",
        "XNACK s g FATAL IDS 1 1-0",
    ],
)
def test_nobody_else_gets_the_poison_and_it_is_copied_once(line: str) -> None:
    w = Keyed(HALT, entries="1a 2a")
    w.read()
    w.run("XNACK s g FATAL IDS 1 1-0", "XCFGSET dead IDMP-DURATION 1", "DEL dead")
    w.run(line)
    assert w.halted() == [["a", "1-0", 1]]
    assert w.run("EXISTS dead") == 0
    assert w.waiting() == "1 2"


def test_a_key_stops_without_a_stream_of_dead_letters_too() -> None:
    w = Keyed("on-poison halt", entries="1a 2a")
    w.read()
    w.run("XNACK s g FATAL IDS 1 1-0")
    assert w.halted() == [["a", "1-0", 1]]
    assert "policy_given_up:0" in w.run("INFO policies")


def test_poison_that_cannot_be_copied_stops_its_key_and_is_tried_again() -> None:
    w = Keyed(HALT, entries="1a 2a")
    w.run("SET dead text")
    w.read()
    w.run("XNACK s g FAIL IDS 1 1-0")
    assert w.read() == ""
    w.run("DEL dead")
    assert w.read() == ""
    assert w.run("XLEN dead") == 1
    assert w.halted() == [["a", "1-0", 1]]


def test_a_group_that_skips_goes_on_with_what_another_rule_has_stopped() -> None:
    w = Keyed(HALT, entries="1a 2a")
    w.read()
    w.run("XNACK s g FAIL IDS 1 1-0", "AB.POLICY SET PATTERN * on-poison skip")
    w.read()
    assert w.read() == "2"
    assert w.run("XLEN dead") == 1


# -- where it is kept -------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["DEBUG RELOAD", "RENAME s t", "COPY s t", "RESTORE"])
def test_order_and_poison_stay_over(line: str) -> None:
    w = Keyed(HALT, entries="1a 2a 3b 4b 5")
    assert w.read("COUNT 2") == "1 3"
    w.read("COUNT 1")
    w.run("XNACK s g FAIL IDS 1 1-0")
    if line == "RESTORE":
        w.do("RESTORE", "t", 0, w.do("DUMP", "s"))
    else:
        w.run(line)
    key = "s" if "RELOAD" in line else "t"
    assert w.read(key=key) == ""
    assert [row[1] for row in w.run(f"AB.SKIP LIST {key} g")] == ["a"]
    w.run(f"XACK {key} g 3-0", f"AB.SKIP {key} g a")
    assert w.read(key=key) == "4 2"
    w.check()


def test_deleted_entries_that_waited_are_not_pending_any_more() -> None:
    w = Keyed(entries="1a 2a 3a 4a")
    assert w.read() == "1"
    w.run("XDEL s 3-0", "XACK s g 1-0", "XTRIM s MAXLEN 1")
    assert w.read() == "4"
    assert w.read() == ""
    assert [row[0] for row in w.pending()] == ["4-0"]
    w.check()


@pytest.mark.parametrize("line", ["XDEL s 2-0", "XDELEX s KEEPREF IDS 1 2-0"])
def test_a_deleted_entry_that_waited_makes_room_for_others_to_wait(line: str) -> None:
    w = Keyed("key-waiting 1", entries="1a 2a 3a 4b")
    assert w.read() == "1"
    reader = w.blocked()
    w.run(line)
    assert "4-0" in w.answer(reader)
    assert w.waiting() == "3"
    w.check()


def test_a_deleted_entry_that_somebody_works_on_keeps_its_key() -> None:
    w = Keyed(entries="1a 2a")
    w.read()
    w.run("XDEL s 1-0")
    assert w.read(consumer="bob") == ""
    w.run("XACK s g 1-0")
    assert w.read(consumer="bob") == "2"


def test_when_ids_may_be_used_again_nothing_that_was_acknowledged_is_handed_out() -> None:
    w = Keyed(entries="1a 2a 3b 4b")
    w.run("XSETID s 9-0")
    assert w.read() == "1 3"
    w.run("XACK s g 1-0 3-0", "XSETID s 4-0", "XACK s g 4-0")
    assert w.read(consumer="bob") == "2"
    w.check()


def test_what_waits_is_kept_for_the_group() -> None:
    w = Keyed("max-length 1 keep unread exact yes", entries="1b 2a 3a 4a")
    w.read()
    w.run("XACK s g 1-0")
    w.add("5a")
    w.passes(200)
    assert w.ids("s") == ["3-0", "4-0", "5-0"]
    w.run("XACK s g 2-0")
    assert w.read() == "3"


# -- keys -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", "x", "y" * 64, "z" * 65, "z" * 5000])
def test_keys_may_have_any_length(key: str) -> None:
    w = Keyed()
    w.do("XADD", "s", "1-0", "other", "k", "k", key, "k", "second")
    w.do("XADD", "s", "2-0", "k", key)
    w.do("XADD", "s", "3-0", "k", key + "?")
    w.do("XADD", "s", "4-0", "k", "second")
    assert w.read() == "1 3 4"
    w.run("AB.POLICY SET PATTERN * on-poison halt", "XNACK s g FATAL IDS 1 1-0")
    assert w.halted() == [[key, "1-0", 1]]
    assert w.do("AB.SKIP", "s", "g", key) == 1
    assert w.read() == "2"


def test_a_field_is_found_as_a_field_only() -> None:
    def entry(*words: bytes) -> bytes:
        body = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        return b"*2\r\n$3\r\n1-0\r\n*%d\r\n%b" % (len(words), body)

    assert value_of(entry(b"k", b"v"), b"k") == b"v"
    assert value_of(entry(b"a", b"k", b"k", b"v"), b"k") == b"v"
    assert value_of(entry(b"a", b"\r\n$1\r\nk\r\n$1\r\nx", b"k", b"v"), b"k") == b"v"
    assert value_of(entry(b"a", b"$1\r\nk\r\n$1\r\nx\r\n"), b"k") is None
    assert value_of(entry(b"kk", b"v", b"", b"w"), b"") == b"w"


# -- words ------------------------------------------------------------------------------------


def test_wrong_words_are_refused() -> None:
    w = Keyed()
    w.run("AB.POLICY DEL PATTERN *")
    refused = w.fails("AB.POLICY SET s key-field k redeliver claim")
    assert "key-field k" in refused
    assert "redeliver claim" in refused
    assert "key-waiting" in w.fails("AB.POLICY SET s key-waiting 0")
    assert "halt" in w.fails("AB.POLICY SET s on-poison stop")
    assert "key-field" in w.fails("AB.SKIP LIST s g")
    w.run("AB.POLICY SET s key-field k")
    assert "NOGROUP" in w.fails("AB.SKIP s nobody a")
    assert "syntax" in w.fails("AB.SKIP LIST s g LIMIT 3")
    assert "from 1 to" in w.fails("AB.SKIP LIST s g COUNT 0")
    assert w.run("AB.SKIP LIST s g") == []
    rows = [as_map(row) for row in w.run("AB.POLICY GET s GROUP g")]
    assert next(row["value"] for row in rows if row["policy"] == "redeliver") == "first"
