"""The latency monitor, and what histograms say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.metrics.latency import LatencyMonitor, cumulative_usec, percentile_usec
from anabranch.metrics.slowlog import NEVER_NS

HISTOGRAMS = st.lists(st.integers(0, 1000), min_size=64, max_size=64)


def test_the_worst_of_a_second_counts():
    monitor = LatencyMonitor(10)
    for second, ms in ((1, 20), (1, 50), (1, 30), (2, 15)):
        monitor.record("command", second, ms)
    event = monitor.events["command"]
    assert list(event.samples) == [(1, 50), (2, 15)]
    assert event.max_ms == 50


def test_only_the_latest_160_seconds_are_kept():
    monitor = LatencyMonitor(10)
    for second in range(200):
        monitor.record("command", second, 11)
    assert len(monitor.events["command"].samples) == 160
    assert monitor.events["command"].samples[0] == (40, 11)


def test_reset_counts_what_it_forgets():
    monitor = LatencyMonitor(10)
    monitor.record("command", 1, 11)
    monitor.record("fast-command", 1, 11)
    assert monitor.reset(["nosuch", "command"]) == 1
    assert monitor.reset() == 1
    assert monitor.reset() == 0


def test_a_threshold_of_0_switches_off():
    assert not LatencyMonitor().enabled
    assert LatencyMonitor().threshold_ns == NEVER_NS
    assert LatencyMonitor(100).threshold_ns == 100_000_000


def test_buckets_are_powers_of_two_and_cumulative():
    histogram = [0] * 64
    histogram[0] = 1  # timed out while blocked
    histogram[10] = 2  # up to 1023 ns
    histogram[11] = 3  # up to 2047 ns
    histogram[14] = 4
    assert cumulative_usec(histogram) == [(1, 3), (2, 6), (16, 10)]
    assert cumulative_usec([0] * 64) == []


@given(HISTOGRAMS)
def test_the_last_bucket_holds_all_calls(histogram):
    pairs = cumulative_usec(histogram)
    assert (pairs[-1][1] if pairs else 0) == sum(histogram)
    assert pairs == sorted(pairs)
    assert len({bucket for bucket, _ in pairs}) == len(pairs)


def test_percentiles_lie_within_their_bucket():
    histogram = [0] * 64
    histogram[11] = 99
    histogram[20] = 1
    assert 1.024 <= percentile_usec(histogram, 50) <= 2.048
    assert 524.288 <= percentile_usec(histogram, 99.9) <= 1048.576
    assert percentile_usec([0] * 64, 50) == 0


@given(HISTOGRAMS, st.floats(0, 100), st.floats(0, 100))
def test_percentiles_ascend(histogram, one, other):
    low, high = sorted((one, other))
    lower, higher = percentile_usec(histogram, low), percentile_usec(histogram, high)
    assert lower <= higher or lower == pytest.approx(higher)
