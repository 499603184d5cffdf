"""Requests that take several slices of time: what others may do meanwhile, and what they see.

Turns are driven here, by a clock on which every look takes a whole slice: each slice does one step.
"""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator
from itertools import chain
from sys import getrefcount
from typing import Any

import pytest

from anabranch.effects import kinds
from anabranch.effects.recorded import Recorded
from anabranch.engine.channels import NAMES_AT_ONCE
from anabranch.engine.session import Session
from anabranch.keyspace.deferred_free import DeferredFree
from anabranch.keyspace.digest import keyspace_digest
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.scan import KeyOrder
from anabranch.keyspace.values import StringValue, Value
from anabranch.oplog.snapshot import Contents, Snapshot, load_snapshot
from anabranch.rdb import listpack
from anabranch.rdb.payload import RDB_VERSION, frame
from anabranch.region.maintenance import PRODUCERS_AT_ONCE
from anabranch.scheduling import SLICE_NS
from anabranch.stream.located import LOCATED_AT_ONCE
from anabranch.stream.stream import Stream
from tests.support.lzf import lzf_string
from tests.support.payloads import encode_payload
from tests.support.recording import Recording
from tests.support.region_harness import Harness, decode_all

ENTRIES = 3000
TURNS_MAX = 2000


def portions(first: int, step: int) -> Iterator[list[str]]:
    """IDs of every so-manieth entry, so many that a command does all in one step."""
    ids = [f"{index}-1" for index in range(first, ENTRIES, step)]
    for at in range(0, len(ids), LOCATED_AT_ONCE // 2):
        yield ids[at : at + LOCATED_AT_ONCE // 2]


class Driven(Harness):
    """A region whose turns the test runs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.other = self.connect()
        for index in range(1, ENTRIES + 1):
            self.do("XADD", "s", f"{index}-1", "n", index)
        self.do("XGROUP", "CREATE", "s", "g", 0)
        self.do("XREADGROUP", "GROUP", "g", "alice", "COUNT", ENTRIES, "STREAMS", "s", ">")
        self.do("XREADGROUP", "GROUP", "g", "bob", "STREAMS", "s", ">")
        self.region.scheduler.drive(lambda: None)
        self.clock.tick_ns = SLICE_NS

    def begin(self, *args: object) -> Session:
        """A new connection whose command does not end in one slice."""
        session = self.connect()
        assert self.raw(*args, session=session) == b""
        assert session.sliced is not None
        assert not session.blocked
        return session

    def turns(self, session: Session) -> int:
        """Run turns until a connection got its reply; how many."""
        for count in range(1, TURNS_MAX):
            self.region.scheduler.run_turn()
            self.settle()
            if session.outbox:
                assert session.sliced is None
                return count
        raise AssertionError("no reply")

    def end(self, session: Session) -> Any:
        """The reply, however many turns it takes."""
        self.turns(session)
        (reply,) = self.replies(session)
        return reply

    def in_one_go(self, *args: object) -> Any:
        """The reply of a command inside a transaction, where nothing is cut."""
        replies = []
        for each in (("MULTI",), args, ("EXEC",)):
            self.region.execute(self.other, [[str(arg).encode() for arg in each]])
            for _ in range(TURNS_MAX):
                if self.other.outbox:
                    break
                self.region.scheduler.run_turn()
                self.settle()
            replies.append(decode_all(self.received(self.other))[0])
        return replies[-1][0]

    def change_all(self) -> None:
        """Change everything about the stream."""
        for args in (
            *(("XACK", "s", "g", *some) for some in portions(1, 2)),
            *(("XDEL", "s", *some) for some in portions(1, 3)),
            ("XADD", "s", "5000-1", "n", "new"),
            *(("XCLAIM", "s", "g", "bob", 0, *some) for some in portions(2, 2)),
            ("XGROUP", "DELCONSUMER", "s", "g", "alice"),
            ("XTRIM", "s", "MAXLEN", 10),
            ("XGROUP", "CREATE", "s", "h", "$"),
        ):
            self.do(*args, session=self.other)

    @property
    def is_free(self) -> bool:
        """Whether nobody keeps the stream as it was."""
        stream = self.region.keyspace.databases[0].values[b"s"]
        assert isinstance(stream, Stream)
        lists = []
        for group in stream.groups.values():
            lists += group.pending.lists.values()
            for consumer in group.consumers.values():
                lists += consumer.pending.values()
        blocks = [block for log in stream.logs.values() for block in log.blocks]
        return not any(each.frozen for each in lists) and not any(b.shared for b in blocks)


@pytest.fixture
def region() -> Driven:
    return Driven()


READING = [
    ("DUMP", "s"),
    ("XPENDING", "s", "g", "-", "+", "10000"),
    ("XPENDING", "s", "g", "IDLE", "0", "500-1", "3000-1", "1500", "alice"),
]


@pytest.mark.parametrize("args", READING, ids=" ".join)
def test_a_long_reading_shows_the_moment_at_which_it_began(
    region: Driven, args: tuple[str, ...]
) -> None:
    expected = region.in_one_go(*args)
    session = region.begin(*args)
    region.change_all()
    assert region.end(session) == expected
    assert region.in_one_go(*args) != expected
    assert region.is_free
    region.check()


@pytest.mark.parametrize("args", READING, ids=" ".join)
def test_a_long_reading_of_a_key_that_is_deleted_goes_on(
    region: Driven, args: tuple[str, ...]
) -> None:
    expected = region.in_one_go(*args)
    session = region.begin(*args)
    region.do("DEL", "s", session=region.other)
    assert region.end(session) == expected


@pytest.mark.parametrize("args", READING, ids=" ".join)
def test_what_a_reader_held_is_free_when_it_has_gone(region: Driven, args: tuple[str, ...]) -> None:
    session = region.begin(*args)
    assert not region.is_free
    region.region.close_session(session)
    assert region.is_free
    assert not len(region.region.scheduler)


def test_requests_behind_a_long_one_wait_for_it(region: Driven) -> None:
    session = region.connect()
    region.region.execute(session, [[b"DUMP", b"s"], [b"ECHO", b"one"]])
    region.region.execute(session, [[b"ECHO", b"two"]])
    region.settle()
    assert not session.outbox
    before = session.commands
    replies = []
    while len(replies) < 3:
        region.region.scheduler.run_turn()
        region.settle()
        region.region.resume(session)
        replies += region.replies(session)
    assert replies[1:] == [b"one", b"two"]
    assert session.commands == before + 3


def test_the_work_of_a_long_command_grows_with_the_stream(region: Driven) -> None:
    """A turn does few steps; a command that did all in one would end at once."""
    assert region.turns(region.begin("DUMP", "s")) > ENTRIES // 100 // 8
    payload = region.in_one_go("DUMP", "s")
    assert region.turns(region.begin("RESTORE", "t", 0, payload)) > ENTRIES // 100 // 8


def test_a_reader_that_claims_sorts_all_pending_entries_in_slices(region: Driven) -> None:
    claim = ("XREADGROUP", "GROUP", "g", "eve", "CLAIM", 0, "COUNT", 1, "STREAMS", "s", ">")
    session = region.begin(*claim)
    region.do("XACK", "s", "g", "1-1", session=region.other)
    region.do("XCLAIM", "s", "g", "bob", 0, "2-1", "IDLE", 0, session=region.other)
    ((_, ((entry_id, *_),)),) = region.end(session)
    assert entry_id == b"3-1"
    ((_, ((entry_id, *_),)),) = region.do(*claim, session=region.other)
    assert entry_id == b"4-1", "what is sorted stays so"
    region.check()
    assert region.in_one_go(*claim)[0][1][0][0] == b"5-1"


def test_many_entries_are_renewed_in_slices(region: Driven) -> None:
    session = region.begin("AB.RENEW", "s", "g", "alice", "1h")
    region.do("XACK", "s", "g", "2999-1", session=region.other)
    renewed = region.end(session)
    assert (len(renewed), renewed[0], b"2999-1" in renewed) == (ENTRIES - 1, b"1-1", False)
    region.check()


def test_a_renewal_in_slices_ends_with_its_group(region: Driven) -> None:
    session = region.begin("AB.RENEW", "s", "g", "alice", "1h")
    region.do("XGROUP", "DESTROY", "s", "g", session=region.other)
    assert "NOGROUP" in str(region.end(session))


def test_the_lags_of_many_groups_are_told_in_slices(region: Driven) -> None:
    for number in range(100, 401):
        region.do("XGROUP", "CREATE", "s", f"h{number}", 0)
    session = region.begin("AB.LAG", "s")
    region.do("XGROUP", "DESTROY", "s", "h400", session=region.other)
    names = [row[1] for row in region.end(session)]
    assert names == [b"g", *(b"h%d" % number for number in range(100, 400))]
    session = region.begin("AB.LAG", "s")
    region.do("DEL", "s", session=region.other)
    assert "no such key" in str(region.end(session))


def test_very_many_producers_are_told_in_slices(region: Driven) -> None:
    for number in range(100, 401):
        region.do("XADD", "p", "IDMP", f"p{number}", "1", "*", "f", "v")
    session = region.begin("AB.PRODUCERS", "p")
    region.do("XADD", "p", "IDMP", "p400", "2", "*", "f", "v", session=region.other)
    rows = region.end(session)
    assert [row[1] for row in rows] == [b"p%d" % number for number in range(100, 401)]
    assert rows[-1][3] == 2
    session = region.begin("AB.PRODUCERS", "p")
    region.do("DEL", "p", session=region.other)
    assert "no such key" in str(region.end(session))


@pytest.mark.parametrize(("add", "remove"), [("RPUSH", "LPOP"), ("SADD", "SPOP")])
def test_lists_and_sets_are_dumped_and_restored_in_slices(
    region: Driven, add: str, remove: str
) -> None:
    region.do(add, "k", *(f"item {number}" for number in range(20_000)))
    payload = region.in_one_go("DUMP", "k")
    session = region.begin("DUMP", "k")
    region.do(remove, "k", session=region.other)
    assert region.end(session) == payload, "as it was when the command began"
    assert region.turns(region.begin("DUMP", "k")) > 10
    assert region.turns(region.begin("RESTORE", "t", 0, payload)) > 10
    assert region.in_one_go("DUMP", "t") == payload
    region.check()


def test_a_payload_that_would_take_too_much_memory_is_refused(
    region: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.rdb.payload.DECODED_BYTES_MIN", 0)
    packed = lzf_string(listpack.encode([1] * 100_000))
    payload = frame(b"\x12\1\2" + packed, RDB_VERSION)
    assert str(region.end(region.begin("RESTORE", "t", 0, payload))) == (
        "ERR Bad data format: takes too much memory for its size"
    )
    larger = encode_payload([b"1"] * 100_000)
    assert region.end(region.begin("RESTORE", "t", 0, larger)) == b"OK"


def test_a_restored_key_appears_at_the_end(region: Driven) -> None:
    payload = region.in_one_go("DUMP", "s")
    session = region.begin("RESTORE", "t", 0, payload)
    assert region.do("EXISTS", "t", session=region.other) == 0
    assert region.end(session) == b"OK"
    assert region.in_one_go("DUMP", "t") == payload
    region.check()


def test_who_waits_for_a_key_is_served_when_its_restore_ends(region: Driven) -> None:
    payload = region.in_one_go("DUMP", "s")
    reader = region.connect()
    assert region.raw("XREAD", "BLOCK", 0, "STREAMS", "t", "2999-1", session=reader) == b""
    session = region.begin("RESTORE", "t", 0, payload)
    assert region.end(session) == b"OK"
    for _ in range(3):
        region.region.scheduler.run_turn()
    ((((key, entries),),),) = [decode_all(region.received(reader))]
    assert (key, entries) == (b"t", [[b"3000-1", [b"n", b"3000"]]])


def test_the_log_gets_a_long_script_when_it_is_over(region: Driven) -> None:
    recorded: list[kinds.Effect] = []
    region.region.effects.record = Recording(recorded)
    session = region.connect()
    calls = "redis.call('SET', 'a', 1) for i = 1, 1e5 do i = i + 1 end redis.call('SET', 'b', 2)"
    assert region.raw("EVAL", calls, 0, session=session) == b""
    assert region.region.scheduler.is_exclusive
    assert region.region.keyspace.databases[0].values.keys() >= {b"a"}
    assert recorded == []
    region.turns(session)
    assert [each.key for each in recorded if isinstance(each, kinds.SetString)] == [b"a", b"b"]


def test_who_wakes_nobody_is_not_held_back_by_who_does(region: Driven) -> None:
    readers = [region.connect() for _ in range(6)]
    for reader in readers:
        region.raw("XREAD", "BLOCK", 0, "STREAMS", "t", "u", "$", "$", session=reader)
    writer, second = region.connect(), region.connect()
    region.raw("XADD", "t", "*", "f", "v", session=writer)
    assert region.region.waking.is_under_way
    region.raw("XADD", "u", "*", "f", "v", session=second)
    assert region.region.waking.is_under_way
    assert second.delayed
    region.clock.tick_ns = 1
    region.region.execute(region.other, [[b"PING"], [b"PING"]])
    assert not region.other.delayed
    assert region.received(region.other) == b"+PONG\r\n" * 2


def test_a_key_made_during_a_restore_stays(region: Driven) -> None:
    payload = region.in_one_go("DUMP", "s")
    session = region.begin("RESTORE", "t", 0, payload)
    region.do("XADD", "t", "*", "f", "v", session=region.other)
    assert str(region.end(session)) == "BUSYKEY Target key name already exists."
    assert region.do("XLEN", "t", session=region.other) == 1


def test_a_damaged_payload_changes_nothing(region: Driven) -> None:
    payload = bytearray(region.in_one_go("DUMP", "s"))
    payload[len(payload) // 2] ^= 1
    session = region.begin("RESTORE", "t", 0, bytes(payload))
    assert str(region.end(session)) == "ERR DUMP payload version or checksum are wrong"
    assert region.do("EXISTS", "t", session=region.other) == 0


def test_a_pause_holds_back_a_restore_that_has_begun(region: Driven) -> None:
    payload = region.in_one_go("DUMP", "s")
    session = region.begin("RESTORE", "t", 0, payload)
    region.do("CLIENT", "PAUSE", 100_000, "WRITE", session=region.other)
    for _ in range(TURNS_MAX):
        region.region.scheduler.run_turn()
        region.settle()
    assert session.sliced is not None
    region.do("CLIENT", "UNPAUSE", session=region.other)
    assert region.end(session) == b"OK"


@pytest.mark.parametrize("rule", ["resetkeys", "-dump"])
def test_permissions_are_asked_for_again(region: Driven, rule: str) -> None:
    session = region.connect()
    region.do("ACL", "SETUSER", "reader", "on", "nopass", "~*", "+dump", session=region.other)
    region.do("AUTH", "reader", "x", session=session)
    assert region.raw("DUMP", "s", session=session) == b""
    region.do("ACL", "SETUSER", "reader", rule, session=region.other)
    region.turns(session)
    (reply,) = region.replies(session)
    assert str(reply).startswith("NOPERM")
    assert region.is_free


def test_who_asked_for_silence_gets_no_reply(region: Driven) -> None:
    session = region.connect()
    assert region.raw("CLIENT", "REPLY", "SKIP", session=session) == b""
    assert region.raw("DUMP", "s", session=session) == b""
    assert session.sliced is not None
    while session.sliced is not None:
        region.region.scheduler.run_turn()
    region.settle()
    assert not session.outbox
    assert region.do("ECHO", "x", session=session) == b"x"


def test_a_long_command_is_counted_once_with_all_its_time(region: Driven) -> None:
    entry = region.region.dispatcher.entries[b"dump"]
    calls, total_ns = sum(entry.histogram), entry.total_ns
    region.do("CONFIG", "SET", "slowlog-log-slower-than", 0, session=region.other)
    region.do("SLOWLOG", "RESET", session=region.other)
    turns = region.turns(region.begin("DUMP", "s"))
    assert sum(entry.histogram) == calls + 1
    assert entry.total_ns - total_ns >= turns * SLICE_NS
    shown = region.do("SLOWLOG", "GET", 10, session=region.other)
    assert [b"DUMP", b"s"] in [each[3] for each in shown]


def test_digests_are_of_the_moment_at_which_they_are_answered(region: Driven) -> None:
    session = region.begin("AB.DIGEST", "s", "none")
    region.change_all()
    reply = region.end(session)
    assert reply == region.in_one_go("AB.DIGEST", "s", "none")


# -- what is taken apart ------------------------------------------------------------------------


def referred(things: list[Any]) -> int:
    """How many of these things somebody refers to, beside this list."""
    return sum(getrefcount(things[at]) > REFERENCES_OF_A_LIST for at in range(len(things)))


REFERENCES_OF_A_LIST = getrefcount([object()][0]) + 1


@pytest.fixture
def without_collector() -> Iterator[None]:
    """What is freed is freed because nobody refers to it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


DELETING = [
    ("DEL", "s"),
    ("UNLINK", "s"),
    ("FLUSHALL",),
    ("FLUSHDB", "ASYNC"),
    ("COPY", "small", "s", "REPLACE"),
    ("RENAME", "small", "s"),
    ("XGROUP", "DESTROY", "s", "g"),
]


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("args", DELETING, ids=" ".join)
def test_what_nobody_needs_is_freed_in_many_steps(region: Driven, args: tuple[str, ...]) -> None:
    region.do("XADD", "small", "*", "f", "v", session=region.other)
    stream = region.region.keyspace.databases[0].values[b"s"]
    assert isinstance(stream, Stream)
    lists = [each.entries.values() for each in stream.groups[b"g"].pending.lists.values()]
    entries = list(chain.from_iterable(lists))
    assert referred(entries) == len(entries) == ENTRIES
    del stream, lists
    region.do(*args, session=region.other)
    deferred_free = region.region.keyspace.deferred_free
    assert len(deferred_free)
    turns = 0
    while len(deferred_free):
        region.region.scheduler.run_turn()
        turns += 1
    assert turns >= 2
    assert referred(entries) == 0
    region.check()


def test_trimmed_blocks_are_freed_in_many_steps(region: Driven) -> None:
    for index in range(10 * ENTRIES):
        region.region.execute(region.other, [[b"XADD", b"t", b"%d-1" % (index + 1), b"f", b"v"]])
    region.received(region.other)
    stream = region.region.keyspace.databases[0].values[b"t"]
    assert isinstance(stream, Stream)
    blocks = list(stream.local.blocks)
    assert len(blocks) > 10
    region.do("XTRIM", "t", "MAXLEN", 0, session=region.other)
    assert referred(blocks) == len(blocks)
    while len(region.region.keyspace.deferred_free):
        region.region.scheduler.run_turn()
    assert referred(blocks) == 0


def test_a_snapshot_still_has_what_was_deleted_since_it_began(region: Driven) -> None:
    keyspace = region.region.keyspace
    digest = keyspace_digest(keyspace, exact=True)
    snapshot = Snapshot(keyspace, Contents(1))
    region.region.watch_changes(snapshot.before)
    region.do("DEL", "s", session=region.other)
    for _ in range(100):
        region.region.scheduler.run_turn()
    loaded = Keyspace()
    for _ in load_snapshot(io.BytesIO(snapshot.whole()), "memory", loaded):
        pass
    assert keyspace_digest(loaded, exact=True) == digest
    region.region.unwatch_changes(snapshot.before)
    while len(keyspace.deferred_free):
        region.region.scheduler.run_turn()


# -- the order of the keys -----------------------------------------------------------------------


@pytest.mark.parametrize("order", [("SCAN", 0, "COUNT", 20_000), ("RANDOMKEY",)])
def test_the_order_of_very_many_keys_follows_in_steps(
    region: Driven, order: tuple[object, ...]
) -> None:
    keys = [f"key:{index}" for index in range(20_000)]
    region.do("DEL", "s", session=region.other)
    region.do("MSET", *[word for key in keys for word in (key, "v")], session=region.other)
    sessions = [region.begin(*order)]
    region.do("DEL", *keys[1:], session=region.other)
    sessions.append(region.begin(*order))
    for session in sessions:
        reply = region.end(session)
        assert reply in ([b"0", [b"key:0"]], b"key:0")
    region.check()


@pytest.mark.parametrize("order", [("SCAN", 0), ("RANDOMKEY",)])
def test_who_changes_very_many_keys_all_the_time_keeps_nobody_waiting(
    region: Driven, order: tuple[object, ...]
) -> None:
    keys = [f"key:{index}" for index in range(5000)]
    changes = ("MSET", *[word for key in keys for word in (key, "v")]), ("DEL", *keys)
    region.do("DEL", "s", session=region.other)
    region.do(*changes[0], session=region.other)
    session = region.begin(*order)
    for turn in range(20):
        region.do(*changes[(turn + 1) % 2], session=region.other)
        region.region.scheduler.run_turn()
        region.settle()
    assert region.replies(session)


def test_deleted_values_and_the_order_of_keys_do_not_wait_for_each_other() -> None:
    keys = {b"key:%d" % index for index in range(5000)}
    order = KeyOrder(keys)
    free = DeferredFree()
    free.call = lambda: None
    order.changed(list(keys))
    for _ in range(3):
        free.settle(order)
    assert len(free) == 1
    values: list[Value] = [StringValue(b"v")] * 1000
    free.defer(values)
    for _ in range(4):
        assert free.sweep(lambda: True)
    assert len(values) < 1000
    assert not order.is_settled
    while free.sweep(lambda: True):
        pass
    order.check()
    assert not values


def test_so_many_deleted_values_wait_and_no_more() -> None:
    free = DeferredFree()
    free.call = lambda: None
    for _ in range(3):
        free.defer([StringValue(b"v")] * 140_000)
    assert len(free) == 2
    while free.sweep(lambda: False):
        pass
    free.defer([StringValue(b"v")])
    assert len(free) == 1


# -- long replies --------------------------------------------------------------------------------


LONG_REPLIES = [
    ("MGET",),
    ("PUBSUB", "NUMSUB"),
    ("SMISMEMBER", "set"),
    ("COMMAND", "GETKEYS", "MSET"),
    ("COMMAND", "GETKEYSANDFLAGS", "MSET"),
]


@pytest.mark.parametrize("words", LONG_REPLIES)
def test_a_long_reply_is_encoded_in_steps(region: Driven, words: tuple[str, ...]) -> None:
    """It shows the moment at which the request came."""
    keys = [f"key:{index}" for index in range(20_000)]
    region.do("MSET", *[word for key in keys for word in (key, "v")], session=region.other)
    region.do("SADD", "set", *keys, session=region.other)
    expected = region.in_one_go(*words, *keys)
    session = region.begin(*words, *keys)
    region.do("FLUSHALL", session=region.other)
    assert region.turns(session) > 2
    assert region.replies(session) == [expected]


@pytest.mark.parametrize("resp3", [False, True])
@pytest.mark.parametrize("words", [("SMEMBERS", "a"), ("SUNION", "a", "b"), ("SDIFF", "a", "none")])
def test_the_members_of_a_large_set_are_encoded_in_steps(
    region: Driven, words: tuple[str, ...], resp3: bool
) -> None:
    members = [f"m:{index}" for index in range(20_000)]
    region.do("SADD", "a", *members, session=region.other)
    region.do("SADD", "b", *members[:10], session=region.other)
    session = region.connect(resp3=resp3)
    region.raw(*words, session=session)
    assert session.sliced is not None
    region.do("FLUSHALL", session=region.other)
    assert region.turns(session) > 2
    data = region.received(session)
    assert data.startswith(b"~20000\r\n" if resp3 else b"*20000\r\n")
    (found,) = decode_all(data)
    assert sorted(found) == sorted(each.encode() for each in members)


# -- commands with very many IDs -----------------------------------------------------------------


def many_ids(count: int) -> list[str]:
    return [f"{index}-1" for index in range(1, count + 1)]


MANY = 20 * ENTRIES
WITH_MANY_IDS = [
    ("XACK", "s", "g"),
    ("XDEL", "s"),
    ("XDELEX", "s", "DELREF", "IDS", MANY),
    ("XACKDEL", "s", "g", "IDS", MANY),
]


@pytest.mark.parametrize("words", WITH_MANY_IDS, ids=lambda words: words[0])
def test_very_many_ids_are_read_in_steps(region: Driven, words: tuple[object, ...]) -> None:
    session = region.begin(*words, *many_ids(MANY))
    assert region.turns(session) > 2
    (reply,) = region.replies(session)
    assert (reply if isinstance(reply, int) else reply.count(1)) == ENTRIES
    region.check()


DELETING_MANY = [
    ("XDEL", "s"),
    ("XDELEX", "s", "KEEPREF", "IDS", ENTRIES),
    ("XDELEX", "s", "DELREF", "IDS", ENTRIES),
    ("XACKDEL", "s", "g", "ACKED", "IDS", ENTRIES),
]


@pytest.mark.parametrize("words", DELETING_MANY, ids=lambda words: " ".join(map(str, words[:3])))
def test_many_entries_are_deleted_as_they_are_at_the_end(words: tuple[object, ...]) -> None:
    """What others did meanwhile, and what a command without slices would then do."""
    long, short = Driven(), Driven()
    session = long.begin(*words, *many_ids(ENTRIES))
    long.region.scheduler.run_turn()
    assert long.do("XLEN", "s", session=long.other) == ENTRIES
    for each in (long, short):
        each.do("XDEL", "s", *[f"{index}-1" for index in range(1, 60)], session=each.other)
        each.do("XTRIM", "s", "MAXLEN", ENTRIES - 500, session=each.other)
        each.do("XACK", "s", "g", "700-1", session=each.other)
        each.do("XADD", "s", "5000-1", "n", "new", session=each.other)
    assert long.end(session) == short.in_one_go(*words, *many_ids(ENTRIES))
    assert long.in_one_go("DUMP", "s") == short.in_one_go("DUMP", "s")
    long.check()


def test_entries_of_a_key_that_was_made_again_are_deleted(region: Driven) -> None:
    session = region.begin("XDEL", "s", *many_ids(ENTRIES))
    region.do("DEL", "s", session=region.other)
    region.do("XADD", "s", "7-1", "f", "v", session=region.other)
    assert region.end(session) == 1
    assert region.do("XLEN", "s", session=region.other) == 0


def test_one_wrong_id_among_very_many_changes_nothing(region: Driven) -> None:
    session = region.begin("XACK", "s", "g", *many_ids(MANY), "nonsense")
    assert str(region.end(session)).startswith("ERR Invalid stream ID")
    assert region.do("XPENDING", "s", "g", session=region.other)[0] == ENTRIES


def test_idempotent_ids_of_many_producers_are_forgotten_in_slices() -> None:
    s = Driven()
    for number in range(3 * PRODUCERS_AT_ONCE):
        s.do("XADD", "p", "IDMP", number, "i", "*", "f", "v")
    s.clock.us += 200_000_000
    s.region.tick()
    producers = s.region.keyspace.databases[0].values[b"p"].producers
    assert producers.tracked == 2 * PRODUCERS_AT_ONCE
    s.region.tick()
    assert producers.tracked == 2 * PRODUCERS_AT_ONCE, "another round begins only behind this one"
    s.region.scheduler.run_turn()
    assert producers.tracked == PRODUCERS_AT_ONCE
    s.do("DEL", "p")
    s.do("XADD", "p", "IDMP", 0, "i", "*", "f", "v")
    s.region.scheduler.run_turn()
    assert len(s.region.scheduler) == 0
    assert s.region.keyspace.databases[0].values[b"p"].producers.tracked == 1
    assert producers.tracked == PRODUCERS_AT_ONCE, "nothing is done for a removed key"


def test_idempotent_ids_are_forgotten_after_a_want_of_memory() -> None:
    s = Driven()
    for number in range(2 * PRODUCERS_AT_ONCE):
        s.do("XADD", "p", "IDMP", number, "i", "*", "f", "v")
    s.clock.us += 200_000_000
    s.region.tick()

    class Full(Recorded):
        """No memory is left for the record."""

        def append(self, effect: kinds.Effect) -> None:
            raise MemoryError

    s.region.effects.record = Full()
    with pytest.raises(MemoryError):
        s.region.scheduler.run_turn()
    s.region.effects.record = None
    for _ in range(2):
        s.clock.us += 2_000_000
        s.region.tick()
        s.region.scheduler.run_turn()
    assert s.region.keyspace.databases[0].values[b"p"].producers.tracked == 0


# -- subscriptions, and what a connection had -------------------------------------------------

CHANNEL_KINDS = pytest.mark.parametrize("kind", ["", "P", "S"])
NAMES = [f"name:{number:04}*" for number in range(10 * NAMES_AT_ONCE)]


def acknowledged(region: Driven, session: Session, *args: object) -> list[Any]:
    """The acknowledgements of a request, each slice of which writes its own."""
    replies = decode_all(region.raw(*args, session=session))
    for _ in range(TURNS_MAX):
        if session.sliced is None:
            return replies
        region.region.scheduler.run_turn()
        region.settle()
        replies += decode_all(region.received(session))
    raise AssertionError("no end")


@CHANNEL_KINDS
def test_very_many_subscriptions_begin_and_end_in_slices(region: Driven, kind: str) -> None:
    session = region.connect(resp3=True)
    assert len(region.raw(f"{kind}SUBSCRIBE", *NAMES, session=session)) < 50 * NAMES_AT_ONCE
    assert session.sliced is not None
    publish = "SPUBLISH" if kind == "S" else "PUBLISH"
    assert region.do(publish, NAMES[0], "one", session=region.other) == 1
    assert region.do(publish, NAMES[-1], "none", session=region.other) == 0
    rest = [each for each in acknowledged(region, session, "PING") if isinstance(each, list)]
    assert [each[2] for each in rest if each[0].endswith(b"subscribe")][-1] == len(NAMES)
    assert [each[-1] for each in rest if each[0].endswith(b"message")] == [b"one"]
    over = acknowledged(region, session, f"{kind}UNSUBSCRIBE")
    assert [each[1].decode() for each in over] == NAMES
    assert [each[2] for each in over] == list(reversed(range(len(NAMES))))
    assert not region.region.holdings.by_holder["subscriptions"]


@CHANNEL_KINDS
@pytest.mark.parametrize("how", ["close", "RESET"])
def test_who_had_very_many_subscriptions_leaves_them_in_slices(
    region: Driven, kind: str, how: str
) -> None:
    session = region.connect(resp3=True)
    acknowledged(region, session, f"{kind}SUBSCRIBE", *NAMES)
    if how == "close":
        region.region.close_session(session)
    else:
        assert region.raw("RESET", session=session) == b""
    listeners = region.region.channels
    registry = {"": listeners.channels, "P": listeners.patterns, "S": listeners.shards}[kind]
    assert 0 < len(registry) < len(NAMES)
    publish = "SPUBLISH" if kind == "S" else "PUBLISH"
    remaining = next(iter(registry)).decode()
    assert region.do(publish, remaining, "m", session=region.other) == (how == "RESET")
    for _ in range(TURNS_MAX):
        region.region.scheduler.run_turn()
    assert not registry
    assert not region.region.holdings.by_holder["subscriptions"]
    assert not len(region.region.scheduler)
    if how == "RESET":
        assert region.received(session).endswith(b"+RESET\r\n")


def test_who_waited_for_very_many_keys_leaves_them_in_slices(region: Driven) -> None:
    keys = [f"k{number}" for number in range(5000)]
    waiters = region.region.keyspace.databases[0].waiters
    sessions = [region.connect() for _ in range(2)]
    for session in sessions:
        region.raw("BLPOP", *keys, 0, session=session)
    region.region.close_session(sessions[0])
    third = region.connect()
    region.raw("BLPOP", "k4999", 0, session=third)
    region.do("RPUSH", "k4999", "a", "b", session=region.other)
    region.region.scheduler.run_turn()
    assert region.replies(sessions[1]) == [[b"k4999", b"a"]]
    region.region.scheduler.run_turn()
    assert region.replies(third) == [[b"k4999", b"b"]]
    assert len(waiters) > 1000
    region.check()
    for _ in range(50):
        region.region.scheduler.run_turn()
    assert not waiters
    assert not region.region.holdings.by_holder["waiting"]


def test_watches_and_queues_of_who_has_gone_are_dropped_in_slices(region: Driven) -> None:
    session = region.connect()
    region.raw("WATCH", *(f"k{number}" for number in range(2000)), session=session)
    region.raw("MULTI", session=session)
    for _ in range(2000):
        region.raw("PING", session=session)
    requests = session.transaction
    region.region.close_session(session)
    assert 0 < len(region.region.keyspace.databases[0].watchers) < 2000
    assert requests is not None
    assert len(requests) == 2000
    for _ in range(50):
        region.region.scheduler.run_turn()
    assert not region.region.keyspace.databases[0].watchers
    assert not requests
    for holder in ("watched", "requests"):
        assert not region.region.holdings.by_holder[holder]
