"""AB.SUBSCRIBE, AB.CREDIT, AB.UNSUBSCRIBE: pushes, credit, and what ends a subscription."""

from __future__ import annotations

import random
from typing import Any

import pytest

from anabranch.commands.extensions import subscribing
from anabranch.engine.session import Session
from anabranch.scheduling import SLICE_NS
from tests.support.region_harness import decode_all
from tests.support.streams import Streams


@pytest.fixture
def s() -> Streams:
    return Streams(stream_node_max_entries=4)


def turns(s: Streams) -> None:
    """Let everything go on that waits for a later turn."""
    s.settle()
    while len(s.region.scheduler):
        s.region.scheduler.run_turn()
        s.settle()


def subscribe(s: Streams, words: str, session: Session | None = None) -> Session:
    session = session or s.connect(resp3=True)
    assert s.shows(f"AB.SUBSCRIBE {words}", session) == "+OK"
    turns(s)
    return session


def replies(s: Streams, session: Session) -> list[Any]:
    """What the connection got, pushes and replies."""
    turns(s)
    return decode_all(s.received(session))


def pushed(s: Streams, session: Session) -> list[tuple[str, str]]:
    """Streams and IDs of the pushed entries; no other push may be there."""
    found = []
    for push in replies(s, session):
        if not isinstance(push, list):
            continue  # a reply
        assert push[0] == b"ab.entries"
        for key, entries, *_ in push[1]:
            found += [(key.decode(), entry_id.decode()) for entry_id, _ in entries]
    return found


def group(s: Streams, *keys: str) -> None:
    for key in keys:
        s.run(f"XGROUP CREATE {key} g 0 MKSTREAM")


# -- with a group -----------------------------------------------------------------------------


def test_entries_are_pushed_as_they_come_and_an_acknowledgement_gives_credit(s: Streams) -> None:
    group(s, "a", "b")
    s.count_to("a", 1)
    worker = subscribe(s, "CREDIT 3 GROUP g w STREAMS a b")
    assert pushed(s, worker) == [("a", "1-0")]
    s.count_to("b", 9)
    assert pushed(s, worker) == [("b", "1-0"), ("b", "2-0")]
    assert [row[1] for row in s.pending("b")] == ["w", "w"]
    assert s.shows("XACK a g 1-0", worker) == "1"
    assert pushed(s, worker) == [("b", "3-0")]
    assert s.shows("XACKDEL b g IDS 2 1-0 2-0", worker) == "[1, 1]"
    assert pushed(s, worker) == [("b", "4-0"), ("b", "5-0")]
    s.shows("PING", worker)
    assert pushed(s, worker) == []


def test_credit_is_shared_among_streams(s: Streams) -> None:
    group(s, "busy", "calm", "dull")
    s.count_to("busy", 100)
    s.count_to("calm", 1)
    s.count_to("dull", 2)
    worker = subscribe(s, "CREDIT 9 GROUP g w STREAMS busy calm dull")
    got = pushed(s, worker)
    assert sorted(got)[-3:] == [("calm", "1-0"), ("dull", "1-0"), ("dull", "2-0")]
    assert len(got) == 9


def test_credit_comes_back_when_another_one_takes_the_entries(s: Streams) -> None:
    group(s, "a")
    worker = subscribe(s, "CREDIT 2 GROUP g w STREAMS a")
    s.count_to("a", 4)
    assert len(pushed(s, worker)) == 2
    s.run("XCLAIM a g other 0 1-0 2-0")
    assert pushed(s, worker) == []
    s.advance(1001)
    s.region.tick()
    assert pushed(s, worker) == [("a", "3-0"), ("a", "4-0")]


def test_what_the_consumer_has_already_takes_credit(s: Streams) -> None:
    group(s, "a")
    s.count_to("a", 5)
    s.run("XREADGROUP GROUP g w COUNT 2 STREAMS a >")
    worker = subscribe(s, "CREDIT 2 GROUP g w STREAMS a")
    assert pushed(s, worker) == []
    s.shows("XACK a g 1-0", worker)
    assert pushed(s, worker) == [("a", "3-0")]


def test_workers_take_turns(s: Streams) -> None:
    group(s, "a")
    workers = [subscribe(s, f"CREDIT 10 GROUP g w{n} STREAMS a") for n in range(3)]
    s.count_to("a", 6)
    assert [len(pushed(s, worker)) for worker in workers] == [2, 2, 2]
    s.region.keyspace.databases[0].check()
    for worker in workers:
        s.region.close_session(worker)
    assert s.region.holdings.by_holder["waiting"] == 0


def test_a_blocked_reader_and_a_subscription_share_a_group(s: Streams) -> None:
    group(s, "a")
    worker = subscribe(s, "CREDIT 1 GROUP g w STREAMS a")
    reader = s.waits("XREADGROUP GROUP g r BLOCK 0 STREAMS a >")
    s.count_to("a", 2)
    assert pushed(s, worker) == [("a", "1-0")]
    assert "2-0" in s.answer(reader)


def test_a_stream_without_its_group_is_left_out_and_the_last_one_ends_it(s: Streams) -> None:
    group(s, "a", "b")
    worker = subscribe(s, "CREDIT 5 GROUP g w STREAMS a b")
    s.run("XGROUP DESTROY a g")
    ((kind, key, error),) = replies(s, worker)
    assert (kind, key) == (b"ab.gone", b"a")
    assert error.startswith(b"NOGROUP")
    group(s, "a")
    s.count_to("a", 1)
    s.count_to("b", 1)
    assert pushed(s, worker) == [("b", "1-0")]
    s.run("DEL b")
    gone, ended = replies(s, worker)
    assert gone[:2] == [b"ab.gone", b"b"]
    assert ended[0] == b"ab.unsubscribed"
    assert worker.subscribed is None
    assert not s.region.keyspace.waiters.active


def test_many_entries_come_in_several_pushes(s: Streams) -> None:
    group(s, "a")
    s.count_to("a", 1200)
    worker = subscribe(s, "CREDIT 2000 GROUP g w STREAMS a")
    pushes = replies(s, worker)
    assert [len(push[1][0][1]) for push in pushes] == [500, 500, 200]


def test_streams_that_change_at_once_are_looked_at_once(
    s: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    look = subscribing.look

    def counted(ctx: Any, request: Any, names: list[bytes], *, is_whole: bool) -> Any:
        looked.append(len(names))
        return look(ctx, request, names, is_whole=is_whole)

    monkeypatch.setattr(subscribing, "look", counted)
    keys = [f"k{number}" for number in range(100)]
    reader = subscribe(s, "CREDIT 1000 FROM $ PATTERN k*")
    for _ in range(2):
        s.run("MULTI", *(f"XADD {key} * f v" for key in keys), "EXEC")
        turns(s)
        assert sorted(key for key, _ in pushed(s, reader)) == sorted(keys)
    assert sum(looked) < 1000  # each key made it look at all of them: 20,000


# -- policies ---------------------------------------------------------------------------------


def test_one_subscription_follows_ten_thousand_streams(
    s: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn looks at some of them, and an entry of one costs nothing for the others."""
    looks: list[bytes] = []

    def counted(ctx: Any, words: list[bytes]) -> Any:
        looks.append(words[-2])
        return xreadgroup(ctx, words)

    xreadgroup = subscribing.xreadgroup
    monkeypatch.setattr(subscribing, "xreadgroup", counted)
    keys = [f"s{number}" for number in range(10_000)]
    group(s, *keys)
    s.fill("s7", "1-0", "2-0")
    s.run("XREADGROUP GROUP g w COUNT 1 STREAMS s7 >")
    session = s.connect(resp3=True)
    s.region.scheduler.drive(lambda: None)
    s.clock.tick_ns = SLICE_NS
    s.do("AB.SUBSCRIBE", "CREDIT", 3, "GROUP", "g", "w", "STREAMS", *keys, session=session)
    most = 0
    while len(s.region.scheduler):
        before = len(looks)
        s.region.scheduler.run_turn()
        most = max(most, len(looks) - before)
    assert (most, len(looks)) == (subscribing._LOOKED_AT, 10_001)
    assert pushed(s, session) == [("s7", "2-0")]
    looks.clear()
    s.fill("s9", "1-0", "2-0")
    assert pushed(s, session) == [("s9", "1-0")], "the credit is used up"
    assert set(looks) == {b"s9"}
    assert s.do("XACK", "s7", "g", "1-0", session=session) == 1
    assert pushed(s, session) == [("s9", "2-0")]
    assert s.region.keyspace.waiters.active
    s.region.close_session(session)
    assert not s.region.keyspace.waiters.active


def test_the_connection_holds_a_lease_and_what_it_leaves_is_pushed_to_others(s: Streams) -> None:
    group(s, "a")
    s.run("AB.POLICY SET a GROUP g lease connection:1s")
    one = subscribe(s, "CREDIT 2 GROUP g one STREAMS a")
    s.count_to("a", 2)
    assert len(pushed(s, one)) == 2
    other = subscribe(s, "CREDIT 2 GROUP g other STREAMS a")
    for _ in range(20):
        s.advance(1000)
        s.region.tick()
    assert pushed(s, other) == []
    s.region.close_session(one)
    for _ in range(3):
        s.advance(1000)
        s.region.tick()
    assert pushed(s, other) == [("a", "1-0"), ("a", "2-0")]


def test_a_consumer_that_comes_back_without_credit_keeps_its_entries(s: Streams) -> None:
    group(s, "a")
    s.run("AB.POLICY SET a GROUP g lease connection:1s")
    s.count_to("a", 2)
    before = s.connect()
    s.run("XREADGROUP GROUP g w COUNT 2 STREAMS a >", session=before)
    subscribe(s, "CREDIT 1 GROUP g w STREAMS a")
    s.region.close_session(before)
    for _ in range(20):
        s.advance(1000)
        s.region.tick()
        turns(s)
    assert s.run("XREADGROUP GROUP g other STREAMS a >") is None


def test_max_pending_and_max_deliveries_hold_for_pushes(s: Streams) -> None:
    group(s, "a")
    s.run(
        "AB.POLICY SET a GROUP g max-pending group:2 redeliver first max-deliveries 2"
        " dead-letter dead"
    )
    worker = subscribe(s, "CREDIT 10 GROUP g w STREAMS a")
    s.count_to("a", 5)
    assert pushed(s, worker) == [("a", "1-0"), ("a", "2-0")]
    s.region.execute(worker, [b"XNACK a g FAIL IDS 1 1-0".split()])
    assert pushed(s, worker) == [("a", "1-0")]
    s.region.execute(worker, [b"XNACK a g FAIL IDS 1 1-0".split()])
    assert pushed(s, worker) == [("a", "3-0")]
    assert s.run("XLEN dead") == 1


def test_a_policy_makes_the_group(s: Streams) -> None:
    s.run("AB.POLICY SET a auto-create-group g:0")
    worker = subscribe(s, "CREDIT 1 GROUP g w STREAMS a")
    s.count_to("a", 1)
    assert pushed(s, worker) == [("a", "1-0")]


# -- without a group --------------------------------------------------------------------------


def test_a_reader_gives_credit_by_itself_and_learns_where_it_stands(s: Streams) -> None:
    s.count_to("t:1", 3)
    reader = subscribe(s, "CREDIT 2 FROM 0 PATTERN t:*")
    assert pushed(s, reader) == [("t:1", "1-0"), ("t:1", "2-0")]
    s.count_to("t:2", 2)
    assert pushed(s, reader) == []
    cursor = s.shows("AB.CREDIT 2", reader).strip("'")
    assert pushed(s, reader) == [("t:2", "1-0"), ("t:1", "3-0")]
    assert s.run(f"AB.READ COUNT 1 FROM {cursor} PATTERN t:*")[1][0][0] == "t:2"
    end = s.shows("AB.UNSUBSCRIBE", reader).strip("'")
    s.count_to("t:3", 1)
    assert pushed(s, reader) == []
    assert [row[0] for row in s.run(f"AB.READ FROM {end} PATTERN t:*")[1]] == ["t:2", "t:3"]


def test_what_comes_while_a_reader_has_no_credit_is_pushed_later(s: Streams) -> None:
    s.count_to("a", 2)
    reader = subscribe(s, "CREDIT 2 FROM 0 STREAMS a b")
    assert len(pushed(s, reader)) == 2
    s.count_to("b", 1)
    assert pushed(s, reader) == []
    s.region.execute(reader, [[b"AB.CREDIT", b"1"]])
    assert pushed(s, reader) == [("b", "1-0")]


def test_conditions_and_notes_hold_for_pushes(s: Streams) -> None:
    reader = subscribe(s, "CREDIT 9 FROM $ NOTES WHERE f = x STREAMS a")
    s.run("XADD a 1-0 f y", "XADD a 2-0 f x", "AB.SEAL a")
    first, end = replies(s, reader)
    assert first == [b"ab.entries", [[b"a", [[b"2-0", [b"f", b"x"]]], []]]]
    assert end == [b"ab.entries", [[b"a", [], [[b"end"]]]]]
    assert s.region.keyspace.waiters.blocked == 0


# -- the connection ---------------------------------------------------------------------------


def test_the_connection_goes_on_with_other_requests(s: Streams) -> None:
    group(s, "a")
    worker = subscribe(s, "CREDIT 5 GROUP g w STREAMS a")
    s.shows("SELECT 3", worker)
    s.shows("MULTI", worker)
    s.count_to("a", 1)
    assert pushed(s, worker) == [("a", "1-0")]
    s.shows("SET k v", worker)
    assert s.shows("EXEC", worker) == "[+OK]"
    waiting = s.shows("BLPOP list 0", worker)
    assert waiting == ""
    s.count_to("a", 2, 2)
    assert pushed(s, worker) == [("a", "2-0")]
    assert s.info("a")["length"] == 2
    line = next(line for line in s.run("CLIENT LIST").splitlines() if f"id={worker.id} " in line)
    assert "flags=Pb" in line
    assert "blocked_clients:1\r\n" in s.run("INFO clients")
    assert "pubsub_clients:1\r\n" in s.run("INFO clients")


@pytest.mark.parametrize("end", ["RESET", "AB.UNSUBSCRIBE", "close"])
def test_what_ends_a_subscription(s: Streams, end: str) -> None:
    group(s, "a")
    worker = subscribe(s, "CREDIT 5 GROUP g w STREAMS a")
    before = s.region.holdings.by_holder["waiting"]
    assert before > 0
    if end == "close":
        s.region.close_session(worker)
    else:
        s.shows(end, worker)
    s.count_to("a", 1)
    assert replies(s, worker) == []
    assert s.region.holdings.by_holder["waiting"] == 0
    assert not s.region.keyspace.databases[0].waiters
    assert not s.region.keyspace.waiters.active


def test_a_user_who_loses_a_permission_loses_the_subscription(s: Streams) -> None:
    group(s, "a")
    s.run("ACL SETUSER u on nopass ~a +@all")
    worker = s.connect(resp3=True)
    s.run("AUTH u x", session=worker)
    subscribe(s, "CREDIT 5 GROUP g w STREAMS a", worker)
    assert s.shows("AB.UNSUBSCRIBE", worker) == "+OK"
    assert s.fails("AB.SUBSCRIBE CREDIT 5 GROUP g w STREAMS a b", worker).startswith("NOPERM")
    subscribe(s, "CREDIT 5 GROUP g w STREAMS a", worker)
    s.run("ACL SETUSER u resetkeys ~b")
    s.count_to("a", 1)
    ((kind, error),) = replies(s, worker)
    assert kind == b"ab.unsubscribed"
    assert error.startswith(b"NOPERM")
    assert s.run("XPENDING a g")[0] == 0


def test_a_pause_of_writes_holds_pushes_of_a_group_back(s: Streams) -> None:
    group(s, "a", "b")
    worker = subscribe(s, "CREDIT 5 GROUP g w STREAMS a b")
    s.count_to("a", 1)
    assert len(pushed(s, worker)) == 1
    other = s.connect()
    s.run("MULTI", "XADD a 2-0 f v", "CLIENT PAUSE 1000 WRITE", "EXEC", session=other)
    assert pushed(s, worker) == []
    s.run("CLIENT UNPAUSE")
    s.region.tick()
    assert pushed(s, worker) == [("a", "2-0")]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("AB.SUBSCRIBE GROUP g w STREAMS a b", "ERR AB.SUBSCRIBE CREDIT n GROUP"),
        ("AB.SUBSCRIBE CREDIT 1 STREAMS a b c", "ERR AB.SUBSCRIBE CREDIT n GROUP"),
        ("AB.SUBSCRIBE CREDIT 1 GROUP g w PATTERN a", "ERR AB.SUBSCRIBE CREDIT n GROUP"),
        ("AB.SUBSCRIBE CREDIT 1 GROUP g w FROM 0 STREAMS a", "ERR AB.SUBSCRIBE CREDIT n GROUP"),
        ("AB.SUBSCRIBE CREDIT 1 FROM 0 BLOCK 0 STREAMS a", "ERR AB.SUBSCRIBE CREDIT n GROUP"),
        ("AB.SUBSCRIBE CREDIT 0 GROUP g w STREAMS a", "ERR CREDIT is a number of entries"),
        ("AB.SUBSCRIBE CREDIT x GROUP g w STREAMS a", "ERR CREDIT is a number of entries"),
        ("AB.SUBSCRIBE CREDIT 1 GROUP h w STREAMS a", "NOGROUP"),
        ("AB.SUBSCRIBE CREDIT 1 GROUP g w STREAMS a none", "NOGROUP"),
        ("AB.SUBSCRIBE CREDIT 1 FROM 1-0 STREAMS a", "ERR Invalid cursor"),
        ("AB.CREDIT 1", "ERR This connection has no subscription"),
        ("AB.UNSUBSCRIBE", "ERR This connection has no subscription"),
    ],
)
def test_bad_requests_are_explained(s: Streams, line: str, error: str) -> None:
    group(s, "a")
    session = s.connect(resp3=True)
    assert s.fails(line, session).startswith(error)
    assert session.subscribed is None


def test_what_a_connection_cannot_do(s: Streams) -> None:
    group(s, "a")
    words = "AB.SUBSCRIBE CREDIT 1 GROUP g w STREAMS a"
    assert s.fails(words).startswith("ERR AB.SUBSCRIBE pushes entries, which RESP2 cannot")
    worker = subscribe(s, words.removeprefix("AB.SUBSCRIBE "))
    assert s.fails(words, worker).startswith("ERR This connection has a subscription already")
    assert s.fails("HELLO 2", worker).startswith("ERR entries are pushed with RESP3 only")
    assert s.fails("AB.CREDIT 1", worker).startswith("ERR A consumer of a group gets credit")
    other = s.connect(resp3=True)
    s.shows("MULTI", other)
    assert s.shows(words, other) == "+QUEUED"
    assert "not allowed inside a transaction" in s.shows("EXEC", other)


# -- any history ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_each_entry_goes_to_one_consumer_within_its_credit(seed: int) -> None:
    rng = random.Random(seed)
    s = Streams(stream_node_max_entries=4)
    keys = ["a", "b", "c"]
    group(s, *keys)
    owners: dict[tuple[str, str], Session] = {}
    workers = [
        (subscribe(s, f"CREDIT {credit} GROUP g w{credit} STREAMS a b c"), credit)
        for credit in (1, 3, 7)
    ]
    held: dict[Session, list[tuple[str, str]]] = {worker: [] for worker, _ in workers}

    def take() -> None:
        for worker, credit in workers:
            for place in pushed(s, worker):
                assert place not in owners, "delivered twice"
                owners[place] = worker
                held[worker].append(place)
            assert len(held[worker]) <= credit

    added = 0
    for _ in range(150):
        worker, _ = rng.choice(workers)
        if rng.random() < 0.5:
            for _ in range(rng.randint(1, 4)):
                added += 1
                s.fill(rng.choice(keys), f"{added}-0")
        elif held[worker]:
            key, entry_id = held[worker].pop(rng.randrange(len(held[worker])))
            assert s.raw("XACK", key, "g", entry_id, session=worker)[:4] == b":1\r\n"
        take()
    while any(held.values()):
        for worker, _ in workers:
            for key, entry_id in held[worker]:
                s.raw("XACK", key, "g", entry_id, session=worker)
            held[worker].clear()
        take()
    assert len(owners) == added
    assert all(s.run(f"XPENDING {key} g")[0] == 0 for key in keys)
    s.region.keyspace.databases[0].check()
