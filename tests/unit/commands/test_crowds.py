"""Many who wait for one key, and one who waits for many: how often each command runs.

Runs are counted, so these tests do not depend on the machine.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.engine.session import Session
from anabranch.keyspace.keyspace import Keyspace
from anabranch.oplog.snapshot import Contents, Snapshot, load_snapshot
from anabranch.stream.stream import Stream
from anabranch.version import IS_COMPILED
from tests.support.calls import calls_of
from tests.support.recording import Recording
from tests.support.region_harness import Harness

CROWD = 50


class Counted(Harness):
    """A region that counts how often each command runs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.runs: Counter[str] = Counter()
        entries = self.region.dispatcher.entries
        for name in (b"XREAD", b"XREADGROUP", b"BLPOP", b"BLMOVE"):
            entry = entries[name]
            assert entry.function is not None
            entry.function = self._counting(name.decode(), entry.function)

    def _counting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(ctx: Any, args: Any) -> Any:
            self.runs[name] += 1
            return function(ctx, args)

        return run

    def waits(self, *args: object) -> Session:
        """A new connection that is blocked in a command."""
        session = self.connect()
        assert self.raw(*args, session=session) == b""
        assert session.blocked
        return session

    def runs_of(self, *args: object) -> dict[str, int]:
        """How often blocked commands run because of a command."""
        self.runs.clear()
        self.do(*args)
        for database in self.region.keyspace.databases:
            database.check()
        return dict(self.runs)


@pytest.fixture
def region() -> Counted:
    """An empty one."""
    return Counted()


def test_who_waits_for_a_far_id_does_not_run(region: Counted) -> None:
    far = [region.waits("XREAD", "BLOCK", 0, "STREAMS", "s", f"9-{n}") for n in range(CROWD)]
    near = region.waits("XREAD", "BLOCK", 0, "STREAMS", "s", "3-0")
    assert region.runs_of("XADD", "s", "3-0", "f", "v") == {}
    assert region.runs_of("XADD", "s", "3-1", "f", "v") == {"XREAD": 1}
    assert region.received(near)
    assert region.runs_of("XADD", "s", "9-20", "f", "v") == {"XREAD": 20}
    assert [bool(region.received(each)) for each in far] == [True] * 20 + [False] * (CROWD - 20)


def test_of_the_ids_for_one_key_the_lowest_counts(region: Counted) -> None:
    reader = region.waits("XREAD", "BLOCK", 0, "STREAMS", "s", "t", "s", "7-0", "1-0", "5-0")
    assert region.runs_of("XADD", "s", "5-0", "f", "v") == {}
    assert region.runs_of("XADD", "s", "6-0", "f", "v") == {"XREAD": 1}
    assert region.replies(reader) == [[[b"s", [[b"6-0", [b"f", b"v"]]]]]]
    assert region.region.keyspace.databases[0].waiters == {}


def test_a_reader_of_the_last_entry_runs_for_any(region: Counted) -> None:
    reader = region.waits("XREAD", "BLOCK", 0, "STREAMS", "s", "+")
    assert region.runs_of("XADD", "s", "1-0", "f", "v") == {"XREAD": 1}
    assert region.received(reader)


def test_of_the_readers_of_a_group_one_runs_for_each_entry(region: Counted) -> None:
    region.do("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    region.do("XGROUP", "CREATE", "s", "h", "$")
    group = ("BLOCK", 0, "STREAMS", "s", ">")
    readers = [region.waits("XREADGROUP", "GROUP", "g", f"c{n}", *group) for n in range(CROWD)]
    other = region.waits("XREADGROUP", "GROUP", "h", "c", *group)
    assert region.runs_of("XADD", "s", "1-0", "f", "v") == {"XREADGROUP": 2}
    assert region.received(other)
    assert region.runs_of("XADD", "s", "2-0", "f", "v") == {"XREADGROUP": 1}
    assert [bool(region.received(each)) for each in readers] == [True] * 2 + [False] * (CROWD - 2)


def test_readers_that_leave_something_wake_the_next(region: Counted) -> None:
    region.do("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    for n in range(CROWD):
        region.waits(
            *("XREADGROUP", "GROUP", "g", f"c{n}", "COUNT", 2, "BLOCK", 0, "STREAMS", "s", ">")
        )
    region.do("MULTI")
    for n in range(1, 6):
        region.do("XADD", "s", f"{n}-0", "f", "v")
    assert region.runs_of("EXEC") == {"XREADGROUP": 3}


def test_all_look_when_a_consumer_or_group_was_removed(region: Counted) -> None:
    region.do("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    region.do("XGROUP", "CREATE", "s", "h", "$")
    for n in range(CROWD):
        region.waits("XREADGROUP", "GROUP", "g", f"c{n}", "BLOCK", 0, "STREAMS", "s", ">")
    assert region.runs_of("XGROUP", "DELCONSUMER", "s", "g", "c40") == {}
    assert region.runs_of("XADD", "s", "1-0", "f", "v") == {"XREADGROUP": CROWD}
    consumers = {row[1] for row in region.do("XINFO", "CONSUMERS", "s", "g")}
    assert b"c40" in consumers
    assert region.runs_of("XADD", "s", "2-0", "f", "v") == {"XREADGROUP": 1}
    region.do("MULTI")
    region.do("XGROUP", "DESTROY", "s", "g")
    region.do("XGROUP", "CREATE", "s", "g", "$")
    assert region.runs_of("EXEC") == {"XREADGROUP": CROWD - 2}
    assert len(region.do("XINFO", "CONSUMERS", "s", "g")) == CROWD - 2


def test_of_many_that_pop_one_runs_for_each_item(region: Counted) -> None:
    poppers = [region.waits("BLPOP", "l", 0) for _ in range(CROWD)]
    region.waits("XREAD", "BLOCK", 0, "STREAMS", "l", "0")
    assert region.runs_of("RPUSH", "l", "a") == {"BLPOP": 1}
    assert region.runs_of("RPUSH", "l", "b", "c") == {"BLPOP": 2}
    assert [bool(region.received(each)) for each in poppers] == [True] * 3 + [False] * (CROWD - 3)


def test_those_that_block_for_different_things_are_served_in_the_order_of_blocking(
    region: Counted,
) -> None:
    region.do("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    region.do("XGROUP", "CREATE", "s", "h", "$")
    served: list[int] = []
    readers = [
        region.waits("XREAD", "BLOCK", 0, "STREAMS", "s", "5-0"),
        region.waits("XREADGROUP", "GROUP", "h", "c", "BLOCK", 0, "STREAMS", "s", ">"),
        region.waits("XREAD", "BLOCK", 0, "STREAMS", "s", "1-0"),
        region.waits("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">"),
    ]
    end_wait = region.region.waking.end_wait

    def noting(waiter: Any, reply: bytes) -> None:
        served.append(readers.index(waiter.session))
        end_wait(waiter, reply)

    region.region.waking.end_wait = noting  # type: ignore[method-assign]
    region.do("XADD", "s", "6-0", "f", "v")
    assert served == [0, 1, 2, 3]


@pytest.mark.skipif(IS_COMPILED, reason="machine code calls nothing that can be seen")
@pytest.mark.parametrize(
    ("waiting", "waking"),
    [
        ("XREADGROUP GROUP g c{} BLOCK 0 STREAMS s >", "XADD s * f v"),
        ("XREAD BLOCK 0 STREAMS s 9999999999999-{}", "XADD s * f v"),
        ("BLPOP l 0", "RPUSH l v"),
        ("BLMOVE l m{} LEFT LEFT 0", "RPUSH l v"),
    ],
    ids=lambda words: words.partition(" ")[0],
)
def test_a_change_costs_those_nothing_who_go_on_waiting(waiting: str, waking: str) -> None:
    """Function calls, built-in ones included."""
    calls = []
    for crowd in (10, 400):
        region = Counted()
        region.do("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
        for n in range(crowd):
            region.waits(*waiting.format(n).split())
        region.do(*waking.split())
        calls.append(calls_of(lambda region=region: region.raw(*waking.split())))  # type: ignore[misc]
    assert calls[1] <= calls[0] + 10


# -- one who waits for many keys ----------------------------------------------------------------


def test_a_visit_of_many_streams_that_gives_nothing_has_no_effect(region: Counted) -> None:
    keys = [f"s{n}" for n in range(CROWD)]
    for key in keys:
        region.do("XGROUP", "CREATE", key, "g", "$", "MKSTREAM")
        region.do("XGROUP", "CREATECONSUMER", key, "g", "c")
    recorded: list[Any] = []
    region.region.effects.record = Recording(recorded)
    region.clock.us += 5_000_000
    words = ("GROUP", "g", "c", "BLOCK", 0, "STREAMS", *keys, *[">"] * CROWD)
    reader = region.waits("XREADGROUP", *words)
    assert recorded == []
    region.clock.us += 7_000_000
    assert region.runs_of("XADD", "s7", "1-0", "f", "v") == {"XREADGROUP": 1}
    assert region.replies(reader) == [[[b"s7", [[b"1-0", [b"f", b"v"]]]]]]
    assert [type(each).__name__ for each in recorded] == ["Add", "Deliver"]
    idle = [region.do("XINFO", "CONSUMERS", key, "g")[0][5] for key in keys]
    assert idle == [0] * CROWD
    assert region.region.keyspace.databases[0].waiters == {}


def wide_reader(region: Counted, *words: object) -> Session:
    """One that waits for many streams, of which each has a group."""
    keys = [f"s{n}" for n in range(CROWD)]
    for key in keys:
        region.do("XGROUP", "CREATE", key, "g", "$", "MKSTREAM")
    ids = ["$" if words[0] == "XREAD" else ">"] * CROWD
    return region.waits(*words, "BLOCK", 0, "STREAMS", *keys, *ids)


GROUPED = ("XREADGROUP", "GROUP", "g", "c")


@pytest.mark.parametrize("words", [("XREAD",), GROUPED], ids=lambda words: words[0])
def test_keys_for_which_nobody_else_waits_have_one_queue(
    region: Counted, words: tuple[str, ...]
) -> None:
    waiters = region.region.keyspace.databases[0].waiters
    holdings = region.region.holdings
    held = holdings.by_holder["waiting"]
    wide = wide_reader(region, *words)
    assert len(waiters) == CROWD
    assert len({id(queue) for queue in waiters.values()}) == 1
    narrow = [
        region.waits("XREAD", "BLOCK", 0, "STREAMS", "s7", "$"),
        region.waits("XREADGROUP", "GROUP", "g", "d", "BLOCK", 0, "STREAMS", "s7", ">"),
    ]
    assert len({id(queue) for queue in waiters.values()}) == 2
    assert region.region.keyspace.waiters.blocking_keys()[0] == CROWD
    region.do("XADD", "s7", "1-0", "f", "v")
    expected = [True, words[0] != "XREADGROUP"]
    assert [bool(region.received(each)) for each in (wide, *narrow)] == [True, *expected]
    assert list(waiters) == ([] if all(expected) else [b"s7"])
    region.do("XADD", "s7", "2-0", "f", "v")
    assert waiters == {}
    assert holdings.by_holder["waiting"] == held


@pytest.mark.parametrize("words", [("XREAD",), GROUPED], ids=lambda words: words[0])
def test_who_runs_again_looks_only_at_what_has_changed(
    region: Counted, words: tuple[str, ...]
) -> None:
    wide = wide_reader(region, *words)
    hits = region.region.stats.keyspace_hits
    region.do("XADD", "s7", "1-0", "f", "v")
    assert region.received(wide)
    assert region.region.stats.keyspace_hits == hits + 2, "as Redis counts one key"


def test_who_runs_again_looks_at_all_that_has_changed(region: Counted) -> None:
    """What one command makes ready together; and what was set back before, unsignalled."""
    for first in ("XGROUP SETID s3 g 0", "XGROUP DELCONSUMER s3 g c"):
        region.do("FLUSHALL")
        region.do("XADD", "s3", "1-0", "f", "v")
        wide = wide_reader(region, *GROUPED)
        region.do(*first.split())
        assert not region.received(wide)
        region.do("MULTI")
        region.do("XADD", "s20", "2-0", "f", "v")
        region.do("XADD", "s10", "2-0", "f", "v")
        region.do("EXEC")
        (reply,) = region.replies(wide)
        expected = [b"s10", b"s20"] if "DELCONSUMER" in first else [b"s3", b"s10", b"s20"]
        assert [key for key, _ in reply] == expected
        assert [row[1] for row in region.do("XINFO", "CONSUMERS", "s3", "g")] == [b"c"]
        assert not region.region.keyspace.databases[0].reviewed


def test_a_wait_that_ends_leaves_no_mark_at_its_keys(region: Counted) -> None:
    wide = wide_reader(region, *GROUPED)
    region.do("XGROUP", "SETID", "s3", "g", "0")
    database = region.region.keyspace.databases[0]
    assert database.reviewed == {b"s3"}
    region.do("CLIENT", "UNBLOCK", wide.id)
    assert database.waiters == {}
    assert not database.reviewed


def test_a_snapshot_keeps_the_time_of_a_read_that_got_nothing(region: Counted) -> None:
    for key in ("s", "t"):
        region.do("XGROUP", "CREATE", key, "g", "$", "MKSTREAM")
        region.do("XGROUP", "CREATECONSUMER", key, "g", "c")
    region.clock.us += 5_000_000
    region.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", "t", ">", ">")
    keyspace = Keyspace()
    snapshot = Snapshot(region.region.keyspace, Contents(1))
    for _ in load_snapshot(io.BytesIO(snapshot.whole()), "memory", keyspace):
        pass
    for key in (b"s", b"t"):
        stream = keyspace.databases[0].values[key]
        assert isinstance(stream, Stream)
        assert stream.groups[b"g"].consumers[b"c"].seen_ms == region.clock.us // 1000
