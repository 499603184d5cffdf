"""Entries that failed too often: where they go, what their copies say, and that there is one."""

from __future__ import annotations

import json

import pytest

from anabranch.commands.extensions import redriving
from anabranch.effects import kinds
from tests.support.recording import Recording
from tests.support.streams import as_map
from tests.unit.commands.test_leases import GRACE, Workers


@pytest.fixture
def w() -> Workers:
    return Workers("connection", "max-deliveries", "2", "dead-letter", "dead", count=1)


def letters(w: Workers, key: str = "dead") -> list[dict[str, str]]:
    """The fields of the copies."""
    entries = w.run(f"XRANGE {key} - +")
    return [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in entries]


def fail(w: Workers, times: int, consumer: str = "ann", mode: str = "FAIL") -> None:
    for _ in range(times):
        w.run(f"XREADGROUP GROUP g {consumer} COUNT 1 STREAMS s >")
        w.advance(10)
        w.run(f"XNACK s g {mode} IDS 1 1-0")


def test_after_the_last_delivery_there_is_a_copy_and_nothing_pending(w: Workers) -> None:
    w.run("XREADGROUP GROUP g x NOACK STREAMS s >", "XADD s 20-0 a 1 b 2")
    w.run("XREADGROUP GROUP g ann COUNT 1 STREAMS s >", "XNACK s g FAIL IDS 1 20-0")
    assert letters(w) == []
    w.run("XREADGROUP GROUP g bob COUNT 1 STREAMS s >", "XNACK s g FAIL IDS 1 20-0")
    (letter,) = letters(w)
    now = str(w.clock.us // 1000)
    attempts = json.loads(letter.pop("ab-attempts"))
    assert list(letter.items()) == [
        ("ab-origin", "s"),
        ("ab-id", "20-0"),
        ("ab-group", "g"),
        ("ab-consumer", "bob"),
        ("ab-deliveries", "2"),
        ("ab-reason", "nack"),
        ("ab-first", now),
        ("ab-last", now),
        ("a", "1"),
        ("b", "2"),
    ]
    assert [each["consumer"] for each in attempts] == ["ann", "bob"]
    assert w.pending() == []
    assert w.run("XLEN s") == 2
    w.check()


def test_a_worker_that_dies_with_it_each_time(w: Workers) -> None:
    for name in ("ann", "bob"):
        session = w.connect()
        assert w.read(session, name, "COUNT 1")[0] == "1-0"
        w.disconnect(session)
        w.passes(GRACE + 200)
    (letter,) = letters(w)
    assert (letter["ab-id"], letter["ab-reason"], letter["ab-consumer"]) == ("1-0", "lease", "bob")
    assert w.pending() == []


def test_what_is_fatal_goes_at_once(w: Workers) -> None:
    fail(w, 1, mode="FATAL")
    (letter,) = letters(w)
    assert (letter["ab-reason"], letter["ab-deliveries"]) == ("fatal", "1")


def test_what_is_fatal_goes_without_a_limit_too() -> None:
    w = Workers("", count=1)
    w.run("AB.POLICY SET s dead-letter dead")
    fail(w, 3)
    w.run("XCLAIM s g ann 0 1-0")
    assert letters(w) == []
    w.run("XNACK s g FATAL IDS 1 1-0")
    assert len(letters(w)) == 1


def test_what_is_given_back_in_silence_does_not_count(w: Workers) -> None:
    fail(w, 5, mode="SILENT")
    assert letters(w) == []
    assert w.pending()[0][3] == 0


def test_without_a_stream_for_it_the_entry_is_acknowledged_with_an_event() -> None:
    w = Workers("connection", "max-deliveries", "1", count=1)
    assert w.events_of(lambda: fail(w, 1)).count("xgiveup s") == 1
    assert w.pending() == []
    assert "policy_given_up:1" in w.run("INFO policies")


@pytest.mark.parametrize(
    "line",
    [
        "XCLAIM s g bob 0 1-0",
        "XAUTOCLAIM s g bob 0 0",
        "XREADGROUP GROUP g bob COUNT 1 CLAIM 0 STREAMS s >",
    ],
)
def test_it_is_not_handed_out_to_those_who_claim(line: str) -> None:
    w = Workers("", count=1)
    w.run("AB.POLICY SET s max-deliveries 1 dead-letter dead")
    w.run("XREADGROUP GROUP g ann COUNT 1 STREAMS s >")
    assert "1-0" not in str(w.run(line))
    (letter,) = letters(w)
    assert (letter["ab-reason"], letter["ab-consumer"]) == ("claim", "ann")
    assert "1-0" not in w.owners()


def test_claims_that_are_no_deliveries_are_left_alone() -> None:
    w = Workers("", count=1)
    w.run("AB.POLICY SET s max-deliveries 1 dead-letter dead")
    w.run("XREADGROUP GROUP g ann COUNT 1 STREAMS s >")
    assert w.run("XCLAIM s g bob 0 1-0 JUSTID") == ["1-0"]
    assert w.run("XAUTOCLAIM s g eve 0 0 JUSTID")[1] == ["1-0"]
    w.run("XCLAIM s g bob 0 1-0 RETRYCOUNT 1")
    assert letters(w) == []


def test_a_limit_that_comes_later_is_looked_at_when_an_entry_is_to_be_handed_out() -> None:
    w = Workers("connection", count=1)
    fail(w, 3)
    w.run("AB.POLICY SET s max-deliveries 2 dead-letter dead")
    assert w.read(w.session, "bob") == []
    assert len(letters(w)) == 1


def test_a_key_of_another_type_keeps_the_entry(w: Workers) -> None:
    w.run("SET dead x")
    fail(w, 2)
    assert w.owners()["1-0"] == ""
    assert w.read(w.session, "bob", "COUNT 2") == []
    w.run("DEL dead")
    w.read(w.session, "bob", "COUNT 2")
    assert [letter["ab-id"] for letter in letters(w)] == ["1-0"]


def test_there_is_one_copy_of_what_fails_again_in_a_group_that_was_set_back(w: Workers) -> None:
    fail(w, 2)
    w.run("XGROUP SETID s g 0")
    fail(w, 2)
    assert len(letters(w)) == 1
    assert w.pending() == []


def test_groups_have_copies_of_their_own(w: Workers) -> None:
    w.run("XGROUP CREATE s h 0", "AB.POLICY SET s max-deliveries 1")
    for group in "gh":
        w.run(f"XREADGROUP GROUP {group} ann COUNT 1 STREAMS s >")
        w.run(f"XNACK s {group} FAIL IDS 1 1-0")
    assert [letter["ab-group"] for letter in letters(w)] == ["g", "h"]


def test_an_entry_that_was_deleted_leaves_no_copy(w: Workers) -> None:
    fail(w, 1)
    w.run("XREADGROUP GROUP g ann COUNT 1 STREAMS s >", "XDEL s 1-0", "XNACK s g FAIL IDS 1 1-0")
    assert letters(w) == []
    assert w.pending() == []


def test_a_dead_letter_stream_that_has_a_group_with_the_same_policy(w: Workers) -> None:
    """It would add to itself: the entry stays where it is, and is acknowledged."""
    w.run("AB.POLICY DEL s", "AB.POLICY SET PATTERN * max-deliveries 1 dead-letter dead")
    fail(w, 1)
    w.run("XGROUP CREATE dead g 0", "XREADGROUP GROUP g ann STREAMS dead >")
    ((entry_id, _),) = w.run("XRANGE dead - +")
    w.run(f"XNACK dead g FAIL IDS 1 {entry_id}")
    assert w.run("XLEN dead") == 1
    assert w.pending("dead") == []


def test_the_last_five_attempts_are_told() -> None:
    w = Workers("connection", "max-deliveries", "7", "dead-letter", "dead", count=1)
    for number in range(7):
        fail(w, 1, f"c{number}")
    (letter,) = letters(w)
    attempts = json.loads(letter["ab-attempts"])
    assert [each["consumer"] for each in attempts] == [f"c{number}" for number in range(2, 7)]
    assert {each["reason"] for each in attempts} == {"nack"}
    assert all(each["ended"] - each["delivered"] == 10 for each in attempts)
    assert letter["ab-deliveries"] == "7"


def test_the_copy_is_added_and_the_entry_acknowledged_in_one_turn(w: Workers) -> None:
    """The log has a turn as a whole or not at all: see tests/unit/oplog/test_torn_log.py."""
    fail(w, 1)
    recorded: list[kinds.Effect] = []
    w.region.effects.record = Recording(recorded)
    w.run("XREADGROUP GROUP g ann COUNT 1 STREAMS s >")
    del recorded[:]
    w.run("XNACK s g FAIL IDS 1 1-0")
    names = [type(effect).__name__ for effect in recorded]
    assert names == ["CreateStream", "Add", "ConfigureProducers", "Remember", "Acknowledge"]


def test_who_names_a_dead_letter_stream_needs_to_write_to_it(w: Workers) -> None:
    w.run("ACL SETUSER ann on nopass ~s +@all", "ACL SETUSER bob on nopass ~s ~dead +@all")
    ann, bob = w.connect(), w.connect()
    w.run("AUTH ann x", session=ann)
    w.run("AUTH bob x", session=bob)
    line = "AB.POLICY SET s GROUP g dead-letter dead"
    assert w.fails(line, session=ann).startswith("NOPERM")
    w.run(line, session=bob)
    assert "cannot be the stream itself" in w.fails("AB.POLICY SET s dead-letter s")


# -- AB.REDRIVE -----------------------------------------------------------------------------------


def redrive(w: Workers, options: str = "", key: str = "dead") -> tuple[int, list[list[str]], int]:
    reply = as_map(w.run(f"AB.REDRIVE {key} {options}"))
    return reply["done"], reply["skipped"], reply["left"]


def test_a_dead_letter_goes_back_to_the_group_that_gave_it_up(w: Workers) -> None:
    w.run("XGROUP CREATE s h 0", "XREADGROUP GROUP h x STREAMS s >", "XACK s h 1-0")
    fail(w, 2)
    assert redrive(w) == (1, [], 0)
    assert [(row[0], row[1], row[3]) for row in w.pending()] == [("1-0", "", 0)]
    assert w.pending("s", "h") == []
    assert w.read(w.session, "bob") == ["1-0"]
    assert w.run("XACK s g 1-0") == 1
    w.check()


def test_a_reader_that_waits_gets_it(w: Workers) -> None:
    fail(w, 2)
    waiting = w.waits("XREADGROUP GROUP g bob BLOCK 0 STREAMS s >")
    redrive(w)
    assert "1-0" in w.answer(waiting)


def test_what_fails_again_is_a_dead_letter_again(w: Workers) -> None:
    for _ in range(3):
        fail(w, 2)
        assert len(letters(w)) == 1
        assert w.pending() == []
        assert redrive(w) == (1, [], 0)


def test_an_entry_that_is_gone_is_added_again_as_it_was(w: Workers) -> None:
    w.run("XDEL s 1-0", "XADD s 5-0 a 1 b 2")
    w.run("XREADGROUP GROUP g ann STREAMS s >", "XNACK s g FATAL IDS 1 5-0", "XDEL s 5-0")
    assert redrive(w) == (1, [], 0)
    ((_, fields),) = w.run("XRANGE s - +")
    assert fields == ["a", "1", "b", "2"]
    w.check()


def test_a_dry_run_changes_nothing_and_says_what_would_be_left(w: Workers) -> None:
    fail(w, 2)
    assert redrive(w, "DRYRUN") == (1, [], 0)
    assert len(letters(w)) == 1
    assert w.pending() == []


def test_what_cannot_go_back_stays_and_says_why(w: Workers) -> None:
    fail(w, 2)
    w.run("XADD dead * other field", "XADD dead 99999999999999-0 ab-origin s")
    done, skipped, left = redrive(w)
    assert (done, left) == (1, 2)
    assert [reason.split(":")[0] for _, reason in skipped] == ["no dead letter", "no dead letter"]
    fail(w, 2)
    w.run("XGROUP DESTROY s g")
    assert "does not exist any more" in redrive(w)[1][-1][1]


def test_what_is_pending_or_not_delivered_yet_is_skipped(w: Workers) -> None:
    fail(w, 2)
    w.run("XNACK s g FAIL IDS 1 1-0 FORCE")
    assert "is pending" in redrive(w)[1][0][1]
    w.run("XACK s g 1-0", "XGROUP SETID s g 0")
    assert "set back" in redrive(w)[1][0][1]


def test_some_are_chosen_by_ids_count_and_reason() -> None:
    w = Workers("", count=6)
    w.run("AB.POLICY SET s dead-letter dead max-deliveries 1")
    w.run("XREADGROUP GROUP g ann STREAMS s >")
    w.run("XNACK s g FATAL IDS 2 1-0 2-0", "XNACK s g FAIL IDS 4 3-0 4-0 5-0 6-0")
    ids = [entry[0] for entry in w.run("XRANGE dead - +")]
    assert redrive(w, f"IDS 2 {ids[0]} 7-7") == (1, [], 5)
    assert redrive(w, "REASON nack COUNT 2") == (2, [], 3)
    assert sorted(w.owners()) == ["1-0", "3-0", "4-0"]
    assert redrive(w, "REASON FATAL") == (1, [], 2)
    assert "policy_redriven:4" in w.run("INFO policies")


def test_no_more_dead_letters_are_looked_at_than_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []

    class Counted(redriving._Letter):
        def __init__(self, entry_id: int, fragment: bytes) -> None:
            super().__init__(entry_id, fragment)
            seen.append(entry_id)

    monkeypatch.setattr(redriving, "_Letter", Counted)
    w = with_dead_letters(30)
    assert redrive(w, "COUNT 10") == (10, [], 20)
    assert len(seen) == 10
    assert redrive(w, "COUNT 10 REASON lease") == (0, [], 20)
    assert len(seen) == 10


def with_dead_letters(count: int) -> Workers:
    w = Workers("", count=count)
    w.run("AB.POLICY SET s dead-letter dead max-deliveries 1")
    w.run("XREADGROUP GROUP g ann STREAMS s >")
    ids = " ".join(f"{number}-0" for number in range(1, count + 1))
    w.run(f"XNACK s g FAIL IDS {count} {ids}")
    return w


def test_a_rate_gives_the_rest_back_in_the_course_of_time() -> None:
    w = with_dead_letters(30)
    assert redrive(w, "RATE 10/s") == (1, [], 29)
    for left in (24, 19, 14, 9, 4):
        w.advance(500)
        assert len(letters(w)) == left
    w.run("XREADGROUP GROUP g bob STREAMS s >", "XNACK s g FATAL IDS 1 1-0")
    w.advance(5000)
    assert len(letters(w)) == 1, "what fails again meanwhile stays"
    assert w.region.context.server.redrives == {}
    assert "policy_redriven:30" in w.run("INFO policies")


def test_a_high_rate_is_kept() -> None:
    w = with_dead_letters(1000)
    assert redrive(w, "RATE 5000/s") == (1, [], 999)
    w.advance(100)
    assert len(letters(w)) == 499
    w.advance(100)
    assert len(letters(w)) == 0
    assert w.region.context.server.redrives == {}


def test_a_rate_ends_with_its_count_or_with_a_rate_of_nothing() -> None:
    w = with_dead_letters(30)
    assert redrive(w, "COUNT 3 RATE 100/s") == (1, [], 29)
    w.advance(1000)
    assert len(letters(w)) == 27
    redrive(w, "REASON nack RATE 60/m")
    w.advance(2000)
    assert len(letters(w)) == 24
    assert redrive(w, "RATE 0/s") == (0, [], 24)
    w.advance(5000)
    assert len(letters(w)) == 24


def test_what_a_rate_gives_back_needs_the_permissions_of_who_asked() -> None:
    w = with_dead_letters(5)
    w.run("ACL SETUSER ann on nopass ~dead ~s +@all -xnack")
    ann = w.connect()
    w.run("AUTH ann x", session=ann)
    w.run("AB.REDRIVE dead RATE 100/s", session=ann)
    w.advance(1000)
    assert len(letters(w)) == 5


@pytest.mark.parametrize(
    "line",
    ["ACL DELUSER ann", "ACL SETUSER ann -ab.redrive", "ACL SETUSER ann resetkeys ~s"],
)
def test_a_rate_ends_when_who_asked_may_not_ask_any_more(line: str) -> None:
    w = with_dead_letters(5)
    w.run("ACL SETUSER ann on nopass ~dead ~s +@all")
    ann = w.connect()
    w.run("AUTH ann x", session=ann)
    w.run("AB.REDRIVE dead RATE 2/s", session=ann)
    w.advance(500)
    assert len(letters(w)) == 3
    w.run(line, "ACL SETUSER ann on nopass" if "DEL" in line else "PING")
    w.advance(500)
    assert len(letters(w)) == 3
    assert w.region.context.server.redrives == {}


def test_a_rate_ends_with_the_dead_letter_stream_and_works_in_its_database() -> None:
    w = with_dead_letters(5)
    w.run("AB.REDRIVE dead RATE 2/s", "SELECT 1")
    w.advance(500)
    w.run("SELECT 0")
    assert len(letters(w)) == 3
    w.run("DEL dead")
    w.advance(500)
    assert w.region.context.server.redrives == {}


def test_who_redrives_needs_the_streams_too(w: Workers) -> None:
    fail(w, 2)
    w.run("ACL SETUSER ann on nopass ~dead +@all")
    ann = w.connect()
    w.run("AUTH ann x", session=ann)
    reply = as_map(w.run("AB.REDRIVE dead", session=ann))
    assert reply["done"] == 0
    assert "no permission" in reply["skipped"][0][1]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("AB.REDRIVE nobody", "ERR no such key"),
        ("AB.REDRIVE s COUNT", "ERR syntax error"),
        ("AB.REDRIVE s COUNT 0", "ERR COUNT must be from 1 to 1000"),
        ("AB.REDRIVE s IDS 2 1-0", "ERR number of IDs doesn't match numids"),
        ("AB.REDRIVE s IDS 1 x", "ERR Invalid stream ID"),
        ("AB.REDRIVE s FAST", "ERR syntax error"),
        ("AB.REDRIVE s RATE", "ERR syntax error"),
        ("AB.REDRIVE s RATE 10", "ERR RATE must be a number and a unit: 10/s, 100/m or 500/h"),
    ],
)
def test_mistakes(w: Workers, line: str, error: str) -> None:
    assert w.fails(line).startswith(error)
