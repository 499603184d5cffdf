"""Rates of the last moments."""

from __future__ import annotations

from anabranch.metrics.stats import Rates, Stats


def test_growth_per_second():
    rates, stats = Rates(), Stats()
    assert rates.per_second() == (0, 0, 0)
    rates.sample(1000, stats)
    stats.commands_processed += 50
    stats.net_input_bytes += 1000
    rates.sample(1050, stats)  # too soon to count
    assert rates.per_second() == (0, 0, 0)
    rates.sample(1500, stats)
    assert rates.per_second() == (100, 2000, 0)


def test_old_samples_are_forgotten():
    rates, stats = Rates(), Stats()
    rates.sample(0, stats)
    stats.commands_processed = 1_000_000
    for tick in range(1, 40):
        rates.sample(tick * 100, stats)
    assert rates.per_second().commands == 0


def test_counters_and_clocks_that_go_back_begin_anew():
    rates, stats = Rates(), Stats()
    stats.commands_processed = 100
    rates.sample(1000, stats)
    rates.sample(2000, stats)
    stats.reset()
    rates.sample(3000, stats)
    assert rates.per_second() == (0, 0, 0)
    rates.sample(500, stats)
    assert rates.per_second() == (0, 0, 0)
