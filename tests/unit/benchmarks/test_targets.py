"""Each goal is one of a row that a complete run measures, and says what was measured."""

from __future__ import annotations

from itertools import product

from benchmarks.versus_redis import memory, old_entries, targets
from benchmarks.versus_redis.measure import NEW, Figures, Outcome, Row, Spread, age_of
from benchmarks.versus_redis.report import circumstances, target_cells
from benchmarks.versus_redis.workloads import catalogue, durable_catalogue


def test_every_target_names_a_row() -> None:
    rows = [*catalogue(), *durable_catalogue("everysec"), *durable_catalogue("always")]
    rows += [one for form in old_entries.FORMS for one in old_entries.old_entries_catalogue(form)]
    names = {one.name for one in rows} | {targets.RESTART}
    for form, shape in product(old_entries.FORMS, memory.shapes()):
        weighed = targets.weighed_name(form, shape.name)
        names |= {targets.HIGHEST.format(weighed), targets.RESIDENT.format(weighed)}
    asked = [target.workload for target in targets.TARGETS]
    assert [name for name in asked if name not in names] == []
    assert len(set(asked)) == len(asked)


def test_a_goal_shows_both_forms_and_their_circumstances() -> None:
    name = "appendfsync everysec: XADD, 1 field, depth 1"
    compiled = targets.Measured([row(name, 1.2, NEW)])
    verdicts = targets.judge(compiled, targets.Measured([row(name, 2.7, NEW)]))
    (found,) = (one for one in verdicts if one.measured is not None)
    assert (found.passed, found.measured, found.interpreted) == (True, 1.2, 2.7)
    assert target_cells(found) == [name, "everysec", NEW, "1.25", "1.20", "pass", "2.70"]
    assert all(one.interpreted is None for one in verdicts if one is not found)


def test_rows_of_old_nodes_are_marked() -> None:
    name = old_entries.name_of("XRANGE COUNT 10", "compressed", "150-byte JSON")
    (workload,) = (
        one for one in old_entries.old_entries_catalogue("compressed") if one.name == name
    )
    age = age_of(workload, workload.build(0.01))
    assert circumstances(name, age) == ["no", "old, compressed †"]
    assert circumstances(targets.RESTART, "") == ["everysec", "-"]


def row(name: str, ratio: float, age: str) -> Row:
    """A row of which only the ratio counts."""
    flat = Spread(ratio, ratio, ratio)
    figures = Figures(flat, flat)
    outcome = Outcome(figures, figures, flat, flat, None)
    return Row(name, "XADD", 1, "command", 1, 1, age, "", "", outcome)
