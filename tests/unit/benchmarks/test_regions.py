"""What the benchmark of regions makes of its samples: percentiles, judgements, pages."""

from __future__ import annotations

import json

import pytest

from benchmarks.regions.catalogue import catalogue
from benchmarks.regions.goals import GOALS
from benchmarks.shared.figures import Figure, of_rounds, percentile
from benchmarks.shared.goals import Goal, judge
from benchmarks.shared.report import Page, Part, Result, cells, number, to_json, to_markdown
from benchmarks.versus_redis.machine import Machine

MACHINE = Machine("a cpu", 2, 4.0, "Linux", "CPython 3", "3.0", 0.1)


def result_of(*parts: Part) -> Result:
    return Result("2026-01-01 00:00 UTC", "1.2.3", MACHINE, False, 12.3, list(parts))


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.501, 51), (0.99, 99), (1.0, 100)]
)
def test_a_percentile_is_a_value_that_this_share_does_not_exceed(share: float, expected: int):
    values = list(range(100, 0, -1))
    assert percentile(values, share) == expected
    assert percentile([7.5], share) == 7.5


def test_of_rounds_shows_the_median_with_the_extremes():
    figure = of_rounds("x", [3.0, 1.0, 2.0], "s")
    assert (figure.low, figure.value, figure.high) == (1.0, 2.0, 3.0)


def test_a_goal_is_a_highest_or_a_lowest_value_and_is_reached_by_itself():
    highest, lowest = Goal(2.0), Goal(2.0, is_lowest=True)
    assert [highest.holds(value) for value in (1.9, 2.0, 2.1)] == [True, True, False]
    assert [lowest.holds(value) for value in (1.9, 2.0, 2.1)] == [False, True, True]


def test_only_what_has_a_goal_and_was_measured_in_full_is_judged():
    name = next(iter(GOALS))
    limit = GOALS[name].limit
    good, bad, less, other = judge(
        [
            Figure(name, limit, "ms"),
            Figure(name, limit * 2, "ms"),
            Figure(name, limit * 2, "ms", is_less=True),
            Figure("without a goal", 1.0, "ms"),
        ],
        GOALS,
    )
    assert (good.passed, bad.passed, less.passed, other.passed) == (True, False, None, None)
    assert [cells(verdict)[3] for verdict in (good, bad, less, other)] == [
        "pass",
        "FAIL",
        "less than a full run",
        "",
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (0.00181, "0.00181"),
        (0.25, "0.25"),
        (1.0, "1"),
        (9.87, "9.87"),
        (38.12, "38.1"),
        (-359.4, "-359"),
        (1_729_673.2, "1,729,673"),
    ],
)
def test_numbers_are_shown_with_the_digits_that_say_something(value: float, shown: str):
    assert number(value) == shown


def test_a_page_has_a_row_for_every_figure_and_for_what_was_not_measured():
    name = "applied per second of one core, one by one"
    (verdict,) = judge([Figure(name, 120_000.0, "entries/s", 1.0, 2.0, note="a note")], GOALS)
    result = result_of(Part("backlog", 1.0, [verdict]), Part("wire", 2.0, [], "it broke"))
    page = to_markdown(result, Page("regions", "A title", "An account."))
    assert f"| {name} | 120,000 entries/s (1 to 2) | ≥ 100,000 | pass | a note |" in page
    assert "| wire | - | | not measured | it broke |" in page
    read = json.loads(to_json(result))
    assert read["parts"][0]["verdicts"][0]["figure"]["value"] == 120_000.0
    assert read["parts"][1]["problem"] == "it broke"


def test_every_measurement_has_a_name_of_its_own():
    names = [each.name for each in catalogue()]
    assert len(set(names)) == len(names) == 15
