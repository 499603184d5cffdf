"""Leases: who holds pending entries, and until when they are not handed to others."""

from __future__ import annotations

import pytest

from anabranch.engine.session import Session
from tests.support.streams import Streams, as_map

GRACE = 1000
UNKNOWN = 10_000


class Workers(Streams):
    """A group of some entries; consumers with connections of their own."""

    def __init__(self, lease: str, *more: str, count: int = 10) -> None:
        super().__init__(enable_debug_command="yes")
        self.run("XGROUP CREATE s g 0 MKSTREAM")
        if lease:
            self.run(f"AB.POLICY SET s lease {lease} {' '.join(more)}")
        self.count_to("s", count)

    def read(self, session: Session, name: str, options: str = "COUNT 1") -> list[str]:
        reply = self.run(f"XREADGROUP GROUP g {name} {options} STREAMS s >", session=session)
        return [entry[0] for _, entries in reply or [] for entry in entries]

    def passes(self, ms: int) -> None:
        """Time passes as for a server: in steps."""
        while ms > 0:
            step = min(ms, 50)
            self.advance(step)
            ms -= step
        self.region.leases.check()

    def owners(self) -> dict[str, str]:
        return {row[0]: row[1] for row in self.pending()}

    def disconnect(self, session: Session) -> None:
        self.region.close_session(session)


@pytest.fixture
def w() -> Workers:
    return Workers("connection")


# -- connection -------------------------------------------------------------------------------


def test_an_entry_is_held_as_long_as_the_connection_is_open(w: Workers) -> None:
    ann, bob = w.connect(), w.connect()
    assert w.read(ann, "ann") == ["1-0"]
    w.passes(3_600_000 // 60)
    assert w.read(bob, "bob") == ["2-0"]
    assert w.owners() == {"1-0": "ann", "2-0": "bob"}


def test_it_is_released_a_grace_after_the_connection_has_closed(w: Workers) -> None:
    ann, bob = w.connect(), w.connect()
    w.read(ann, "ann")
    w.read(bob, "bob")
    w.disconnect(ann)
    w.passes(GRACE - 50)
    assert w.owners()["1-0"] == "ann"
    w.passes(200)
    assert w.owners()["1-0"] == ""
    assert w.read(bob, "bob", "") == ["1-0", *[f"{n}-0" for n in range(3, 11)]]
    assert [row[3] for row in w.pending()[:2]] == [2, 1]
    assert "policy_released:1" in w.run("INFO policies")


def test_many_pending_entries_are_sorted_by_their_ages_in_steps() -> None:
    w = Workers("", count=1200)
    assert len(w.read(w.session, "ann", "COUNT 700")) == 700
    w.advance(10)
    assert len(w.read(w.session, "bob", "COUNT 500")) == 500
    w.run("AB.POLICY SET s lease time:1s redeliver claim")
    pending = w.region.keyspace.databases[0].values[b"s"].groups[b"g"].pending  # type: ignore[union-attr]
    assert not pending.sort_some(500)
    w.run("XACK s g 1-0 600-0", "XCLAIM s g eve 0 2-0 700-0", "XNACK s g FAIL IDS 2 3-0 701-0")
    w.check()
    w.passes(1300)
    assert set(w.owners().values()) == {""}
    w.check()


def test_it_is_released_in_another_database_too(w: Workers) -> None:
    w.read(w.session, "ann")
    w.passes(300)
    w.run("SWAPDB 0 1", "SELECT 1")
    w.passes(10_300)
    assert w.owners() == {"1-0": ""}


def test_a_blocked_reader_gets_it(w: Workers) -> None:
    ann = w.connect()
    w.read(ann, "ann", "COUNT 10")
    bob = w.waits("XREADGROUP GROUP g bob BLOCK 0 COUNT 1 STREAMS s >")
    w.disconnect(ann)
    w.passes(GRACE + 100)
    assert w.answer(bob) == "[['s', [['1-0', ['f', 'v']]]]]"


@pytest.mark.parametrize("line", ["XREADGROUP GROUP g ann COUNT 1 STREAMS s >",
                                  "AB.RENEW s g ann 1", "XAUTOCLAIM s g ann 1 0",
                                  "XCLAIM s g ann 1 1-0", "XACK s g 1-0"])  # fmt: skip
def test_who_comes_back_within_the_grace_goes_on(w: Workers, line: str) -> None:
    ann = w.connect()
    w.read(ann, "ann", "COUNT 2")
    w.disconnect(ann)
    w.passes(GRACE - 100)
    w.run(line, session=w.connect())
    w.passes(60_000)
    assert w.owners()["2-0"] == "ann"


def test_any_of_several_connections_holds(w: Workers) -> None:
    reads, acknowledges = w.connect(), w.connect()
    w.read(reads, "ann", "COUNT 2")
    w.run("XACK s g 1-0", session=acknowledges)  # a pool uses another connection for this
    w.disconnect(reads)
    w.passes(30_000)
    assert w.owners() == {"2-0": "ann"}
    w.disconnect(acknowledges)
    w.passes(GRACE + 100)
    assert w.owners() == {"2-0": ""}


def test_a_connection_that_waits_holds(w: Workers) -> None:
    w.read(w.session, "ann", "COUNT 10")
    waiting = w.waits("XREADGROUP GROUP g bob BLOCK 0 STREAMS s >")
    w.run("XCLAIM s g bob 0 1-0")
    w.passes(30_000)
    assert w.owners()["1-0"] == "bob"
    w.disconnect(w.session)
    w.passes(GRACE + 100)
    assert w.answer(waiting).count("f") == 9
    assert set(w.owners().values()) == {"bob"}


def test_one_connection_may_hold_for_several_names_and_in_several_groups(w: Workers) -> None:
    w.run("XGROUP CREATE s h 0", "AB.POLICY SET s GROUP h lease connection:5s")
    one = w.connect()
    w.read(one, "ann")
    w.read(one, "bob")
    w.run("XREADGROUP GROUP h ann COUNT 1 STREAMS s >", session=one)
    w.disconnect(one)
    w.passes(GRACE + 100)
    assert set(w.owners().values()) == {""}
    assert w.pending("s", "h")[0][1] == "ann"
    w.passes(5000)
    assert w.pending("s", "h")[0][1] == ""


def test_many_entries_are_released_in_the_order_of_their_ids(w: Workers) -> None:
    w.count_to("s", 1000, 11)
    ann = w.connect()
    w.read(ann, "ann", "COUNT 1000")
    w.disconnect(ann)
    w.passes(GRACE + 100)
    assert w.read(w.session, "bob", "COUNT 1000") == [f"{ms}-0" for ms in range(1, 1001)]


def test_without_a_lease_nothing_is_released() -> None:
    w = Workers("")
    ann = w.connect()
    w.read(ann, "ann")
    w.disconnect(ann)
    w.passes(100_000)
    assert w.owners() == {"1-0": "ann"}
    assert not w.region.leases.holds


def test_what_is_held_is_not_idle_for_those_who_claim(w: Workers) -> None:
    ann, bob = w.connect(), w.connect()
    w.read(ann, "ann", "COUNT 2")
    w.passes(60_000)
    assert w.run("XAUTOCLAIM s g bob 1000 0 JUSTID", session=bob)[1] == []
    assert w.run("XCLAIM s g bob 1000 1-0 JUSTID", session=bob) == []
    claims = "XREADGROUP GROUP g bob COUNT 1 CLAIM 1000 STREAMS s >"
    assert w.run(claims, session=bob)[0][1][0][0] == "3-0"
    assert w.run("XCLAIM s g bob 0 1-0 JUSTID", session=bob) == ["1-0"]  # by an administrator
    w.disconnect(ann)
    w.passes(GRACE + 100)
    assert w.run("XAUTOCLAIM s g bob 5000 0 JUSTID", session=bob)[1] == ["2-0"]


def test_a_reader_that_waits_with_claim_does_not_look_all_the_time(w: Workers) -> None:
    w.read(w.connect(), "ann", "COUNT 10")
    w.passes(5000)
    bob = w.waits("XREADGROUP GROUP g bob BLOCK 0 CLAIM 1000 STREAMS s >")
    assert bob.waiter is not None
    assert bob.waiter.recheck_ms == 0


# -- after a start ----------------------------------------------------------------------------


@pytest.mark.parametrize(("lease", "ms"), [("connection", UNKNOWN), ("connection:30s", 30_000)])
def test_after_a_start_consumers_have_time_to_come_back(lease: str, ms: int) -> None:
    w = Workers(lease)
    ann, bob = w.connect(), w.connect()
    w.read(ann, "ann")
    w.read(bob, "bob")
    w.run("DEBUG RELOAD")
    w.region.leases.holds.clear()  # as after a start
    w.region.leases.deadlines.clear()
    w.region.leases._places.clear()
    w.passes(ms - 200)
    w.run("AB.RENEW s g bob 1 2-0", session=bob)
    assert w.owners() == {"1-0": "ann", "2-0": "bob"}
    w.passes(400)
    assert w.owners() == {"1-0": "", "2-0": "bob"}


def test_a_lease_that_comes_later_gives_the_same_time(w: Workers) -> None:
    w = Workers("")
    ann = w.connect()
    w.read(ann, "ann")
    w.run("AB.POLICY SET s lease connection")
    w.passes(UNKNOWN - 100)
    assert w.owners() == {"1-0": "ann"}
    w.passes(300)
    assert w.owners() == {"1-0": ""}


def test_a_group_that_gets_another_name_is_looked_at_under_that_name(w: Workers) -> None:
    w.run("AB.POLICY SET t lease connection:60s")
    ann = w.connect()
    w.read(ann, "ann")
    w.run("RENAME s t")
    w.disconnect(ann)
    w.passes(59_000)
    assert w.pending("t")[0][1] == "ann"
    w.passes(2000)
    assert w.pending("t")[0][1] == ""


def test_nothing_is_left_of_what_was_deleted(w: Workers) -> None:
    ann, bob = w.connect(), w.connect()
    w.read(ann, "ann")
    w.read(bob, "bob")
    w.run("XGROUP DELCONSUMER s g ann", "AB.POLICY DEL s")
    for each in (ann, bob):
        w.disconnect(each)
    w.passes(200)
    leases = w.region.leases
    assert (leases.holds, dict(leases.deadlines), leases._places) == ({}, {}, {})
    assert w.owners() == {"2-0": "bob"}


@pytest.mark.parametrize("reason", ["the disk", "a pause"])
def test_nothing_is_released_while_nothing_may_be_written(w: Workers, reason: str) -> None:
    ann = w.connect()
    w.read(ann, "ann")
    w.disconnect(ann)
    if reason == "a pause":
        w.run("CLIENT PAUSE 5000 WRITE")
    else:
        w.region.dispatcher.refuse_writes("disk", "MISCONF")
    w.passes(4000)
    assert w.owners() == {"1-0": "ann"}
    w.region.dispatcher.allow_writes("disk")
    w.passes(1500)
    assert w.owners() == {"1-0": ""}


# -- late work --------------------------------------------------------------------------------


def test_late_work_counts_until_another_one_has_the_entry() -> None:
    w = Workers("heartbeat:1s")
    ann, bob = w.connect(), w.connect()
    w.read(ann, "ann", "COUNT 2")
    w.passes(1200)
    assert w.owners() == {"1-0": "", "2-0": ""}
    assert w.run("XACK s g 1-0", session=ann) == 1
    assert w.read(bob, "bob") == ["2-0"]
    assert w.run("AB.RENEW s g ann 1 2-0", session=ann) == []
    assert w.run("XACK s g 2-0", session=ann) == 0
    assert w.run("XNACK s g FAIL IDS 1 2-0", session=ann) == 0
    assert w.run("XACKDEL s g KEEPREF IDS 1 2-0", session=ann) == [-1]
    assert w.owners() == {"2-0": "bob"}
    assert w.run("XACK s g 2-0", session=bob) == 1


def test_a_stranger_may_acknowledge_what_another_one_lost() -> None:
    w = Workers("heartbeat:1s")
    ann, bob = w.connect(), w.connect()
    w.read(ann, "ann")
    w.passes(1200)
    w.read(bob, "bob")
    assert w.run("XACK s g 1-0", session=w.connect()) == 1


# -- heartbeat --------------------------------------------------------------------------------


def test_each_command_by_the_name_is_a_heartbeat() -> None:
    w = Workers("heartbeat:1s")
    ann = w.connect()
    w.read(ann, "ann", "COUNT 3")
    for line in (
        "AB.RENEW s g ann 1",
        "XACK s g 1-0",
        "XAUTOCLAIM s g ann 1000000 0",
        "XREADGROUP GROUP g ann COUNT 1 STREAMS s >",
        "XNACK s g FAIL IDS 1 2-0",
    ):
        w.passes(900)
        w.run(line, session=w.connect())
        assert w.owners()["3-0"] == "ann"
    w.passes(1200)
    assert set(w.owners().values()) == {""}


def test_an_open_connection_is_no_heartbeat() -> None:
    w = Workers("heartbeat:1s")
    w.read(w.connect(), "ann")
    w.passes(1200)
    assert w.owners() == {"1-0": ""}


def test_a_worker_that_rested_is_looked_at_again() -> None:
    w = Workers("heartbeat:1s")
    ann = w.connect()
    w.read(ann, "ann")
    w.run("XACK s g 1-0", session=ann)
    w.passes(10_000)
    w.read(ann, "ann")
    w.passes(900)
    assert w.owners() == {"2-0": "ann"}
    w.passes(300)
    assert w.owners() == {"2-0": ""}


def test_who_was_expected_after_a_start_and_came_is_looked_at_as_usual() -> None:
    w = Workers("heartbeat:1s")
    w.read(w.connect(), "ann")
    w.run("DEBUG RELOAD")
    w.region.leases.holds.clear()
    w.region.leases._places.clear()
    w.passes(200)
    w.run("AB.RENEW s g ann 1")
    w.passes(1200)
    assert w.owners() == {"1-0": ""}


# -- time -------------------------------------------------------------------------------------


def test_each_entry_has_its_own_time() -> None:
    w = Workers("time:1s")
    ann = w.connect()
    w.read(ann, "ann")
    w.passes(600)
    w.read(ann, "ann")
    w.passes(600)
    assert w.owners() == {"1-0": "", "2-0": "ann"}
    w.passes(600)
    assert w.owners() == {"1-0": "", "2-0": ""}


def test_a_renewed_entry_has_the_time_that_was_asked_for() -> None:
    w = Workers("time:1s")
    ann = w.connect()
    w.read(ann, "ann", "COUNT 3")
    w.passes(900)
    assert w.run("AB.RENEW s g ann 5s 2-0 3-0 9-0", session=ann) == ["2-0", "3-0"]
    assert w.run("AB.RENEW s g ann 500ms 3-0", session=ann) == ["3-0"]
    w.passes(300)
    assert w.owners() == {"1-0": "", "2-0": "ann", "3-0": "ann"}
    w.passes(300)
    assert w.owners() == {"1-0": "", "2-0": "ann", "3-0": ""}
    w.passes(4300)
    assert w.owners()["2-0"] == "ann"
    w.passes(200)
    assert w.owners()["2-0"] == ""


def test_a_renewal_without_ids_is_for_all_entries_of_the_consumer() -> None:
    w = Workers("time:1s")
    w.read(w.session, "ann", "COUNT 2")
    w.read(w.session, "bob")
    w.passes(900)
    assert w.run("AB.RENEW s g ann 1s") == ["1-0", "2-0"]
    w.passes(500)
    assert w.owners() == {"1-0": "ann", "2-0": "ann", "3-0": ""}


def test_a_time_goes_on_over_a_restart() -> None:
    w = Workers("time:1s")
    w.read(w.connect(), "ann")
    w.run("AB.RENEW s g ann 3s")
    w.passes(500)
    w.run("DEBUG RELOAD")
    w.region.leases.deadlines.clear()
    w.passes(2400)
    assert w.owners() == {"1-0": "ann"}
    w.passes(300)
    assert w.owners() == {"1-0": ""}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("AB.RENEW s g ann soon 1-0", "ERR invalid time for AB.RENEW: a duration is"),
        ("AB.RENEW s g ann 1s x", "ERR Invalid stream ID"),
        ("AB.RENEW s nobody ann 1s", "NOGROUP"),
        ("AB.POLICY SET s lease conn", "ERR policy 'lease' cannot be 'conn': a lease is"),
        ("AB.POLICY SET s lease time", "ERR policy 'lease' cannot be 'time': a lease is"),
        ("AB.POLICY SET s lease time:0", "ERR policy 'lease' cannot be 'time:0': a duration is"),
    ],
)
def test_mistakes(w: Workers, line: str, error: str) -> None:
    assert w.fails(line).startswith(error)


def test_values_have_their_usual_form(w: Workers) -> None:
    for given, shown in (
        ("connection", "connection:1s"),
        ("CONNECTION:0", "connection:0ms"),
        ("heartbeat:90000", "heartbeat:90s"),
        ("time:3600s", "time:1h"),
        ("none", "none"),
    ):
        w.run(f"AB.POLICY SET s lease {given}")
        rows = [as_map(row) for row in w.run("AB.POLICY GET s")]
        by_name = {row["policy"]: row["value"] for row in rows}
        assert by_name["lease"] == shown
        assert by_name["redeliver"] == ("claim" if given == "none" else "first")


def test_a_renewal_may_shorten_the_time_of_all_entries() -> None:
    w = Workers("time:1h")
    w.read(w.session, "ann")
    w.run("AB.RENEW s g ann 500ms")
    w.passes(400)
    assert set(w.owners().values()) == {"ann"}
    w.passes(200)
    assert set(w.owners().values()) == {""}


# -- where it is shown ------------------------------------------------------------------------


def shown(w: Workers) -> dict[str, tuple[int, list[int], int | None]]:
    """Pending entries, connections and the end of the lease by consumer, as AB.INFO has them."""
    group = as_map(w.run("AB.INFO s GROUP g"))
    rows = map(as_map, group["consumers"])
    return {row["name"]: (row["pending"], row["connections"], row["lease-ends-in"]) for row in rows}


def test_ab_info_shows_who_holds_what_and_until_when(w: Workers) -> None:
    ann, more, bob = w.connect(), w.connect(), w.connect()
    w.read(ann, "ann")
    w.read(more, "ann")
    w.read(bob, "bob")
    assert shown(w) == {"ann": (2, [ann.id, more.id], None), "bob": (1, [bob.id], None)}
    w.disconnect(bob)
    w.passes(400)
    assert shown(w)["bob"] == (1, [], GRACE - 400)
    w.passes(GRACE)
    group = as_map(w.run("AB.INFO s GROUP g"))
    assert (group["pending"], group["released"]) == (3, 1)
    assert as_map(group["policies"]) == {"lease": "connection:1s"}


def test_ab_info_shows_the_end_of_a_heartbeat(w: Workers) -> None:
    w.run("AB.POLICY SET s lease heartbeat:5s")
    ann = w.connect()
    w.read(ann, "ann")
    w.passes(2000)
    assert shown(w) == {"ann": (1, [ann.id], 3000)}
    w.run("AB.POLICY SET s lease time:5s")
    assert shown(w) == {"ann": (1, [ann.id], None)}
    w.run("AB.POLICY DEL s")
    assert shown(w) == {}


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        ("AB.INFO s GROUP", "ERR syntax error"),
        ("AB.INFO s OF g", "ERR syntax error"),
        ("AB.INFO s GROUP none", "NOGROUP No such consumer group 'none' for key name 's'"),
        ("AB.INFO none GROUP g", "ERR no such key"),
    ],
)
def test_ab_info_of_what_is_not_there(w: Workers, request_: str, answer: str) -> None:
    assert w.fails(request_) == answer
