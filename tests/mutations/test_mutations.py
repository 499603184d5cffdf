"""The tool that mutates: it changes what it says, where it says, and a test notices."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutations.places import marked, mutated, places, sampled
from tests.mutations.running import (
    EXPLORED,
    FAST,
    REPOSITORY,
    SEARCH,
    SIMULATE,
    WORLD_NAMED,
    all_places,
    named,
)
from tests.mutations.survivors import reasons
from tests.mutations.verdicts import VerdictFile

SOURCE = '''
def f(a: int | None, b=1):
    """Text."""
    if a and not b:
        g(a + 1)
    elif a:
        b -= 2
    while b < 3:
        b = a if a == b else True
        self.x = b
        continue
    assert a == 1
    raise ValueError(a + 1)

class C:
    def check(self):
        return 1
'''


def test_each_place_is_changed_alone() -> None:
    found = places("m", SOURCE)
    assert [(place.before, place.after) for place in found] == [
        ("a and (not b)", "a or not b"),
        ("not b", "bool(b)"),
        ("g(a + 1)", "pass"),
        ("a + 1", "a - 1"),
        ("1", "2"),
        ("if a", "if not a"),
        ("b -= 2", "b += 2"),
        ("2", "3"),
        ("b < 3", "b <= 3"),
        ("3", "4"),
        ("a == b", "a != b"),
        ("True", "False"),
        ("self.x = b", "pass"),
        ("continue", "break"),
    ]
    before = ast.unparse(ast.parse(SOURCE)).splitlines()
    for place in found:
        after = ast.unparse(mutated(SOURCE, place.number)).splitlines()
        changed = [line for line in range(len(before)) if before[line] != after[line]]
        assert len(changed) == 1, place
        assert place.after.split("(")[0] in after[changed[0]], place
        assert place.function == "f"


def test_a_mark_is_called_where_the_place_is() -> None:
    number = next(place.number for place in places("m", SOURCE) if place.before == "b -= 2")
    reached: list[str] = []
    names: dict[str, object] = {"mark": reached.append, "g": lambda _: None}
    exec(compile(marked(SOURCE, {number: "here"}, "mark"), "m", "exec"), names)
    f = names["f"]
    assert callable(f)
    with pytest.raises(AssertionError):
        f(5, 6)
    assert reached == ["here"]
    with pytest.raises(AssertionError):
        f(0, 7)
    assert reached == ["here"]


def test_a_changed_function_moves_no_place_of_another_one() -> None:
    before = sampled(places("m", SOURCE), 1)
    after = sampled(places("m", SOURCE + "\ndef g():\n    return 5\n"), 1)
    assert [each for each in after if each.function == "f"] == before
    assert len(after) == len(before) + 1
    assert sampled(places("m", SOURCE), 2) != before


def test_a_run_that_was_ended_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "verdicts"
    a, b, c = places("m", SOURCE)[:3]
    for place, verdict in [(a, "survived"), (b, "killed by tests"), (a, "equivalent")]:
        VerdictFile(path).add(place, verdict)
    kept = VerdictFile(path)
    assert [kept.of(each) for each in (a, b, c)] == ["equivalent", "killed by tests", None]


def test_a_verdict_holds_until_its_function_changes(tmp_path: Path) -> None:
    kept = VerdictFile(tmp_path / "verdicts")
    for place in places("m", SOURCE):
        kept.add(place, "killed by tests")
    moved = places("m", f"def g():\n    return 5\n{SOURCE}  # the end")
    assert [kept.of(each) for each in moved] == [None, *["killed by tests"] * (len(moved) - 1)]
    changed = places("m", SOURCE.replace("b < 3", "b < 4"))
    assert not any(kept.of(each) for each in changed)


def test_all_that_judges_is_there() -> None:
    assert [named(WORLD_NAMED)(name).name for name in EXPLORED] == list(EXPLORED)
    assert callable(named(SIMULATE))
    assert callable(named(SEARCH))
    assert not [each for part in FAST for each in part if not [*REPOSITORY.glob(each)]]


def test_what_is_listed_as_equivalent_is_still_there() -> None:
    names = {place.name for place in all_places()}
    assert not [name for name in reasons() if name not in names]
