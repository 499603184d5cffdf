"""backoff, max-pending, consumer-ttl: when entries are handed out again, and how many at once."""

from __future__ import annotations

import pytest

from anabranch.engine.session import Session
from anabranch.keyspace import deferred_free, policies
from anabranch.scheduling import NEVER
from anabranch.stream.groups import policy
from anabranch.stream.groups.group import Group
from anabranch.stream.stream import Stream
from tests.support.streams import as_map
from tests.unit.commands.test_leases import Workers

# -- backoff ------------------------------------------------------------------------------------


@pytest.fixture
def b() -> Workers:
    w = Workers("", count=1)
    w.run("AB.POLICY SET s backoff 1s,5s")
    return w


def fail(w: Workers, mode: str = "FAIL", entry_id: str = "1-0") -> None:
    assert entry_id in w.read(w.session, "ann", "")
    w.run(f"XNACK s g {mode} IDS 1 {entry_id}")


def test_each_delivery_has_its_delay_and_the_last_one_repeats(b: Workers) -> None:
    for delay_ms in (1000, 5000, 5000):
        fail(b)
        b.advance(delay_ms - 1)
        assert b.read(b.session, "ann") == []
        b.advance(1)


def test_a_reader_that_waits_gets_it_when_the_delay_is_over(b: Workers) -> None:
    fail(b)
    waiting = b.waits("XREADGROUP GROUP g bob BLOCK 0 STREAMS s >")
    b.passes(950)
    assert b.answer(waiting) == ""
    b.passes(150)
    assert b.answer(waiting) == "[['s', [['1-0', ['f', 'v']]]]]"


def test_what_is_due_overtakes_what_waits(b: Workers) -> None:
    fail(b)
    b.advance(1000)
    fail(b)  # waits for 5 s
    b.run("XADD s 2-0 f v")
    fail(b, entry_id="2-0")  # waits for 1 s
    b.advance(1000)
    assert b.read(b.session, "ann", "") == ["2-0"]
    b.advance(4000)
    assert b.read(b.session, "ann", "") == ["1-0"]


def test_new_entries_do_not_wait(b: Workers) -> None:
    fail(b)
    b.run("XADD s 2-0 f v")
    assert b.read(b.session, "ann", "") == ["2-0"]


def test_what_is_handed_over_in_silence_does_not_wait(b: Workers) -> None:
    fail(b, "SILENT")
    waiting = b.waits("XREADGROUP GROUP g bob BLOCK 0 STREAMS s >")
    b.passes(100)
    assert b.answer(waiting) == "[['s', [['1-0', ['f', 'v']]]]]"


@pytest.mark.parametrize(
    "line", ["XAUTOCLAIM s g bob {} 0", "XCLAIM s g bob {} 1-0",
             "XREADGROUP GROUP g bob CLAIM {} STREAMS s >"])  # fmt: skip
def test_who_claims_what_is_idle_waits_and_who_claims_anything_does_not(
    b: Workers, line: str
) -> None:
    fail(b)
    b.run(line.format(100))
    assert b.owners() == {"1-0": ""}
    b.run(line.format(0))
    assert b.owners() == {"1-0": "bob"}


def test_who_takes_it_meanwhile_has_it(b: Workers) -> None:
    fail(b)
    b.run("XCLAIM s g bob 0 1-0")
    b.passes(2000)
    assert b.read(b.session, "ann") == []
    b.run("XNACK s g FAIL IDS 1 1-0")  # the second delivery: 5 s from here
    b.passes(4900)
    assert b.read(b.session, "ann") == []
    b.passes(200)
    assert b.read(b.session, "ann") == ["1-0"]


@pytest.mark.parametrize("line", ["DEBUG RELOAD", "COPY s t"])
def test_a_delay_goes_on_in_a_copy_and_after_a_start(b: Workers, line: str) -> None:
    b.run("AB.POLICY SET t backoff 1s,5s")
    fail(b)
    b.advance(500)
    b.run(line)
    key = "t" if line.startswith("COPY") else "s"
    waiting = b.waits(f"XREADGROUP GROUP g bob BLOCK 0 STREAMS {key} >")
    b.passes(400)
    assert b.answer(waiting) == ""
    b.passes(200)
    assert "1-0" in b.answer(waiting)


def test_a_backoff_comes_into_force_for_what_was_released_before(b: Workers) -> None:
    w = Workers("connection", count=1)
    fail(w)
    w.run("AB.POLICY SET s backoff 1h")
    assert w.read(w.session, "ann") == ["1-0"]


def test_released_by_a_lease_it_waits_too() -> None:
    w = Workers("connection:0", "backoff", "2s", count=1)
    ann = w.connect()
    w.read(ann, "ann")
    w.disconnect(ann)
    w.passes(1900)
    assert w.owners() == {"1-0": ""}
    assert w.read(w.session, "bob") == []
    w.passes(300)
    assert w.read(w.session, "bob") == ["1-0"]


def test_two_policies_that_exclude_each_other_are_both_named(b: Workers) -> None:
    error = b.fails("AB.POLICY SET s redeliver claim")
    assert error == "ERR policies 'backoff 1s,5s' and 'redeliver claim' exclude each other"
    assert "exclude" in b.fails("AB.POLICY SET PATTERN x* redeliver claim backoff 1s")


def test_what_is_switched_off_excludes_nothing(b: Workers) -> None:
    b.run("AB.POLICY SET PATTERN * backoff 1s key-field k")
    assert "exclude each other" in b.fails("AB.POLICY SET s redeliver claim")
    b.run("AB.POLICY SET s redeliver claim backoff none key-field ''")
    b.run("AB.POLICY SET t acks prefix home-region none")


def test_what_other_rules_have_said_is_no_reason_to_refuse_a_third_policy(b: Workers) -> None:
    b.run("AB.POLICY SET t GROUP g redeliver claim", "AB.POLICY SET t backoff 1s")
    b.run("AB.POLICY SET t GROUP g max-pending group:1")
    assert "exclude each other" in b.fails("AB.POLICY SET t GROUP g key-field k")


def test_what_a_pattern_excludes_later_is_not_in_force() -> None:
    w = Workers("", count=2)
    w.run("AB.POLICY SET s redeliver claim", "AB.POLICY SET PATTERN s* backoff 1s")
    fail(w)
    w.advance(1000)
    assert w.read(w.session, "bob", "") == ["1-0"]  # by a plain XREADGROUP, as without the first
    rows = {row["policy"]: row for row in map(as_map, w.run("AB.POLICY GET s GROUP g"))}
    assert rows["redeliver"]["value"] == "claim"
    assert "'backoff' excludes this value" in rows["redeliver"]["note"]
    assert rows["backoff"]["note"] == ""
    w.run("AB.POLICY DEL PATTERN s*", "XNACK s g FAIL IDS 1 1-0")
    w.advance(1000)
    assert w.read(w.session, "bob", "") == []
    rows = {row["policy"]: row for row in map(as_map, w.run("AB.POLICY GET s GROUP g"))}
    assert rows["redeliver"]["note"] == ""


def test_no_delay_beside_a_lease_by_time_is_no_work_without_end() -> None:
    """A look at a group of which nothing was due had the group looked at again at once."""
    w = Workers("time:1s", "backoff 0,5s", count=2)
    w.read(w.session, "ann")
    w.passes(2000)
    assert w.owners() == {"1-0": ""}
    w.read(w.session, "ann", "")
    w.run("XACK s g 1-0 2-0")
    w.passes(2000)
    assert not w.region.leases.deadlines


def group_of(w: Workers) -> Group:
    stream = w.region.keyspace.databases[0].values[b"s"]
    assert isinstance(stream, Stream)
    return stream.groups[b"g"]


def released(count: int, *lines: str) -> Workers:
    """A group whose entries were released, the last one first."""
    w = Workers("", count=count)
    w.run(*lines)
    w.read(w.session, "ann", "")
    for number in range(count, 0, -1):
        w.run(f"XNACK s g FAIL IDS 1 {number}-0")
    return w


def test_what_was_released_before_a_backoff_is_delayed_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy, "_LOOKED_AT", 2)
    w = released(7)
    w.run("AB.POLICY SET s backoff 1s")
    group = group_of(w)
    policed = group.policed
    assert policed is not None
    delayed = [2]
    assert len(policed._delayed) == 2
    while not policed.delay_some(group.pending):
        delayed.append(len(policed._delayed))
    assert delayed == [2, 4, 6]
    w.passes(1100)
    assert w.read(w.session, "bob", "") == [f"{number}-0" for number in range(7, 0, -1)]


def test_of_many_delays_that_end_together_a_read_looks_at_some() -> None:
    w = released(7, "AB.POLICY SET s backoff 1s")
    group = group_of(w)
    assert group.policed is not None
    w.clock.us += 1_000_000
    assert len(group.policed.ripen(group.pending.released, w.clock.us // 1000, 2)) == 3
    assert w.read(w.session, "bob", "COUNT 5") == ["7-0", "6-0", "5-0", "4-0", "3-0"]
    assert w.read(w.session, "bob", "") == ["2-0", "1-0"]


def test_delays_of_what_was_taken_meanwhile_are_passed_over_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy, "_LOOKED_AT", 2)
    w = released(7, "AB.POLICY SET s backoff 1s")
    w.run("XCLAIM s g bob 0 7-0 6-0 5-0 4-0 3-0 2-0")
    waiting = w.waits("XREADGROUP GROUP g ann BLOCK 0 STREAMS s >")
    policed = group_of(w).policed
    assert policed is not None
    assert not policed.ripen(group_of(w).pending.released, w.clock.us // 1000 + 1000, 0)
    assert len(policed._delayed) == 5
    w.passes(1100)
    assert w.answer(waiting) == "[['s', [['1-0', ['f', 'v']]]]]"


@pytest.mark.parametrize("line", ["AB.POLICY DEL s", "XGROUP DESTROY s g"])
def test_delays_that_nobody_needs_are_freed_in_steps(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "_FREED", 2)
    monkeypatch.setattr(deferred_free, "_ENTRIES", 2)
    w = released(7, "AB.POLICY SET s backoff 1s")
    policed, free = group_of(w).policed, w.region.keyspace.deferred_free
    assert policed is not None
    free.call = lambda: None
    w.run(line)
    left = [len(policed._delayed)]
    while left[-1]:
        w.region.keyspace.databases[0].policies.go_on()
        free.sweep(lambda: True)
        left.append(len(policed._delayed))
    assert left in ([5, 3, 1, 0], [7, 5, 3, 1, 0])


# -- max-pending --------------------------------------------------------------------------------


def test_a_consumer_has_no_more_than_that() -> None:
    w = Workers("")
    w.run("AB.POLICY SET s max-pending consumer:3")
    assert w.read(w.session, "ann", "COUNT 2") == ["1-0", "2-0"]
    assert w.read(w.session, "ann", "COUNT 2") == ["3-0"]
    assert w.read(w.session, "ann", "COUNT 2") == []
    assert w.read(w.session, "bob", "") == ["4-0", "5-0", "6-0"]
    assert w.read(w.session, "ann", "NOACK COUNT 2") == ["7-0", "8-0"]


def test_a_group_has_no_more_than_that() -> None:
    w = Workers("")
    w.run("AB.POLICY SET s max-pending group:3")
    assert w.read(w.session, "ann", "COUNT 2") == ["1-0", "2-0"]
    assert w.read(w.session, "bob", "") == ["3-0"]
    assert w.read(w.session, "bob", "CLAIM 0") == []
    w.run("XNACK s g FAIL IDS 1 2-0")
    assert w.read(w.session, "bob", "") == ["4-0"]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("XACK s g 1-0", "2-0"),
        ("XACKDEL s g KEEPREF IDS 1 1-0", "2-0"),
        ("XGROUP DELCONSUMER s g ann", "2-0"),
        ("XNACK s g FAIL IDS 1 1-0", "1-0"),
        ("XCLAIM s g eve 0 1-0 JUSTID", ""),
    ],
)
def test_a_reader_that_waits_gets_more_when_there_is_room(line: str, answer: str) -> None:
    w = Workers("")
    w.run("AB.POLICY SET s max-pending group:1 redeliver first")
    w.read(w.session, "ann", "")
    waiting = w.waits("XREADGROUP GROUP g bob BLOCK 0 STREAMS s >")
    w.run("XADD s 20-0 f v")
    assert w.answer(waiting) == ""
    w.run(line)
    assert (answer in w.answer(waiting)) if answer else w.answer(waiting) == ""


def test_released_entries_take_room_too() -> None:
    w = Workers("")
    w.run("AB.POLICY SET s max-pending consumer:2 redeliver first")
    w.read(w.session, "ann", "")
    w.run("XNACK s g FAIL IDS 2 1-0 2-0")
    w.read(w.session, "bob", "COUNT 1")
    assert len(w.read(w.session, "bob", "COUNT 10")) == 1
    assert w.read(w.session, "bob", "COUNT 10") == []


# -- consumer-ttl -------------------------------------------------------------------------------


def consumers(w: Workers) -> set[str]:
    return set(w.full_group()["consumers"])


def test_a_consumer_without_a_connection_is_removed_when_it_is_idle_for_long() -> None:
    w = Workers("")
    w.run("AB.POLICY SET s consumer-ttl 5s")
    ann, bob = w.connect(), w.connect()
    w.read(ann, "ann", "COUNT 2")
    w.read(bob, "bob")
    w.disconnect(ann)
    w.passes(4900)
    assert consumers(w) == {"ann", "bob"}
    w.passes(300)
    assert consumers(w) == {"bob"}
    assert w.owners() == {"1-0": "", "2-0": "", "3-0": "bob"}
    assert w.run("XREADGROUP GROUP g bob CLAIM 0 COUNT 2 STREAMS s >")[0][1][0][0] == "1-0"


def test_one_that_comes_back_begins_anew() -> None:
    w = Workers("")
    w.run("AB.POLICY SET s consumer-ttl 5s")
    for _ in range(3):
        ann: Session = w.connect()
        w.read(ann, "ann")
        w.disconnect(ann)
        w.passes(4800)
        assert consumers(w) == {"ann"}


def test_consumers_that_were_there_before_are_removed_too() -> None:
    w = Workers("")
    w.run("XGROUP CREATECONSUMER s g old", "AB.POLICY SET s consumer-ttl 5s")
    w.passes(9900)
    assert consumers(w) == {"old"}
    w.passes(5300)
    assert consumers(w) == set()
    w.region.leases.check()
    assert not w.region.leases.holds


def test_many_consumers_are_expected_in_steps() -> None:
    w = Workers("")
    w.run(*(f"XGROUP CREATECONSUMER s g old{number}" for number in range(500)))
    w.run("AB.POLICY SET s consumer-ttl 1s")
    expected = []
    for _ in range(6):
        w.region.scheduler.deadline_ns = 0  # each slice of time is over at once
        w.region.tick()
        expected.append(len(w.region.leases.holds))
    assert 0 < expected[0] < expected[1] < expected[-1] == 500
    w.region.scheduler.deadline_ns = NEVER
    w.passes(11_000)
    assert consumers(w) == set()


def test_with_a_lease_entries_go_first_and_the_consumer_later() -> None:
    w = Workers("connection:1s", "consumer-ttl", "5s")
    ann = w.connect()
    w.read(ann, "ann")
    w.disconnect(ann)
    w.passes(1200)
    assert w.owners() == {"1-0": ""}
    assert consumers(w) == {"ann"}
    w.passes(4200)
    assert consumers(w) == set()
