"""What filters leave of a stream: never less than what matches them."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from anabranch.spark.filters import Stretch

KINDS = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, In)
WRAPPED = 1 << 63


def at(ms: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms)


def matches(given: Filter, value: Any) -> bool:
    wanted: Any = given.value  # type: ignore[attr-defined]
    match given:
        case EqualTo():
            return bool(value == wanted)
        case In():
            return value in wanted
        case GreaterThan():
            return bool(value > wanted)
        case GreaterThanOrEqual():
            return bool(value >= wanted)
        case LessThan():
            return bool(value < wanted)
        case _:
            return bool(value <= wanted)


def column(name: str, entry: tuple[int, int]) -> object:
    ms, seq = entry
    return {
        "ts": at(ms),
        "seq": seq - (1 << 64) if seq >= WRAPPED else seq,
        "id": f"{ms}-{seq}",
    }[name]


@pytest.mark.parametrize("seed", range(200))
def test_every_entry_that_matches_is_in_the_stretch(seed: int) -> None:
    rng = random.Random(seed)
    entries = [(ms, seq) for ms in range(4) for seq in (0, 1, 2, 3, WRAPPED, WRAPPED + 1)]
    stretch = Stretch()
    filters: list[tuple[str, Filter]] = []
    for _ in range(rng.randrange(1, 4)):
        name = rng.choice(("ts", "seq", "id"))
        kind = rng.choice((EqualTo, In) if name == "id" else KINDS)
        odds: dict[str, list[Any]] = {
            "ts": [at(-5), at(1.5)],
            "seq": [-3, 7],
            "id": ["1", "x", "01-0"],
        }
        values = [rng.choice([column(name, rng.choice(entries)), *odds[name]]) for _ in range(2)]
        given: Filter = In((name,), tuple(values)) if kind is In else kind((name,), values[0])
        filters.append((name, given))
        stretch.add(name, given)
    low, high = stretch.least_id, stretch.greatest_id
    for entry in entries:
        if all(matches(given, column(name, entry)) for name, given in filters):
            assert not stretch.is_empty
            assert low is None or low <= entry
            assert high is None or entry <= high


def test_a_stretch_is_as_short_as_the_filters_say() -> None:
    stretch = Stretch()
    stretch.add("ts", GreaterThanOrEqual(("ts",), at(10)))
    stretch.add("seq", GreaterThan(("seq",), 4))
    stretch.add("ts", LessThan(("ts",), at(20)))
    stretch.add("seq", LessThanOrEqual(("seq",), 9))
    assert (stretch.least_id, stretch.greatest_id) == ((10, 4), (20, 9))
    stretch.add("id", In(("id",), ("12-0", "15-3", "99-1")))
    assert (stretch.least_id, stretch.greatest_id) == ((12, 0), (20, 9))
    stretch.add("id", EqualTo(("id",), "15-3"))
    assert (stretch.least_id, stretch.greatest_id) == ((15, 3), (15, 3))
    stretch.add("id", EqualTo(("id",), "12-0"))
    assert stretch.is_empty


def test_nothing_is_from_before_1970() -> None:
    stretch = Stretch()
    stretch.add("ts", GreaterThanOrEqual(("ts",), at(-10)))
    assert not stretch.is_empty
    stretch.add("ts", LessThan(("ts",), at(-5)))
    assert stretch.is_empty


def test_names_and_positions() -> None:
    stretch = Stretch()
    assert (stretch.has("stream", "s"), stretch.positions(3, 9)) == (True, (3, 9))
    stretch.add("stream", In(("stream",), ("s", "t")))
    stretch.add("stream", EqualTo(("stream",), "t"))
    stretch.add("position", GreaterThanOrEqual(("position",), 5))
    stretch.add("position", In(("position",), (6, 7, 20)))
    assert [stretch.has("stream", each) for each in "st"] == [False, True]
    assert stretch.has("region", "eu")
    assert stretch.positions(3, 30) == (6, 21)
