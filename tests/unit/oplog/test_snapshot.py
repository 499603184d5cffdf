"""A snapshot shows one moment, whatever happens while it is written."""

from __future__ import annotations

import io
import random

import msgspec
import pytest
from xxhash import xxh3_64_intdigest

from anabranch.keyspace import remembered
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.values import StringValue
from anabranch.oplog import snapshot
from anabranch.oplog.errors import CorruptLogError, NewerFormatError
from anabranch.oplog.snapshot import (
    DELETED,
    FORMAT_VERSION,
    LAST_EFFECTS,
    STREAM,
    Contents,
    Snapshot,
    framed,
    load_snapshot,
    position_of,
    records_in,
    snapshot_name,
)
from anabranch.stream.stream import Stream
from tests.support.compressing import compress_all, whatever_it_gains
from tests.support.mesh import Mesh
from tests.support.packing import packing_at_once
from tests.support.random_lines import random_lines
from tests.support.recorder import OTHER_LINES, Recorder, everything_in
from tests.support.region_harness import Harness


def loaded(data: bytes) -> tuple[Keyspace, Contents]:
    """A keyspace with what the snapshot holds."""
    keyspace = Keyspace()
    contents = Contents(0)
    for _, contents in load_snapshot(io.BytesIO(data), "file", keyspace):  # noqa: B007
        pass
    for database in keyspace.databases:
        database.check()
        for value in database.values.values():
            if isinstance(value, Stream):
                value.check()
    return keyspace, contents


def no_block_is_shared(keyspace: Keyspace) -> bool:
    """Whether a snapshot has let go of everything."""
    return not any(
        block.shared
        for database in keyspace.databases
        for value in database.values.values()
        if isinstance(value, Stream)
        for log in value.logs.values()
        for block in log.blocks
    )


@pytest.mark.parametrize("seed", range(60))
def test_a_snapshot_shows_the_moment_at_which_it_began(seed: int) -> None:
    rng = random.Random(seed)
    recorder = Recorder()
    effects = recorder.server.region.effects
    keyspace = recorder.server.region.keyspace
    lines = list(random_lines(rng, *OTHER_LINES))
    begin = rng.randrange(len(lines))
    pieces = None
    data = []
    for number, line in enumerate(lines):
        if number == begin:
            expected = everything_in(keyspace)
            snapshot = Snapshot(keyspace, Contents(77, 3, 2, 55, 1234))
            effects.before = snapshot.before
            pieces = snapshot.bodies()
        recorder.run(line)
        if rng.random() < 0.1:
            with whatever_it_gains():
                compress_all(keyspace, keyspace.block_cache)
        if pieces is not None and rng.random() < 0.15:
            data += [piece for _ in range(rng.choice((1, 1, 3))) if (piece := next(pieces, None))]
    assert pieces is not None
    data += pieces
    effects.before = None
    again, contents = loaded(snapshot.header() + b"".join(map(framed, filter(None, data))))
    assert everything_in(again) == expected
    assert (contents.position, contents.region, contents.epoch) == (77, 3, 2)
    assert (contents.next_number, contents.wall_ms) == (55, 1234)
    assert contents.entries == sum(
        value.length
        for database in again.databases
        for value in database.values.values()
        if isinstance(value, Stream)
    )
    assert no_block_is_shared(keyspace)


@pytest.mark.parametrize("seed", range(20))
def test_an_abandoned_snapshot_leaves_no_trace(seed: int) -> None:
    rng = random.Random(seed)
    recorder = Recorder()
    effects = recorder.server.region.effects
    keyspace = recorder.server.region.keyspace
    for line in random_lines(rng, *OTHER_LINES):
        recorder.run(line)
    snapshot = Snapshot(keyspace, Contents(0))
    effects.before = snapshot.before
    pieces = snapshot.bodies()
    for _ in range(rng.randrange(6)):
        next(pieces, None)
    for line in random_lines(rng, *OTHER_LINES):
        recorder.run(line)
    effects.before = None
    snapshot.release()
    assert no_block_is_shared(keyspace)
    recorder.server.check()


def test_a_released_snapshot_keeps_nothing_in_memory() -> None:
    with packing_at_once():
        mesh = Mesh(3)
        one, two, _ = mesh.nodes.values()
        mesh.away.add(3)
        for number in range(20):
            one.do("XADD", f"k{number}", "*", "f", "v")
        for number in range(5):
            one.do("DEL", f"k{number}")
        mesh.settle()
        two.replica.last_effects.absorb()
    snapshot = Snapshot(two.region.keyspace, Contents(1))
    kinds = {msgspec.msgpack.decode(body)[0] for body in snapshot.bodies() if body}
    assert {STREAM, DELETED, LAST_EFFECTS} <= kinds
    snapshot = Snapshot(two.region.keyspace, Contents(1))
    snapshot.release()
    rest = [body for body in snapshot.bodies() if body]
    assert len(rest) == 2, "who wrote it, and its end"


def filled() -> bytes:
    """A snapshot with one of everything."""
    recorder = Recorder()
    for line in (
        "XADD s 1-0 f v",
        "XADD s 2-0 f v",
        "XGROUP CREATE s g 0",
        "XREADGROUP GROUP g c STREAMS s >",
        "SET k v",
        "SADD m 1",
        "RPUSH l 1",
        "ACL SETUSER ann on",
    ):
        recorder.run(line)
    return Snapshot(recorder.server.region.keyspace, Contents(5)).whole()


def test_a_snapshot_that_ends_early_anywhere_is_refused() -> None:
    data = filled()
    for size in range(len(data)):
        with pytest.raises(CorruptLogError, match=r"^file is damaged at byte"):
            loaded(data[:size])
    with pytest.raises(CorruptLogError, match="bytes behind the last record"):
        loaded(data + b"x")


def test_a_changed_byte_anywhere_is_refused() -> None:
    data = filled()
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x41
        with pytest.raises(CorruptLogError):
            loaded(bytes(broken))


def as_format(data: bytes, version: int) -> bytes:
    """The same file under the number of another format, and of its lowest reader."""
    header = data[:8] + 2 * version.to_bytes(2, "little") + data[12:24]
    return header + xxh3_64_intdigest(header).to_bytes(8, "little") + data[32:]


def test_a_file_of_a_newer_server_is_refused_as_such() -> None:
    with pytest.raises(NewerFormatError, match="newer server"):
        loaded(as_format(filled(), FORMAT_VERSION + 1))


def test_names_tell_positions_and_sort_like_them() -> None:
    positions = [0, 9, 10, 123, 10**18]
    names = [snapshot_name(position) for position in positions]
    assert names == sorted(names)
    assert [position_of(name) for name in names] == positions
    assert position_of("snapshot-x.absnap") is None
    assert position_of(names[0] + ".tmp") is None
    assert position_of("log-00000000000000000000.ablog") is None


def test_long_strings_that_change_in_place_stay_as_they_were() -> None:
    harness = Harness()
    keyspace = harness.region.keyspace
    effects = harness.region.effects
    long = b"x" * 100_000
    for key in ("before", "during", "copied"):
        harness.do("SET", key, long)
    harness.do("APPEND", "before", "1")
    snapshot = Snapshot(keyspace, Contents(1))
    effects.before = snapshot.before
    pieces = snapshot.bodies()
    for key in ("before", "during"):
        harness.do("APPEND", key, "2")
        harness.do("SETRANGE", key, "5", "3")
    harness.do("COPY", "during", "later")
    harness.do("SETRANGE", "during", "7", "4")
    data = snapshot.header() + b"".join(map(framed, filter(None, pieces)))
    effects.before = None
    values = loaded(data)[0].databases[0].values
    found = {key: value.data for key, value in values.items() if isinstance(value, StringValue)}
    assert found == {b"before": long + b"1", b"during": long, b"copied": long}
    assert harness.do("GET", "later") == b"xxxxx3" + long[6:] + b"2"


def test_a_record_with_many_keys_has_a_bounded_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MAPS_BYTES", 1000)
    mesh = Mesh(2)
    one = mesh.nodes[1]
    monkeypatch.setattr(remembered, "OBJECTS_MAX", 0)
    monkeypatch.setattr(remembered, "BATCH", 1)
    for number in range(100):
        key = b"%03d" % number * 100
        one.do("XADD", key, "*", "f", "v")
        one.do("DEL", key)
    keyspace = one.region.keyspace
    assert keyspace.databases[0].remembered.packed
    data = Snapshot(keyspace, Contents(1)).whole()
    rows = [record for _, _, record in records_in(io.BytesIO(data), "file")][1:]
    packed = [record for record in rows if record[0] == snapshot.DELETED]
    assert len(packed) > 3
    assert all(sum(map(len, record[2])) < 12_000 for record in packed)
    assert sum(len(rows) for record in packed for rows in record[2:]) >= 60
