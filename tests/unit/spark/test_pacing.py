"""Rows come when they are due, in order, and not again what is there."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from anabranch.spark.options import OptionError
from anabranch.spark.writing.pacing import Present, paced
from anabranch.spark.writing.plan import Plan

Row = tuple[str, float]


class Clock:
    """Time that passes by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def arrivals(
    rows: list[Row], speed: float, known: dict[str, Present] | None = None, size: int = 3
) -> list[tuple[float, int, str]]:
    """When each row comes, its number, and its stream; the last two as they come."""
    clock = Clock()
    batches = [
        pa.RecordBatch.from_pydict(
            {
                "stream": [stream for stream, _ in rows[at : at + size]],
                "n": list(range(at, min(at + size, len(rows)))),
                "pace": pa.array([ms for _, ms in rows[at : at + size]], pa.float64()),
            }
        )
        for at in range(0, len(rows), size)
    ]
    asked: list[str] = []

    def present(stream: str, lane: str) -> Present:
        assert lane == ""
        asked.append(stream)
        return (known or {}).get(stream, Present())

    found = []
    for batch in paced(batches, speed, present, lambda: clock.now, clock.sleep):
        assert batch.schema.names == ["stream", "n"]
        found += [(clock.now - 1000, row["n"], row["stream"]) for row in batch.to_pylist()]
    assert len(asked) == len(set(asked))
    return found


@pytest.mark.parametrize("speed", [0.5, 1, 10])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_rows_come_at_their_time(speed: float, size: int) -> None:
    rows = [("s", 5_000.0), ("t", 5_000.0), ("s", 5_100.0), ("s", 9_000.0), ("t", 60_000.0)]
    found = arrivals(rows, speed, size=size)
    assert [(number, stream) for _, number, stream in found] == [
        (number, stream) for number, (stream, _) in enumerate(rows)
    ]
    for (when, number, _), (_, ms) in zip(found, rows, strict=True):
        due = (ms - 5_000) / 1000 / speed
        assert due - 1e-9 <= when <= due + 0.011, number


def test_rows_that_are_close_go_together() -> None:
    found = arrivals([("s", float(ms)) for ms in range(10_000)], 10, size=10_000)
    assert 90 <= len({when for when, _, _ in found}) <= 101


@pytest.mark.parametrize("present", [Present(until_ms=3_999), Present(rows=3)])
def test_nobody_waits_for_what_is_there(present: Present) -> None:
    rows = [("s", 1_000.0), ("s", 2_000.0), ("s", 3_000.0), ("s", 4_000.0), ("s", 5_000.0)]
    for size in (1, 2, 5):
        found = arrivals(rows, 1, {"s": present}, size)
        assert [when for when, _, _ in found] == pytest.approx([0, 0, 0, 0, 1], abs=0.02)


def test_a_stream_that_is_behind_sets_the_time_and_order_stays() -> None:
    rows = [("s", 1_000.0), ("t", 2_000.0), ("s", 3_000.0), ("t", 4_000.0), ("s", 5_000.0)]
    found = arrivals(rows, 1, {"s": Present(until_ms=4_000)})
    assert [number for _, number, _ in found] == [0, 1, 2, 3, 4]
    assert [when for when, _, _ in found] == pytest.approx([0, 0, 0, 2, 3], abs=0.02)


def test_what_is_there_does_not_take_others_along_before_their_time() -> None:
    rows = [("t", 1_000.0), ("t", 2_000.0), ("s", 3_000.0), ("t", 4_000.0)]
    found = arrivals(rows, 1, {"s": Present(until_ms=9_000)}, size=4)
    assert [when for when, _, _ in found] == pytest.approx([0, 1, 1, 3], abs=0.02)


def test_what_is_there_is_known_by_lane() -> None:
    rows = [(1_000.0, "eu"), (2_000.0, "us"), (3_000.0, "eu"), (4_000.0, "us"), (5_000.0, "us")]
    batch = pa.RecordBatch.from_pydict(
        {
            "stream": ["s"] * len(rows),
            "region": [region for _, region in rows],
            "n": list(range(len(rows))),
            "pace": pa.array([ms for ms, _ in rows], pa.float64()),
        }
    )
    known = {("s", "eu"): Present(rows=2), ("s", "us"): Present(rows=1)}

    def arrive(size: int) -> list[float]:
        clock = Clock()
        pieces = [batch.slice(at, size) for at in range(0, len(rows), size)]
        found: list[float] = []
        for piece in paced(
            pieces, 1, lambda *place: known[place], lambda: clock.now, clock.sleep, "region"
        ):
            assert piece.schema.names == ["stream", "region", "n"]
            found += [clock.now - 1000] * piece.num_rows
        return found

    for size in (1, 2, 5):
        assert arrive(size) == pytest.approx([0, 0, 0, 0, 1], abs=0.02)


def test_a_speed_needs_times_which_are_not_written() -> None:
    columns = StructType().add("n", LongType())
    with pytest.raises(OptionError, match="needs a column pace"):
        Plan.of({"stream": "s", "speed": "2"}, columns)
    columns.add("pace", LongType())
    assert Plan.of({"stream": "s", "speed": "2"}, columns).layout.payload == (("n", b"n"),)
    assert len(Plan.of({"stream": "s"}, columns).layout.payload) == 2


def test_rows_of_lanes_are_told_apart_by_their_place() -> None:
    columns = StructType().add("n", LongType())
    for way in ("content", "column"):
        given = {"stream": "s", "laneColumn": "n", "idempotence": way}
        given |= {"idempotenceColumn": "n"} if way == "column" else {}
        with pytest.raises(OptionError, match="by their place"):
            Plan.of(given, columns)
