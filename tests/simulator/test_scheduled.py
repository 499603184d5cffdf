"""Scheduled entries in the simulator: a sample of the runs, and the mistakes they must find."""

from __future__ import annotations

import pytest

from tests.simulator.scheduled import RUNS, ScheduledRun
from tests.simulator.scheduled_mistakes import MISTAKES, REGIONS

SEEN = ("scheduled", "cron", "cancelled", "entries", "server ended", "snapshot")


def test_each_entry_is_added_once_and_every_case_is_reached() -> None:
    runs = [ScheduledRun(seed) for seed in range(1, 9)]
    for run in runs:
        run.run()
    assert not [case for case in SEEN if not sum(run.reached[case] for run in runs)]


def test_three_regions_add_them_once_over_cuts_and_a_removal() -> None:
    runs = [ScheduledRun(seed, REGIONS) for seed in range(1, 6)]
    for run in runs:
        run.run()
    assert sum(run.reached["line cut"] for run in runs)
    assert sum(run.reached["removed"] for run in runs)


def test_a_seed_gives_the_same_run() -> None:
    first, second = ScheduledRun(7), ScheduledRun(7)
    for run in (first, second):
        run.run()
    assert first.record.lines == second.record.lines


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_found(mistake: str) -> None:
    """The seed of the table is tried first: docs/testing.md."""
    assert RUNS.seed_that_finds(mistake, [RUNS.known_seeds()[mistake], *range(1, 60)])
