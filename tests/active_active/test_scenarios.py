"""The acceptance scenarios, with regions in one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.mesh import NamedMesh
from tests.support.transcript import Scenario, read_scenarios, run_scenario

SCENARIOS = read_scenarios(Path(__file__).with_name("scenarios.txt").read_text("utf-8"))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each.name for each in SCENARIOS])
def test_regions_do_what_the_transcript_shows(scenario: Scenario) -> None:
    run_scenario(scenario, NamedMesh(scenario.regions, scenario.mode))


def test_all_scenarios_are_there() -> None:
    names = [each.name for each in SCENARIOS]
    assert names == sorted(set(names))
    assert {name.rstrip("abc") for name in names} == {f"AA-{number:02}" for number in range(1, 59)}


def test_another_outcome_than_shown_is_noticed() -> None:
    scenario = SCENARIOS[0]
    last = replace(scenario.steps[-1], expected=("ids", "100-2", "100-1"))
    other = replace(scenario, steps=(*scenario.steps[:-1], last))
    with pytest.raises(AssertionError, match="AA-01 step 5, eu"):
        run_scenario(other, NamedMesh(other.regions, other.mode))
