"""A long string grows in place, and what somebody has of it stays as it was."""

from __future__ import annotations

import random
import tracemalloc

from anabranch.keyspace.memory import value_bytes
from anabranch.keyspace.values import StringValue

LARGE = 8 << 20


def peak_of(value: StringValue, at: int, data: bytes) -> int:
    """The most memory that a change needs beside what there is."""
    tracemalloc.start()
    value.overwrite(at, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_a_long_string_is_changed_without_a_copy() -> None:
    # The size differs from the one before: nothing else has these bytes.
    value = StringValue(b"x" * LARGE)
    assert peak_of(value, LARGE // 2, b"yy") < LARGE // 4
    assert peak_of(value, 0, b"z") < LARGE // 4
    assert value.data == b"z" + b"x" * (LARGE // 2 - 1) + b"yy" + b"x" * (LARGE // 2 - 2)
    assert peak_of(value, 5, b"w") < LARGE // 4, "who has looked at it has gone"


def test_what_somebody_has_stays_as_it_was() -> None:
    before = bytes(LARGE)
    value = StringValue(before)
    value.overwrite(0, b"a")
    first = value.data
    value.overwrite(1, b"b")
    value.overwrite(LARGE + 3, b"c")
    assert (before, first) == (bytes(LARGE), b"a" + bytes(LARGE - 1))
    assert value.data == b"ab" + bytes(LARGE + 1) + b"c"
    assert value.size == LARGE + 4


def test_any_changes_give_the_bytes_of_plain_ones() -> None:
    rng = random.Random(7)
    for _ in range(200):
        expected = bytearray(rng.randbytes(rng.choice([0, 1, 4090, 4096, 20_000])))
        value = StringValue(bytes(expected))
        for _ in range(10):
            size = len(expected)
            at = rng.choice([0, size, size // 2, size + 5, 4095, 4096, 6000])
            data = rng.randbytes(rng.choice([0, 1, 100, 5000]))
            if not data and at > size:  # no command does this
                continue
            expected.extend(bytes(max(at - size, 0)))
            expected[at : at + len(data)] = data
            value.overwrite(at, data)
            assert (value.data, value.size) == (expected, len(expected))
            if rng.random() < 0.5:
                value = StringValue(value.data)


def test_room_to_grow_is_counted() -> None:
    value = StringValue(b"x" * LARGE)
    value.overwrite(LARGE, b"y")
    assert LARGE < value_bytes(value) < LARGE * 1.3
