"""Each goal is one of a row that a complete run measures."""

from __future__ import annotations

from itertools import product

from benchmarks.versus_redis import memory, old_entries, targets
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
