"""Effects of a turn as batches, and bytes as batches again."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.effects import kinds
from anabranch.effects.codec import plain
from anabranch.effects.prepare import mode_of
from anabranch.keyspace.replica import Replica, replica_id_of
from anabranch.oplog.batch import (
    COMPRESSED,
    CONTINUES,
    HEADER_BYTES,
    LOCAL,
    Batch,
    BatchError,
    Compressor,
    decode_batch,
    effects_in,
    is_sound,
    saved_bytes,
)
from anabranch.oplog.body import LONG_FIELD_BYTES, body_parts
from anabranch.oplog.segment import turns_in
from anabranch.region import turn as turn_module
from anabranch.region.turn import Turn
from tests.support.batches import encode_batch
from tests.support.recording import record_all
from tests.support.region_harness import Harness

NUMBERED = kinds.SetString(0, b"k", b"v")
LOCAL_ONE = kinds.Acknowledge(0, b"s", b"g", [1 << 64])

EFFECTS = st.lists(st.sampled_from([NUMBERED, LOCAL_ONE]), max_size=20)


def batches(data: bytes) -> list[Batch]:
    found = []
    at = 0
    while at < len(data):
        batch = decode_batch(data, at)
        found.append(batch)
        at += batch.size
    return found


LARGE = 16 << 20


@pytest.mark.parametrize("compressor", [None, Compressor()], ids=["as it is", "compressed"])
@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_only_the_value_of_a_large_batch_is_copied_when_it_is_read(
    kind: type[bytes | memoryview], compressor: Compressor | None
) -> None:
    value = bytes(LARGE)
    effects: list[kinds.Effect] = [kinds.SetString(0, b"k", value)]
    raw = encode_batch(
        effects, region=1, epoch=1, first=1, wall_ms=1, flags=0, compressor=compressor
    )
    data = kind(raw)
    tracemalloc.start()
    batch = decode_batch(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert effects_in(batch) == effects
    assert peak < LARGE * (2 if compressor else 1) + (1 << 20)


def test_a_large_batch_is_not_copied_to_be_checked() -> None:
    data = encode_batch(
        [kinds.SetString(0, b"k", bytes(LARGE))], region=1, epoch=1, first=1, wall_ms=1, flags=0
    )
    damaged = data[:-1] + b"x"
    tracemalloc.start()
    assert is_sound(data)
    assert not is_sound(damaged)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


# -- one batch --------------------------------------------------------------------------------


def test_a_batch_says_where_it_comes_from_and_where_it_stands() -> None:
    data = encode_batch(
        [NUMBERED, NUMBERED], region=31, epoch=1 << 31, first=1 << 40, wall_ms=1 << 50, flags=0
    )
    batch = decode_batch(b"before" + data + b"behind", 6)
    assert (batch.region, batch.epoch, batch.first) == (31, 1 << 31, 1 << 40)
    assert (batch.numbered, batch.wall_ms, batch.size) == (2, 1 << 50, len(data))
    assert not batch.is_local
    assert not batch.continues
    assert effects_in(batch) == [NUMBERED, NUMBERED]


def test_a_local_batch_takes_no_numbers() -> None:
    data = encode_batch([LOCAL_ONE], region=0, epoch=0, first=5, wall_ms=1, flags=LOCAL | CONTINUES)
    batch = decode_batch(data)
    assert (batch.first, batch.numbered) == (5, 0)
    assert batch.is_local
    assert batch.continues


def test_neighbouring_additions_take_a_number_each() -> None:
    adds = [kinds.Add(0, b"s", number, b"f", 1, False) for number in (1, 2, 3)]
    turn = Turn(Replica.alone())
    record_all(turn.recorded, adds)
    assert turn.recorded.count == 3
    batch = decode_batch(turn.drain(1))
    assert batch.numbered == 3
    assert len(effects_in(batch)) == 1


def test_every_missing_and_every_changed_byte_is_noticed() -> None:
    data = encode_batch([NUMBERED], region=0, epoch=0, first=1, wall_ms=1, flags=0)
    for size in range(len(data)):
        with pytest.raises(BatchError, match="cut off"):
            decode_batch(data[:size])
    for at in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            with pytest.raises(BatchError):
                decode_batch(bytes(broken))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_no_batch(data: bytes) -> None:
    with pytest.raises(BatchError):
        decode_batch(data)
    with pytest.raises(BatchError):
        decode_batch(b"AB\x01\x00" + data)


# -- a turn ----------------------------------------------------------------------------------


@settings(deadline=None)
@given(EFFECTS, st.integers(1, 5))
def test_a_turn_comes_back_in_order_however_it_is_cut(
    effects: list[kinds.Effect], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turn_module, "BATCH_EFFECTS_MAX", most)
        replica = Replica(replica_id_of(3, 4), lambda: (100, 100))
        replica.vector[replica.own] = 99 + effects.count(NUMBERED)
        turn = Turn(replica)
        record_all(turn.recorded, effects)
        found = batches(turn.drain(77))
    assert turn.recorded.effects == []
    assert turn.recorded.count == 0
    assert [effect for batch in found for effect in effects_in(batch)] == effects
    number = 100
    for batch in found:
        assert (batch.region, batch.epoch, batch.wall_ms) == (3, 4, 77)
        assert 0 < len(effects_in(batch)) <= most
        assert all(effect.local == batch.is_local for effect in effects_in(batch))
        assert batch.first == number
        number += batch.numbered
    assert turn.next_number == number or not effects
    assert number == 100 + effects.count(NUMBERED)
    assert [batch.continues for batch in found] == [True] * (len(found) - 1) + [False][: len(found)]


def test_an_empty_turn_is_nothing() -> None:
    assert Turn(Replica.alone()).drain(1) == b""


def test_a_turn_is_read_as_one_however_many_batches_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_module, "BATCH_EFFECTS_MAX", 2)
    turn = Turn(Replica.alone())
    data = b" " * 32  # where a file has its header
    for count in (5, 1, 2):
        record_all(turn.recorded, [NUMBERED] * count)
        data += turn.drain(1)
    read = [item[1] for item in turns_in(data)]
    assert [len(batches) for batches in read if isinstance(batches, list)] == [3, 1, 1]


def test_headers_are_as_long_as_they_say() -> None:
    empty = encode_batch([], region=0, epoch=0, first=1, wall_ms=1, flags=0)
    assert len(empty) == HEADER_BYTES + len(b"\x92\x90\x90")


# -- compression --------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [10, 400, 700, 70_000, 1 << 20])
def test_what_compression_has_saved(length: int) -> None:
    effects = [kinds.SetString(0, b"k", b"v" * length)]
    one = encode_batch(effects, region=1, epoch=0, first=1, wall_ms=1, flags=0)
    other = encode_batch(
        effects, region=1, epoch=0, first=1, wall_ms=1, flags=0, compressor=Compressor()
    )
    assert saved_bytes(one) == 0
    assert saved_bytes(other) == len(one) - len(other)
    assert bool(saved_bytes(other)) is (length > 400)


def body_of(effects: list[kinds.Effect], dependencies: list[int]) -> bytes:
    """What msgspec writes of the effects as plain arrays."""
    return msgspec.msgpack.encode((dependencies, [plain(effect) for effect in effects]))


LONG = 3 << 20
LONG_EFFECTS: list[kinds.Effect] = [
    kinds.Add(3, b"k", 7 << 64 | 9, bytes(LONG), LONG, True, 5),
    kinds.SetString(0, b"k", random.Random(1).randbytes(LONG)),
    kinds.SetString(0, bytes(LONG), bytes(range(256)) * (LONG // 256), keeps_deadline=True),
    kinds.Overwrite(0, b"k", 5, b"x" * (LONG_FIELD_BYTES + 1), "append"),
    kinds.Overwrite(0, b"k", 5, b"x" * LONG_FIELD_BYTES, "append"),
    kinds.SetStrings(0, [b"k"], [bytes(LONG)]),
]


@pytest.mark.parametrize("compressor", [None, Compressor()], ids=["as it is", "compressed"])
@pytest.mark.parametrize("number", range(len(LONG_EFFECTS)))
def test_a_long_field_is_written_as_any_other(number: int, compressor: Compressor | None) -> None:
    effects = [LONG_EFFECTS[number]]
    dependencies = [1, 5, 2, 300]
    assert b"".join(body_parts(effects, dependencies)) == body_of(effects, dependencies)
    data = encode_batch(
        effects, region=2, epoch=1, first=5, wall_ms=7, flags=0, compressor=compressor,
        dependencies=dependencies,
    )  # fmt: skip
    batch = decode_batch(data)
    assert batch.size == len(data)
    assert batch.dependencies == {1: 5, 2: 300}
    assert body_of(effects_in(batch), dependencies) == body_of(effects, dependencies)
    if compressor is not None:
        assert (len(data) < LONG // 2) == (number != 1)


def test_random_bytes_are_not_compressed_in_vain() -> None:
    data = random.Random(2).randbytes(16 << 20)
    compressor = Compressor()
    compressor.shorter(data)  # what is made once
    samples = least_s(lambda: compressor.shorter(data))
    whole = least_s(lambda: compressor.shorter(data[:-LONG] + bytes(LONG)))
    assert compressor.shorter(data) is None
    assert compressor.shorter(data[:-LONG] + bytes(LONG)) is not None
    assert samples < whole / 4


def least_s(action: Callable[[], object]) -> float:
    """The CPU time of an action, the least of some."""
    taken = []
    for _ in range(5):
        began_s = time.process_time()
        action()
        taken.append(time.process_time() - began_s)
    return min(taken)


def added(payload: bytes) -> tuple[Harness, Turn]:
    """A region alone with one entry, and the turn that has its effects."""
    harness = Harness()
    turn = Turn(Replica.alone())
    harness.region.effects.record = turn.recorded
    harness.region.execute(harness.connect(), [[b"XADD", b"s", b"*", b"f", payload]])
    return harness, turn


def test_the_log_gets_a_large_entry_as_it_is_in_its_stream() -> None:
    """The only copy is that into the entry: the pieces of the batch contain the entry itself."""
    payload = random.Random(3).randbytes(LARGE)
    tracemalloc.start()
    harness, turn = added(payload)
    pieces = turn.drain_batches(1, whole=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * LARGE
    (batch,) = batches(b"".join(pieces))
    added_again = effects_in(batch)[-1]
    assert isinstance(added_again, kinds.AddRun)
    assert payload in added_again.data
    assert harness.region.keyspace.databases[0].values


def test_other_regions_get_a_batch_in_one_piece() -> None:
    payload = random.Random(4).randbytes(2 * LONG_FIELD_BYTES)
    _, turn = added(payload)
    effects = turn.recorded.effects[:]
    (whole,) = turn.drain_batches(1)
    turn.recorded.effects += effects
    turn.next_number -= len(effects)
    assert b"".join(turn.drain_batches(1, whole=False)) == whole


@pytest.mark.parametrize("region", [0, 3])
def test_a_short_turn_is_compressed_only_where_other_regions_get_it(region: int) -> None:
    replica = Replica(replica_id_of(region, 0), lambda: (100, 100))
    turn = Turn(replica, mode_of(replica).compressed_bytes_min)
    compressed = []
    for count in (2, 16, 200):
        for number in range(count):
            turn.recorded.go_to(0, b"s", -1)
            turn.recorded.add(number, bytes(30), 1, False)
        compressed.append(bool(decode_batch(turn.drain(1)).flags & COMPRESSED))
    assert compressed == [False, region > 0, True]
