"""Workers with leases in the simulator: a sample of the runs, and the mistakes they must find."""

from __future__ import annotations

import pytest

from tests.simulator.lease_mistakes import MISTAKES, REGIONS
from tests.simulator.leases import RUNS, LeaseRun

SEEN = (
    "lease over", "dead letter", "handed out again", "waited", "consumer removed", "snapshot",
    "removed by retention", "server ended", "worker killed", "worker paused", "worker cut off",
)  # fmt: skip


def test_policies_keep_their_promises_and_every_case_is_reached() -> None:
    runs = [LeaseRun(seed) for seed in range(1, 16)]
    for run in runs:
        run.run()
    assert not [case for case in SEEN if not sum(run.reached[case] for run in runs)]


def test_three_regions_keep_them_over_cut_lines() -> None:
    runs = [LeaseRun(seed, REGIONS) for seed in (1, 2, 3)]
    for run in runs:
        run.run()
    assert sum(run.reached["line cut"] for run in runs)


def test_a_region_ends_whose_last_replies_were_about_what_another_one_has_acknowledged() -> None:
    """Its clients did not hear of them; the client of the other region did."""
    LeaseRun(10_854).run()


def test_a_seed_gives_the_same_run() -> None:
    first, second = LeaseRun(7), LeaseRun(7)
    for run in (first, second):
        run.run()
    assert first.record.lines == second.record.lines
    assert first.reached == second.reached


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_found(mistake: str) -> None:
    """The seed of the table is tried first: docs/testing.md."""
    assert RUNS.seed_that_finds(mistake, [RUNS.known_seeds()[mistake], *range(1, 60)])
