"""What ``anabranch cluster status`` prints."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.cli.cluster_view import lines_of


def view(missing: dict[str, dict[str, int]]) -> dict[str, Any]:
    regions = [
        {"name": name, "number": number, "port": 1, "pid": 1, "state": "", "waits_for": ""}
        for number, name in enumerate(("eu", "us", "ap"), 1)
    ]
    return {"regions": regions, "links": [], "missing": missing}


@pytest.mark.parametrize(
    ("missing", "shown"),
    [
        (
            {"eu": {"us": 0, "ap": 0}, "us": {"eu": 0, "ap": 0}, "ap": {"eu": 0, "us": 0}},
            ["no effects are missing anywhere"],
        ),
        (
            {"eu": {"us": 0, "ap": 0}, "ap": {"eu": 0, "us": 0}},
            ["no effects are missing at eu, ap; us: not known"],
        ),
        (
            {"eu": {"us": 0, "ap": 4}, "ap": {"eu": 5, "us": 0}},
            [
                "effects missing  of eu  of us  of ap",
                "at eu            -      0      4",
                "at us            ?      -      ?",
                "at ap            5      0      -",
            ],
        ),
    ],
    ids=["all answer", "one is down", "one is down, and others differ"],
)
def test_of_a_region_that_does_not_answer_nothing_is_claimed(
    missing: dict[str, dict[str, int]], shown: list[str]
) -> None:
    lines = lines_of(view(missing))
    assert lines[lines.index("") + 1 :] == shown
