"""AB.READ with FROM: many streams, or a pattern, with one cursor, on a server of its own.

Between regions: ``tests/active_active/test_joint_cursors.py``.
"""

from __future__ import annotations

import random
from ast import literal_eval
from typing import Any

import pytest

from anabranch.commands.extensions import joint_read, reading
from anabranch.engine.session import Session
from anabranch.keyspace import following, joint_cursor
from anabranch.keyspace.joint_cursor import JointCursor, cursor_steps
from anabranch.scheduling import SLICE_NS, in_one_go
from anabranch.version import IS_COMPILED
from tests.support.streams import BOTH_PROTOCOLS, WRONGTYPE, Streams

NO_CURSOR = "ERR Invalid cursor: behind FROM it is 0, $, or what an earlier reply of this form gave"


@pytest.fixture
def s() -> Streams:
    return Streams(stream_node_max_entries=4)


def read(s: Streams, cursor: str, options: str = "", of: str = "PATTERN *") -> tuple[str, Any]:
    """The next cursor, and the IDs by stream."""
    following_cursor, rows = s.run(f"AB.READ {options} FROM {cursor} {of}")
    return following_cursor, {row[0]: [entry[0] for entry in row[1]] for row in rows}


# -- which entries ----------------------------------------------------------------------------


def test_one_cursor_goes_on_in_all_streams(s: Streams) -> None:
    s.count_to("a", 3)
    s.count_to("b", 2)
    cursor, got = read(s, "0", of="STREAMS a b none")
    assert got == {"a": ["1-0", "2-0", "3-0"], "b": ["1-0", "2-0"]}
    assert read(s, cursor, of="STREAMS a b none") == (cursor, {})
    s.fill("b", "9-0")
    s.fill("none", "1-0")
    cursor, got = read(s, cursor, of="STREAMS a b none")
    assert got == {"b": ["9-0"], "none": ["1-0"]}
    assert read(s, cursor, of="STREAMS a b none b") == (cursor, {})


def test_streams_that_come_later_are_read_from_their_beginning(s: Streams) -> None:
    s.count_to("t:1", 2)
    cursor, got = read(s, "$", of="PATTERN t:*")
    assert got == {}
    s.run("SET t:text x", "XADD other 1-0 f v")
    s.count_to("t:2", 2)
    s.fill("t:1", "3-0")
    cursor, got = read(s, cursor, of="PATTERN t:*")
    assert got == {"t:1": ["3-0"], "t:2": ["1-0", "2-0"]}
    s.run("DEL t:text", "XADD t:text 5-0 f v")
    assert read(s, cursor, of="PATTERN t:*")[1] == {"t:text": ["5-0"]}


@pytest.mark.parametrize("of", ["STREAMS a b", "PATTERN [ab]"])
def test_a_stream_that_is_deleted_and_made_again_is_read_as_a_new_one(s: Streams, of: str) -> None:
    s.count_to("a", 5)
    s.count_to("b", 1)
    cursor, _ = read(s, "0", of=of)
    s.run("DEL a")
    assert read(s, cursor, of=of)[1] == {}
    s.count_to("a", 2)
    cursor, got = read(s, cursor, of=of)
    assert got == {"a": ["1-0", "2-0"]}
    s.run("RENAME a b")
    assert read(s, cursor, of=of)[1] == {"b": ["1-0", "2-0"]}


def test_streams_that_are_gone_leave_the_cursor_of_a_pattern(s: Streams) -> None:
    for number in range(50):
        s.fill(f"t:{number}", "1-0")
    cursor, got = read(s, "0", of="PATTERN t:*")
    assert len(got) == 50
    s.run("FLUSHALL", "XADD t:1 2-0 f v")
    after, got = read(s, cursor, of="PATTERN t:*")
    assert got == {"t:1": ["2-0"]}
    assert len(after) < 50 < len(cursor)
    assert list(s.region.keyspace.databases[0].following.patterns[b"t:*"].keys) == [b"t:1"]


def test_notes_tell_of_gaps_and_once_of_each_end(s: Streams) -> None:
    s.count_to("a", 4)
    s.count_to("b", 2)
    cursor, _ = read(s, "0", "COUNT 2")
    s.run("XTRIM a MAXLEN 1", "AB.SEAL b")
    cursor, rows = s.run(f"AB.READ NOTES FROM {cursor} PATTERN *")
    assert [(row[0], len(row[1]), row[2]) for row in rows] == [
        ("a", 1, [["gap", 2, 3]]),
        ("b", 1, [["end"]]),
    ]
    assert s.run(f"AB.READ NOTES FROM {cursor} PATTERN *") == [cursor, []]
    s.run("AB.SEAL a")
    cursor, rows = s.run(f"AB.READ NOTES FROM {cursor} PATTERN *")
    assert rows == [["a", [], [["end"]]]]
    s.run("DEL a")
    s.fill("a", "9-0")
    cursor, rows = s.run(f"AB.READ NOTES FROM {cursor} PATTERN *")
    assert [row[2] for row in rows] == [[]]
    s.run("AB.SEAL a")
    assert s.run(f"AB.READ NOTES FROM {cursor} PATTERN *")[1] == [["a", [], [["end"]]]]


# -- sharing ----------------------------------------------------------------------------------


def test_count_is_shared_and_what_one_does_not_need_goes_to_others(s: Streams) -> None:
    s.count_to("busy", 100)
    s.count_to("calm", 2)
    s.count_to("dull", 3)
    cursor, got = read(s, "0", "COUNT 30")
    assert {key: len(ids) for key, ids in got.items()} == {"busy": 25, "calm": 2, "dull": 3}
    assert len(read(s, cursor, "COUNT 30")[1]["busy"]) == 30


@pytest.mark.parametrize("limit", ["COUNT 2", "MAXCOUNT 2", "MAXSIZE 1"])
def test_busy_streams_keep_nobody_waiting(s: Streams, limit: str) -> None:
    keys = [f"k{number}" for number in range(7)]
    for key in keys:
        s.count_to(key, 40)
    cursor, seen = "0", dict.fromkeys(keys, 0)
    for call in range(14 if limit == "MAXSIZE 1" else 8):
        cursor, got = read(s, cursor, limit)
        assert sum(map(len, got.values())) == (1 if limit == "MAXSIZE 1" else 2), call
        for key, ids in got.items():
            seen[key] += len(ids)
    assert min(seen.values()) >= 2


# -- waiting ----------------------------------------------------------------------------------


@BOTH_PROTOCOLS
@pytest.mark.parametrize("of", ["STREAMS a b c", "PATTERN [abc]"])
def test_a_reader_waits_for_all_streams(s: Streams, of: str, resp3: bool) -> None:
    s.count_to("a", 1)
    cursor, _ = read(s, "0", of=of)
    for key, entry_id in (("a", "2-0"), ("c", "1-0"), ("c", "2-0"), ("b", "1-0")):
        waiting = s.waits(f"AB.READ BLOCK 0 FROM {cursor} {of}", resp3=resp3)
        s.fill("other", "*")
        s.fill(key, entry_id)
        assert f"[['{key}', [['{entry_id}'" in s.answer(waiting)
        cursor, got = read(s, cursor, of=of)
        assert got == {key: [entry_id]}
        assert not s.region.keyspace.databases[0].waiters
    assert not s.region.context.session.holdings.by_holder.get("waiting")


def test_the_end_of_a_wait_moves_the_cursor_past_what_did_not_match(s: Streams) -> None:
    waiting = s.waits("AB.READ BLOCK 50 WHERE f = x FROM 0 PATTERN *")
    s.count_to("a", 3)
    assert s.answer(waiting) == ""
    s.advance(60)
    s.region.tick()
    cursor = s.answer(waiting).split("'")[1]
    s.run("XADD a 4-0 f x")
    assert read(s, cursor)[1] == {"a": ["4-0"]}


def test_new_streams_are_found_while_readers_wait(s: Streams) -> None:
    one = s.waits("AB.READ BLOCK 0 FROM 0 PATTERN t:*")
    other = s.waits("AB.READ BLOCK 0 FROM 0 PATTERN t:[12]")
    s.run("XGROUP CREATE t:3 g $ MKSTREAM", "XGROUP CREATE t:1 g $ MKSTREAM")
    assert s.answer(one) == s.answer(other) == ""
    s.run("DEL t:1", "XGROUP CREATE t:1 g $ MKSTREAM", "XADD t:1 1-0 f v")
    assert "t:1" in s.answer(one)
    assert "t:1" in s.answer(other)
    s.region.keyspace.databases[0].check()


def test_a_swap_of_databases_brings_other_streams(s: Streams) -> None:
    session = s.connect()
    s.run("SELECT 1", "XADD t:1 1-0 f v", session=session)
    s.fill("x", "1-0")
    cursor, got = read(s, "0", of="PATTERN t:*")
    assert got == {}
    waiting = s.waits(f"AB.READ BLOCK 0 FROM {cursor} PATTERN t:*")
    s.run("SWAPDB 0 1")
    assert "t:1" in s.answer(waiting)
    assert read(s, "0", of="PATTERN t:*")[1] == {"t:1": ["1-0"]}
    assert read(s, "0", of="PATTERN x")[1] == {}


def test_a_transaction_does_not_wait(s: Streams) -> None:
    session = s.connect()
    s.run("MULTI", "AB.READ BLOCK 0 FROM 0 PATTERN *", "XADD a 1-0 f v", session=session)
    assert s.run("EXEC", session=session) == [["0", []], "1-0"]


# -- permissions, errors, limits --------------------------------------------------------------


def test_a_pattern_shows_only_what_the_user_may_read(s: Streams) -> None:
    for key in ("mine:1", "yours:1"):
        s.fill(key, "1-0")
    s.run("ACL SETUSER u on nopass ~mine:* %W~yours:* +@all")
    session = s.connect()
    s.run("AUTH u x", session=session)
    cursor, rows = s.run("AB.READ FROM 0 PATTERN *", session=session)
    assert [row[0] for row in rows] == ["mine:1"]
    assert s.fails("AB.READ FROM 0 STREAMS yours:1", session).startswith("NOPERM")
    assert s.fails("AB.READ FROM 0 STREAMS mine:1 yours:1", session).startswith("NOPERM")
    waiting = session
    assert s.shows(f"AB.READ BLOCK 0 FROM {cursor} PATTERN *", waiting) == ""
    s.fill("yours:1", "2-0")
    assert s.answer(waiting) == ""
    s.fill("mine:1", "2-0")
    assert "mine:1" in s.answer(waiting)


@pytest.mark.parametrize("region_id", [0, 1])
def test_a_cursor_names_no_stream_that_the_user_may_not_read(region_id: int) -> None:
    s = Streams(region_id=region_id)
    for key in ("mine:1", "yours:1"):
        s.run(f"XADD {key} * f v")
    s.run("ACL SETUSER u on nopass ~mine:* +@all")
    session = s.connect()
    s.run("AUTH u x", session=session)
    for line in ("FROM 0", "FROM $", "NOTES FROM 0", "NOTES FROM $"):
        cursor, _ = s.run(f"AB.READ {line} PATTERN *", session=session)
        found = in_one_go(cursor_steps(cursor.encode()))
        for _ in range(2):
            assert b"yours:1" not in {**found.rows, **(found.places or {})}
            s.run("XADD mine:1 * f v")
            cursor, _ = s.run(f"AB.READ NOTES FROM {cursor} PATTERN *", session=session)
            found = in_one_go(cursor_steps(cursor.encode()))


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("FROM v1:kwAABQ STREAMS a", NO_CURSOR),
        ("FROM c1: STREAMS a", NO_CURSOR),
        ("FROM c1:AAAA STREAMS a", NO_CURSOR),
        ("FROM 1-0 STREAMS a", NO_CURSOR),
        ("FROM STREAMS a b", "ERR syntax error"),
        ("FROM 0 STREAMS", "ERR syntax error"),
        ("FROM 0 PATTERN a b", "ERR PATTERN takes one pattern, and FROM cursor before it"),
        ("COUNT 1 PATTERN a", "ERR PATTERN takes one pattern, and FROM cursor before it"),
        ("FROM 0 STREAMS text", WRONGTYPE),
        ("FROM 0 GROUP g c STREAMS a", "ERR The GROUP option is only supported by XREADGROUP."),
        ("FROM 0 WHERE f STREAMS a", "ERR syntax error"),
        ("FROM 0 WHERE f > v STREAMS a", "ERR WHERE is followed by 'field = value'"),
    ],
)
def test_bad_requests_are_explained(s: Streams, line: str, error: str) -> None:
    s.run("SET text x")
    assert s.fails(f"AB.READ {line}").startswith(error)


@pytest.mark.parametrize("count", [1, joint_cursor.PAGE + 1])
def test_a_cursor_whose_rows_have_no_pairs_is_refused(s: Streams, count: int) -> None:
    rows = {b"s%d" % number: [1, 2] for number in range(count)}
    good = in_one_go(JointCursor({}, rows, set(), b"").text_steps()).decode()
    assert not s.fails(f"AB.READ FROM {good} STREAMS a").startswith(NO_CURSOR)
    rows[b"s0"] = [1]
    bad = in_one_go(JointCursor({}, rows, set(), b"").text_steps()).decode()
    assert s.fails(f"AB.READ FROM {bad} STREAMS a").startswith(NO_CURSOR)


def test_a_cursor_that_was_cut_or_changed_is_refused(s: Streams) -> None:
    for number in range(30):
        s.fill(f"stream:{number}", "1-0")
    cursor, _ = read(s, "0")
    for at in range(3, len(cursor)):
        changed = cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :]
        for bad in (cursor[:at], changed):
            # The last character has bits without a meaning.
            if at < len(cursor) - 1 or bad is not changed:
                assert s.fails(f"AB.READ FROM {bad} PATTERN *") == NO_CURSOR
    regional = in_one_go(JointCursor({1 << 8 | 1: 5}, {}, set(), b"").text_steps()).decode()
    assert "from a server with regions" in s.fails(f"AB.READ FROM {regional} PATTERN *")


def test_a_cursor_has_a_limit(s: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_read, "STREAMS_MAX", 3)
    for number in range(4):
        s.fill(f"t:{number}", "1-0")
    assert len(read(s, "0", of="PATTERN t:[012]")[1]) == 3
    assert s.fails("AB.READ FROM 0 PATTERN *").startswith("ERR a cursor holds at most")
    waiting = s.waits("AB.READ BLOCK 0 FROM $ PATTERN t:[0124]")
    s.fill("t:4", "1-0")
    assert "a cursor holds at most" in s.answer(waiting)


def test_a_thousand_streams_fit_into_a_short_cursor(s: Streams) -> None:
    for number in range(1000):
        s.fill(f"tenant:{number:04}:events", "1-0")
    cursor, got = read(s, "0")
    assert len(got) == 1000
    assert len(cursor) < 10_000


def test_patterns_that_nobody_uses_are_forgotten(s: Streams) -> None:
    s.fill("a", "1-0")
    waiting = s.waits("AB.READ BLOCK 0 FROM $ PATTERN a*")
    for number in range(2 * following.PATTERNS_MAX):
        read(s, "0", of=f"PATTERN x{number}")
    patterns = s.region.keyspace.databases[0].following.patterns
    assert len(patterns) == following.PATTERNS_MAX
    s.fill("ab", "1-0")
    assert "ab" in s.answer(waiting)


@pytest.mark.skipif(IS_COMPILED, reason="machine code calls nothing that can be seen")
def test_reading_opens_only_streams_with_news(s: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1000):
        s.fill(f"k{number}", "1-0")
    cursor, _ = read(s, "0")
    for key in ("k7", "k70", "k700"):
        s.fill(key, "2-0")
    opened = []
    begin = reading.spans_behind
    monkeypatch.setattr(reading, "spans_behind", lambda *args: opened.append(args) or begin(*args))
    assert read(s, cursor)[1] == {key: ["2-0"] for key in ("k7", "k70", "k700")}
    assert len(opened) == 3


# -- any history ------------------------------------------------------------------------------


class History:
    """Random changes and reads of a few streams; what each reader got, and what it had to get."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.s = Streams(stream_node_max_entries=4)
        self.live: dict[str, dict[str, str]] = {}  # by key: the kinds of entries, by unique names
        self.kinds: dict[tuple[str, str], str] = {}  # of all entries ever
        self.added = 0
        self.changes = True  # while a reader looks in steps
        self.readers = [Reader(self, of, where) for of in OF for where in (None, "k = x", "k ^ y")]

    def step(self, kind_of_step: int | None = None) -> None:
        rng, s = self.rng, self.s
        key = rng.choice("abcd") + rng.choice("12")
        match rng.randrange(12) if kind_of_step is None else kind_of_step:
            case 0 | 1 | 2 | 3 | 4:
                for _ in range(rng.randint(1, 6)):
                    self.added += 1
                    kind = rng.choice(["x", "xx", "y", "y1", "z"])
                    s.do("XADD", key, "*", "n", str(self.added), "k", kind)
                    self.live.setdefault(key, {})[str(self.added)] = kind
                    self.kinds[key, str(self.added)] = kind
            case 5:
                for entry_id, fields in s.do("XRANGE", key, "-", "+"):
                    if rng.random() < 0.3:
                        s.do("XDEL", key, entry_id)
                        del self.live[key][fields[1].decode()]
            case 6:
                if key in self.live:
                    keep = rng.randrange(6)
                    s.do("XTRIM", key, "MAXLEN", keep)
                    names = list(self.live[key])
                    for name in names[: max(len(names) - keep, 0)]:
                        del self.live[key][name]
            case 7:
                s.do("DEL", key)
                self.live.pop(key, None)
            case 8:
                s.do("SET", key, "text")
                s.do("DEL", key)
                self.live.pop(key, None)
            case _:
                rng.choice(self.readers).read()

    def ask(self, line: str) -> Any:
        """The reply to a reader. If turns are driven, others change data in between."""
        if not self.s.clock.tick_ns:
            return self.s.run(line)
        session = self.s.connect()
        reply = self.s.shows(line, session)
        while not reply:
            if self.changes:
                self.step(self.rng.randrange(9))
            self.s.region.scheduler.run_turn()
            reply = self.s.answer(session)
        self.s.region.close_session(session)
        return literal_eval(reply)


OF = ("PATTERN *", "PATTERN [ab]*", "STREAMS a1 b2 c1")


class Reader:
    def __init__(self, history: History, of: str, where: str | None) -> None:
        self.history, self.of, self.where = history, of, where
        self.cursor = "0"
        self.got: set[tuple[str, str]] = set()

    def follows(self, key: str) -> bool:
        if self.of.startswith("STREAMS"):
            return key in self.of.split()
        return self.of == "PATTERN *" or key[0] in "ab"

    def matches(self, kind: str) -> bool:
        return self.where is None or (kind == "x" if self.where == "k = x" else kind[0] == "y")

    def read(self, options: str = "") -> int:
        rng = self.history.rng
        count = rng.choice([0, 1, 2, 3, 10]) if not options else 0
        limit = rng.choice(["COUNT", "MAXCOUNT"])
        options = options or (f"{limit} {count}" if count else f"MAXSIZE {rng.randint(1, 300)}")
        options += f" WHERE {self.where}" if self.where else ""
        line = f"AB.READ {options} FROM {self.cursor} {self.of}"
        self.cursor, rows = self.history.ask(line)
        found = 0
        for key, entries in rows:
            numbers = []
            for _, (_, name, _, kind) in entries:
                assert (key, name) not in self.got, "twice"
                assert self.history.kinds[key, name] == kind
                assert self.follows(key)
                assert self.matches(kind)
                self.got.add((key, name))
                numbers.append(int(name))
            assert numbers == sorted(numbers)
            found += len(entries)
        assert found <= count or not count
        return found


@pytest.mark.parametrize("seed", range(24))
def test_every_entry_comes_once_whatever_happens(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In half of the runs each slice does one step, and others change data between slices."""
    monkeypatch.setattr(reading, "EFFORT", 100 if seed % 2 else 20_000)
    history = History(seed)
    if seed >= 12:
        monkeypatch.setattr(joint_read, "STREAMS_AT_ONCE", 1 + seed % 3)
        monkeypatch.setattr(joint_read, "TAKEN_AT_ONCE", 1)
        monkeypatch.setattr(joint_cursor, "PAGE", 2)
        drive(history.s)
    for _ in range(150):
        history.step()
    history.changes = False
    for reader in history.readers:
        before = None
        while before != reader.cursor:
            before = reader.cursor
            reader.read("COUNT 1000")
        for key, live in history.live.items():
            for name, kind in live.items():
                expected = reader.follows(key) and reader.matches(kind)
                assert ((key, name) in reader.got) == expected


# -- looks in steps ---------------------------------------------------------------------------


def drive(s: Streams) -> None:
    """Let each slice do one step, when a test runs a turn."""
    s.region.scheduler.drive(lambda: None)
    s.clock.tick_ns = SLICE_NS


@pytest.fixture
def stepping(s: Streams, monkeypatch: pytest.MonkeyPatch) -> Streams:
    """Ten streams, of which a step looks at two."""
    monkeypatch.setattr(joint_read, "STREAMS_AT_ONCE", 2)
    for number in range(10):
        s.fill(f"k{number}", "1-0")
    drive(s)
    return s


def end(s: Streams, session: Session, turns: int = 100) -> str:
    """Run turns until a connection gets its reply."""
    for _ in range(turns):
        s.region.scheduler.run_turn()
        if answer := s.answer(session):
            return answer
    raise AssertionError("no reply")


def test_others_are_served_while_a_reader_looks_at_many_streams(stepping: Streams) -> None:
    reader = stepping.waits("AB.READ FROM 0 PATTERN *")
    stepping.region.scheduler.run_turn()
    assert stepping.run("XLEN k1") == 1
    assert stepping.answer(reader) == ""
    assert not reader.blocked, "the end of its socket must not drop the reply"
    assert end(stepping, reader).count("['k") == 10
    assert not stepping.region.keyspace.databases[0].waiters


@pytest.mark.parametrize("turns", range(9))
@pytest.mark.parametrize("key", ["k0", "k9", "new"])
def test_what_comes_during_a_look_ends_the_wait(stepping: Streams, turns: int, key: str) -> None:
    cursor = end(stepping, stepping.waits("AB.READ FROM 0 PATTERN *")).split("'")[1]
    reader = stepping.waits(f"AB.READ BLOCK 0 FROM {cursor} PATTERN *")
    for _ in range(turns):
        stepping.region.scheduler.run_turn()
    stepping.fill(key, "2-0")
    assert f"[['{key}', [['2-0'" in end(stepping, reader)
    stepping.region.scheduler.run_turn()
    assert not stepping.region.keyspace.databases[0].waiters
    assert not reader.holdings.by_holder["waiting"]


def test_a_time_out_during_a_look_is_found_at_its_end(stepping: Streams) -> None:
    cursor = end(stepping, stepping.waits("AB.READ FROM 0 PATTERN *")).split("'")[1]
    stepping.fill("k5", "2-0")
    reader = stepping.waits(f"AB.READ BLOCK 1 FROM {cursor} PATTERN *")
    stepping.advance(100)
    stepping.region.tick()
    assert "[['k5', [['2-0'" in end(stepping, reader)
    cursor = end(stepping, stepping.waits("AB.READ FROM 0 PATTERN *")).split("'")[1]
    reader = stepping.waits(f"AB.READ BLOCK 1 FROM {cursor} PATTERN *")
    stepping.advance(100)
    for _ in range(100):
        stepping.region.scheduler.run_turn()
        stepping.region.tick()
    assert stepping.answer(reader) == f"['{cursor}', []]"


def test_a_wait_that_is_ended_during_a_look_loses_nothing(stepping: Streams) -> None:
    reader = stepping.waits("AB.READ BLOCK 0 FROM 0 PATTERN *")
    stepping.region.scheduler.run_turn()
    assert stepping.run(f"CLIENT UNBLOCK {reader.id}") == 1
    assert stepping.answer(reader) == "['0', []]"
    assert not stepping.region.keyspace.databases[0].waiters


@pytest.mark.parametrize("turns", range(22, 36))
def test_what_was_read_and_not_told_is_read_again(stepping: Streams, turns: int) -> None:
    cursor = end(stepping, stepping.waits("AB.READ FROM 0 PATTERN *")).split("'")[1]
    reader = stepping.waits(f"AB.READ BLOCK 0 FROM {cursor} PATTERN *")
    for _ in range(20):
        stepping.region.scheduler.run_turn()
    writer = stepping.connect()
    adding = [["XADD", f"k{number}", "2-0", "f", "v"] for number in range(10)]
    for words in (["MULTI"], *adding, ["EXEC"]):
        answer = stepping.raw(*words, session=writer)
    if not answer:
        end(stepping, writer)
    for _ in range(turns):
        stepping.region.scheduler.run_turn()
    stepping.run(f"CLIENT UNBLOCK {reader.id}")
    cursor, rows = literal_eval(stepping.answer(reader))
    if not rows:
        rows = literal_eval(end(stepping, stepping.waits(f"AB.READ FROM {cursor} PATTERN *")))[1]
    assert len(rows) == 10


def test_a_bad_cursor_is_refused_in_steps(stepping: Streams) -> None:
    assert stepping.fails("AB.READ FROM c1:abc PATTERN *") == NO_CURSOR
    assert not stepping.session.blocked
    assert stepping.run("PING") == "PONG"


@pytest.mark.parametrize("words", ["AB.READ", "AB.SUBSCRIBE CREDIT 100"])
def test_names_that_others_push_out_are_looked_up_again(
    stepping: Streams, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr(following, "PATTERNS_MAX", 1)
    monkeypatch.setattr(joint_cursor, "PAGE", 2)
    for number in range(10):
        stepping.fill(f"k{number}", "2-0")
    cursor = end(stepping, stepping.waits("AB.READ COUNT 10 FROM 0 PATTERN k*")).split("'")[1]
    session = stepping.waits(f"{words} FROM {cursor} PATTERN k*", resp3=True)
    assert stepping.shows("AB.READ FROM $ PATTERN other*", stepping.connect())
    told = end(stepping, session)
    for _ in range(50):
        stepping.region.scheduler.run_turn()
        told += stepping.answer(session)
    assert told.count("'2-0'") == 10
    assert "'1-0'" not in told
