"""What the guide shows is what regions do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.mesh import NamedMesh
from tests.support.transcript import Scenario, read_scenarios, run_scenario

GUIDE: Final = Path(__file__).parents[2] / "docs" / "active-active.md"
TRANSCRIPTS: Final = re.findall(r"```transcript\n(.*?)```", GUIDE.read_text(), re.DOTALL)
SCENARIOS: Final = read_scenarios("\n\n".join(TRANSCRIPTS))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each.name for each in SCENARIOS])
def test_a_transcript_of_the_guide(scenario: Scenario) -> None:
    run_scenario(scenario, NamedMesh(scenario.regions, scenario.mode))


def test_all_transcripts_were_read() -> None:
    assert len(SCENARIOS) == len(TRANSCRIPTS) > 0
