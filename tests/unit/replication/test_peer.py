"""When to dial again, what the clocks show, and how much is not confirmed."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.replication.lag import SAMPLES_PER_LEVEL, SendLag
from anabranch.replication.peer import Backoff, ClockSamples


@settings(deadline=None)
@given(st.integers(0, 1000))
def test_waits_grow_by_chance_from_a_tenth_to_ten_seconds(seed: int) -> None:
    chance = random.Random(seed)
    backoff = Backoff()
    waits = []
    for _ in range(40):
        backoff.failed(1000.0, chance)
        waits.append(backoff.next_ms - 1000)
    assert waits[0] <= 300
    assert min(waits) >= 100
    assert max(waits) <= 10_000
    assert max(waits) > 1000


def test_ten_seconds_of_health_begin_anew() -> None:
    waits: dict[float, list[float]] = {9_999.0: [], 10_000.0: []}
    for seed in range(50):
        for healthy_ms, after in waits.items():
            chance = random.Random(seed)
            backoff = Backoff()
            for _ in range(20):
                backoff.failed(0.0, chance)
            backoff.lost(0.0, healthy_ms, chance)
            after.append(backoff.next_ms)
    assert max(waits[9_999.0]) > 3000
    assert max(waits[10_000.0]) <= 300


def test_a_wait_that_was_asked_for_is_kept() -> None:
    backoff = Backoff()
    backoff.failed(50.0, random.Random(1), 7000.0)
    assert backoff.next_ms == 7050.0


def test_the_fastest_of_the_last_sixteen_round_trips_tells_the_offset() -> None:
    samples = ClockSamples()
    samples.record(1.0, 50.0)
    for _ in range(15):
        samples.record(30.0, 80.0)
    assert (samples.round_trip_ms, samples.offset_ms) == (1.0, 50.0)
    samples.record(20.0, 70.0)
    assert (samples.round_trip_ms, samples.offset_ms) == (20.0, 70.0)


def test_without_a_round_trip_nothing_is_known_of_a_clock() -> None:
    assert ClockSamples().round_trip_ms is None
    assert ClockSamples().offset_ms is None


def test_lag_is_told_in_bytes_and_in_the_age_of_the_oldest_effect() -> None:
    marks = SendLag(10)
    marks.record(12, 100, 1000)
    marks.record(15, 50, 3000)
    assert marks.after(15, 9000) == (0, 0.0)
    assert marks.after(14, 9000) == (50, 6.0)
    assert marks.after(12, 9000) == (50, 6.0)
    assert marks.after(11, 9000) == (150, 8.0)
    assert marks.after(10, 9000) == (150, 8.0)
    assert marks.after(5, 9000) == (300, 8.0)  # as many bytes for each as for those since
    assert marks.after(15, 0) == (0, 0.0)


def test_marks_are_few_and_older_ones_are_coarser() -> None:
    marks = SendLag(0)
    for number in range(1, 100_001):
        marks.record(number, 10, number)
    assert sum(1 for _ in marks._oldest_first()) < 15 * SAMPLES_PER_LEVEL
    for confirmed in (0, 10_000, 50_000, 90_000, 99_000, 99_900, 99_990, 100_000):
        size, seconds = marks.after(confirmed, 100_000)
        unconfirmed = 100_000 - confirmed
        assert unconfirmed * 10 <= size <= unconfirmed * 10 * 1.05
        assert max(0, unconfirmed - 1) <= seconds * 1000 <= unconfirmed * 1.05
