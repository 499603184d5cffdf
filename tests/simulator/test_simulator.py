"""Runs of the simulator: a range of seeds, the same twice, and mistakes it must find."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import nullcontext

import pytest

from anabranch.simulator.cases import CASES, RARE_CASES
from anabranch.simulator.faults import FAULTS, drawn, prepared, simulate, smallest
from anabranch.simulator.machine import Machine, Process
from anabranch.simulator.simulation import Outcome
from tests.simulator.faults import (
    MINUTES,
    MISTAKES,
    Mistake,
    first_seed,
    known_seeds,
    tombstones_at_once,
)
from tests.support.packing import packing_at_once

pytestmark = pytest.mark.timeout(900)

SEEDS = range(1, 33)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    found = []
    for seed in SEEDS:
        with packing_at_once() if seed % 2 else nullcontext():
            found.append(simulate(seed, minutes=MINUTES))
    return found


def test_everything_holds_whatever_goes_wrong(outcomes: list[Outcome]) -> None:
    failed = [f"seed {each.seed}: {each.sentence}" for each in outcomes if each.problem]
    assert not failed, "\n".join(failed)


def test_the_runs_come_to_every_case(outcomes: list[Outcome]) -> None:
    reached: Counter[str] = Counter()
    for outcome in outcomes:
        reached += outcome.reached
    assert not [case for case in CASES if not reached[case]]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_many_runs_come_to_rare_cases_too() -> None:
    reached: Counter[str] = Counter()
    for seed in range(1, 301):
        outcome = simulate(seed, minutes=MINUTES)
        assert outcome.problem is None, f"seed {seed}: {outcome.sentence}"
        reached += outcome.reached
    assert not [case for case in (*CASES, *RARE_CASES) if not reached[case]]


def test_what_goes_wrong_is_drawn_for_each_sort_apart() -> None:
    for seed in range(20):
        everything = drawn(seed, FAULTS)
        for name in everything:
            assert drawn(seed, [name]) == (name,)
        assert drawn(seed, ()) == ()
    assert {name for seed in range(20) for name in drawn(seed, FAULTS)} == set(FAULTS)


@pytest.mark.parametrize("minutes", [0.05, 0.1])
def test_damage_leaves_one_copy_of_the_data(minutes: float) -> None:
    """One region has a damaged disk and one has not joined yet: the third keeps its disk.

    Otherwise no region has the data any more, and the run proves nothing.
    """
    run = prepared(610934, minutes=minutes)
    spared: list[int] = []
    wipe = run.lose_disk

    def lose_disk(machine: Machine) -> None:
        wipe(machine)
        spared.append(sum(each.is_up and not each.is_rotten for each in run.machines))

    run.lose_disk = lose_disk  # type: ignore[method-assign]
    assert run.run().problem is None
    assert spared
    assert min(spared) > 0


def test_a_reply_may_wait_for_a_slow_sync_when_regions_agree() -> None:
    run = prepared(1, minutes=0.05, faults=[])
    drained: list[Process] = []
    waited: list[bool] = []
    drain, drop_readings = run.checks.drain, run._drop_readings

    def drain_while_the_last_disk_is_slow(process: Process) -> None:
        drain(process)
        drained.append(process)
        if len(drained) == len(run.machines):
            process.region.settings.appendfsync = "everysec"
            process.driver.least_work_ms = 20_000.0
            words = [b"XADD", run.work.keys[0], b"*", b"f", b"v"]
            process.happen(lambda: run.checks.command(process, words))
            run.timeline.run_until(run.timeline.now_ms + 5000)  # replies wait from now on
            process.happen(lambda: run._read(process, run._readers[0]))

    def drop() -> bool:
        is_done = drop_readings()
        waited.append(not run.is_breaking and not is_done)
        return is_done

    run.checks.drain = drain_while_the_last_disk_is_slow  # type: ignore[method-assign]
    run._drop_readings = drop  # type: ignore[method-assign]
    assert run.run().problem is None
    assert any(waited)
    assert not run._readings


def test_a_failure_is_cut_down_to_the_faults_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    tombstones_at_once(monkeypatch)
    failed = [simulate(seed, minutes=MINUTES) for seed in range(1, 6)]
    failed = [outcome for outcome in failed if outcome.problem and outcome.faults]
    least = [smallest(outcome, regions=3, minutes=MINUTES) for outcome in failed[:2]]
    assert all(one.is_like(other) for one, other in zip(least, failed, strict=False))
    assert all(outcome.lines for outcome in least)
    assert any(
        len(one.faults) < len(other.faults) for one, other in zip(least, failed, strict=False)
    )


KNOWN = known_seeds()
"""Tried first: as long as the same seeds find the mistakes, this takes a run or two each."""

TRIED = [
    mistake
    for mistake in MISTAKES
    if mistake.within <= 100 or os.environ.get("ANABRANCH_ALL_MISTAKES")
]


@pytest.mark.parametrize("mistake", TRIED, ids=lambda mistake: mistake.name)
@pytest.mark.timeout(3600)
def test_a_mistake_in_the_product_is_found(mistake: Mistake) -> None:
    assert first_seed(mistake, begin_with=KNOWN[mistake.name]) is not None


def test_the_table_of_mistakes_is_complete() -> None:
    assert set(KNOWN) == {mistake.name for mistake in MISTAKES}
    assert all(KNOWN[mistake.name] <= mistake.within for mistake in MISTAKES)
