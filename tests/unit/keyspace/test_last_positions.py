"""Where deleted streams ended: kept through everything, for a time, within a bound, in slices."""

from __future__ import annotations

import io
import random
from typing import Any

import msgspec
import pytest

from anabranch.keyspace import last_positions
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.last_positions import RUNS_MAX, LogEnd
from anabranch.keyspace.replica import Replica
from anabranch.keyspace.values import StringValue
from anabranch.oplog import snapshot
from anabranch.oplog.errors import LogError
from anabranch.oplog.file_kind import HEADER_BYTES
from anabranch.oplog.snapshot import Contents, Snapshot, load_snapshot, records_in
from anabranch.scheduling import in_one_go
from anabranch.stream.stream import Stream
from tests.support.mesh import Mesh
from tests.support.streams import Streams

DAY_MS = 86_400_000


def row(server: Any, key: str) -> Any:
    """The only row of a key without its name; None without a row."""
    (rows,) = server.do("AB.OFFSETS", "STREAMS", key)
    return rows and rows[0][1:]


def fill(server: Any, key: str, count: int) -> None:
    for number in range(count):
        server.do("XADD", key, "*", "n", number)


@pytest.mark.parametrize(
    "line",
    [
        "DEL s", "UNLINK s", "FLUSHALL", "FLUSHDB ASYNC", "PEXPIREAT s 1", "RENAME s t", "MOVE s 3",
        "SET s v", "MSET s v t v", "GETDEL", "RESTORE",
    ],
)  # fmt: skip
def test_a_stream_that_is_made_again_goes_on_where_it_ended(line: str) -> None:
    server = Streams()
    fill(server, "other", 2)
    payload = server.do("DUMP", "other")
    for times in range(1, 4):
        fill(server, "s", 5)
        if line == "RESTORE":
            server.do("RESTORE", "s", 0, payload, "REPLACE")
            assert row(server, "s")[2] == 7 * times
            assert row(server, "s")[6] == 0
            continue
        server.raw(*(["DEL", "s"] if line == "GETDEL" else line.split()))
        if server.do("TYPE", "s") == b"string":  # the stream is deleted all the same
            assert row(server, "s") == [5 * times, 5 * times, 5 * times, b"0-0", -1, 5 * times, 0]
            server.do("DEL", "s")
        server.raw("DEL", "t") if line.startswith("RENAME") else None
        server.raw("SELECT", 3), server.raw("DEL", "s"), server.raw("SELECT", 0)
        assert row(server, "s") == [5 * times, 5 * times, 5 * times, b"0-0", -1, 5 * times, 0]
    server.check()


def test_what_was_trimmed_under_another_key_is_no_entry_of_this_one() -> None:
    server = Streams()
    for command in (("RENAME", "t", "s"), ("COPY", "t", "s", "REPLACE")):
        fill(server, "s", 3)
        end = row(server, "s")[2]
        fill(server, "t", 10)
        server.do("XTRIM", "t", "MAXLEN", "=", 4)
        server.do(*command)
        assert row(server, "s")[:3] == [end, end, end + 4]
        assert row(server, "s")[5:] == [end, 0]
        assert server.info("s")["entries-added"] == 10
    server.check()


def test_databases_that_are_swapped_take_along_what_is_remembered() -> None:
    server = Streams()
    fill(server, "s", 3)
    server.do("DEL", "s")
    server.do("SWAPDB", 0, 1)
    assert row(server, "s") is None
    server.do("SELECT", 1)
    assert row(server, "s")[2] == 3


def test_it_is_forgotten_after_ledger_retention_and_positions_are_not_used_again() -> None:
    server = Streams()
    server.do("CONFIG", "SET", "ledger-retention", 86_400)
    fill(server, "s", 3)
    server.do("DEL", "s")
    server.advance(100)
    server.advance(DAY_MS - 200)
    assert row(server, "s")[2] == 3
    server.advance(DAY_MS // 8 + 1000)
    server.advance(DAY_MS)
    server.advance(100)
    assert row(server, "s") is None
    fill(server, "s", 1)
    assert row(server, "s")[0] > 3
    assert row(server, "s")[6] == row(server, "s")[0], "what was before is not known"
    server.do("CONFIG", "SET", "ledger-retention", 0)
    server.do("DEL", "s")
    server.advance(100 * DAY_MS)
    server.advance(100 * DAY_MS)
    assert row(server, "s") is not None


def test_memory_is_bounded_and_counted_and_the_oldest_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(last_positions, "RUN_KEYS", 64)
    server = Streams()
    count = 64 * (RUNS_MAX + 4)
    for number in range(count):
        server.do("XADD", f"key:{number}", "*", "f", "v")
        server.do("DEL", f"key:{number}")
    known = [number for number in range(count) if row(server, f"key:{number}") is not None]
    assert known == list(range(count - len(known), count))
    assert 64 * RUNS_MAX <= len(known) <= 64 * (RUNS_MAX + 1)
    server.advance(200)
    server.region.holdings.measure()
    assert server.region.holdings.by_holder["positions"] > len(known) * 8
    fill(server, "key:0", 1)
    assert row(server, "key:0")[0] > 1


def test_a_bound_in_bytes_drops_the_oldest_of_the_largest_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.keyspace.keyspace.BYTES_MAX", 20_000)
    monkeypatch.setattr(last_positions, "RUN_KEYS", 64)
    server = Streams()
    chance = random.Random(1)
    names = [chance.randbytes(200) for _ in range(640)]
    for name in names:
        server.do("XADD", name, "*", "f", "v")
        server.do("DEL", name)
    server.advance(200)
    keyspace = server.region.keyspace
    assert len(keyspace.databases[0].last_positions) < 640
    assert server.do("AB.OFFSETS", "STREAMS", names[0]) == [None]
    assert keyspace.last_positions_bytes <= 20_000 + 64 * 500


def test_what_a_flush_of_many_keys_has_ended_is_packed_bit_by_bit() -> None:
    """In short steps, while all is known at every moment, also to a snapshot."""
    keyspace = Keyspace()
    count = 20_000
    database = keyspace.databases[0]
    for number in range(count):
        stream = Stream(100, 100)
        stream.local.skip_positions(number + 1)
        database.put(b"key:%d" % number, stream)
        if number % 10 == 0:
            database.put(b"text:%d" % number, StringValue(b"v"))
    keyspace.deferred_free.call = lambda: None
    gone = database.clear()
    keyspace.deferred_free.defer(gone)
    steps = 0
    rng = random.Random(1)
    known = database.last_positions
    while keyspace.deferred_free.sweep(lambda: True):
        steps += 1
        if steps % 20 == 1 or steps < 5:
            for number in rng.sample(range(count), 20):
                assert known.of(b"key:%d" % number) == [LogEnd(0, number + 1, 0, 0)]
            assert known.of(b"text:0") == []
        if steps in (3, 60, 400):
            assert len(loaded(keyspace).databases[0].last_positions) == count
    assert steps > count // 2048 + count // 256
    assert len(known) == count
    again = loaded(keyspace).databases[0].last_positions
    for number in range(0, count, 97):
        assert again.of(b"key:%d" % number) == [LogEnd(0, number + 1, 0, 0)]
    assert keyspace.incarnations.next > count


def loaded(keyspace: Keyspace) -> Keyspace:
    """What a snapshot brings back."""
    data = Snapshot(keyspace, Contents(1)).whole()
    found = Keyspace(replica=Replica(keyspace.replica.own, lambda: (100, 100)))
    for _ in load_snapshot(io.BytesIO(data), "snapshot", found):
        pass
    return found


def test_a_snapshot_keeps_rows_and_when_they_ended() -> None:
    server = Streams()
    server.do("CONFIG", "SET", "ledger-retention", 80)
    for number in range(200):
        fill(server, f"key:{number}", number % 3)
        server.do("XGROUP", "CREATE", f"key:{number}", "g", "$", "MKSTREAM")
        server.do("DEL", f"key:{number}")
        server.advance(200)
    keyspace = server.region.keyspace
    again = loaded(keyspace)
    for number in range(200):
        key = b"key:%d" % number
        ends = keyspace.databases[0].last_positions.of(key)
        assert again.databases[0].last_positions.of(key) == ends
        assert len(ends) == 1
    assert [each[0] for each in again.databases[0].last_positions.written()] == [
        each[0] for each in keyspace.databases[0].last_positions.written()
    ]


@pytest.mark.parametrize("how", ["log", "snapshot", "full sync"])
def test_regions_keep_it_when_tombstones_are_forgotten(how: str) -> None:
    mesh = Mesh(3)
    one, two, three = mesh.nodes.values()
    for node in (one, two, three):
        fill(node, "s", 4)
    mesh.settle()
    two.do("DEL", "s")
    mesh.settle()
    ticked(mesh)
    assert not any(len(node.region.keyspace.databases[0].remembered) for node in (one, two, three))
    ends = one.do("AB.OFFSETS", "STREAMS", "s")
    assert [each[5] for each in ends[0]] == [-1] * 3
    for node in (one, two, three):
        assert node.do("AB.OFFSETS", "STREAMS", "s") == ends
    node = one
    if how == "full sync":
        node = three
        three.region.keyspace.databases[0].last_positions.__init__(  # type: ignore[misc]
            three.region.keyspace.incarnations, three.region.keyspace.deferred_free
        )
        assert three.do("AB.OFFSETS", "STREAMS", "s") == [None]
        one.do("XADD", "other", "*", "f", "v")
        three.join(one.whole_snapshot(), one)
    else:
        node.sync()
        if how == "snapshot":
            node.snapshot()
        node.restart()
    assert node.do("AB.OFFSETS", "STREAMS", "s") == ends
    for each in (two, one, three):
        each.do("XADD", "s", "*", "n", 4)
        mesh.settle()
    begun = {row[0]: row[1:] for row in node.do("AB.OFFSETS", "STREAMS", "s")[0]}
    for name, incarnation, _, stop, *_, known_from in ends[0]:
        assert begun[name][0] == incarnation
        assert begun[name][2] == stop + 1
        assert begun[name][-1] == known_from
    for each in (one, two, three):
        each.region.keyspace.databases[0].check()


def ticked(mesh: Mesh) -> None:
    for node in mesh.nodes.values():
        for _ in range(20):
            node.tick()


@pytest.mark.parametrize(
    "fields",
    [
        [0, 0, 7], [99, 0, {}], [0, 0, {b"k": b"\xc1"}], [0, 0, {b"k": [[1, 2, 1, 0]]}],
        [0, 0, {b"k": msgspec.msgpack.encode([[1, 2, 3, 0]])}],
        [0, 0, {b"k": msgspec.msgpack.encode([[1, 1 << 63, 3, 0]])}],
        [0, 5, {b"k": msgspec.msgpack.encode([[-1, 5, 3, 0]])}],
        [0, 5, {b"k": msgspec.msgpack.encode([[1, 5, 3]])}], [0, "5", {b"k": b"\x90"}],
    ],
)  # fmt: skip
def test_rows_that_make_no_sense_are_refused(fields: list[Any]) -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    data = one.whole_snapshot()
    (replica,) = [each for at, _, each in records_in(io.BytesIO(data), "s") if at and not each[0]]
    encode = msgspec.msgpack.encode

    def load(record: list[Any]) -> Keyspace:
        bodies = [encode(replica), encode(record), encode([snapshot.END, 2])]
        file = io.BytesIO(data[:HEADER_BYTES] + b"".join(map(snapshot.framed, bodies)))
        return in_one_go(two.region.merging.loading(file, "state"))

    sound = [snapshot.LAST_POSITIONS, 0, 5, {b"k": encode([[1, 5, 3, 0]])}]
    assert load(sound).databases[0].last_positions.of(b"k") == [LogEnd(1, 5, 3, 0)]
    with pytest.raises(LogError, match=r"makes no sense|databases"):
        load([snapshot.LAST_POSITIONS, *fields])
