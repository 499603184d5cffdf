"""When a difference between regions is one: not while entries or deletions may be under way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.spark.digests import Id
from anabranch.spark.jobs.audit import _Comparison, _horizon, _plan
from anabranch.spark.standings import (
    ITSELF,
    NOWHERE,
    Creations,
    Log,
    Standing,
    has_lasted,
    lacking_of,
)

BOTH = [[True, True], [True, True]]
PARTED = [[True, False], [False, True]]
A, B = b"a" * 16, b"b" * 16


def judged(
    first: list[dict[Id, bytes]],
    second: list[dict[Id, bytes]],
    heard: list[list[bool]] = BOTH,
    origin: str = "1",
    horizon: Id = NOWHERE,
) -> tuple[set[tuple[str, str, tuple[str, ...]]], int]:
    """Findings and how many are undecided, of two regions with numbers 1 and 2."""
    some = [SimpleNamespace(number=number) for number in (1, 2)]
    replicas: Any = SimpleNamespace(all=some, names=("eu", "us"))
    comparison = _Comparison(replicas, ["s"], [], 1.0, 10)
    comparison._judge((0, origin), first, second, horizon, heard)
    found = {(each.kind, each.what, each.regions) for each in comparison.findings}
    return found, comparison.undecided


def test_missing_is_what_stays_missing_when_all_is_heard() -> None:
    here = {(5, 1): A}
    assert judged([here, {}], [here, {}]) == ({("missing", "5-1", ("us",))}, 0)
    assert judged([here, {}], [here, {}], origin="2") == ({("extra", "5-1", ("eu",))}, 0)
    assert judged([here, {}], [{}, {}]) == (set(), 0), "a deletion was under way"
    assert judged([here, {}], [here, here]) == (set(), 0), "it came late"
    assert judged([here, here], [here, {}]) == (set(), 0), "it was deleted just now"
    assert judged([here, {}], [here, {}], PARTED) == (set(), 1)
    assert judged([here, {}], [here, {}], horizon=(5, 2)) == (set(), 0)


def test_only_who_has_it_must_have_heard() -> None:
    here = {(5, 1): A}
    knows = [[True, True], [False, True]]  # eu has heard of us, and not the other way round
    assert judged([here, {}], [here, {}], knows)[0] == {("missing", "5-1", ("us",))}
    assert judged([{}, here], [{}, here], knows) == (set(), 1)


def test_content_is_compared_with_that_of_who_wrote_it() -> None:
    one, two = {(5, 1): A}, {(5, 1): B}
    assert judged([one, two], [one, two])[0] == {("content", "5-1", ("us",))}
    assert judged([one, two], [one, two], origin="2")[0] == {("content", "5-1", ("eu",))}
    assert judged([one, two], [one, two], PARTED) == (set(), 1)


@pytest.mark.parametrize(
    ("before", "heard", "later", "expected"),
    [
        ((True, False), BOTH, BOTH, [1]),
        ((False, False), BOTH, BOTH, None),  # it was made after we began
        ((True, False), PARTED, BOTH, None),  # its making is under way
        ((True, False), BOTH, PARTED, None),  # its end may be
        ((True, True), BOTH, BOTH, [1]),
    ],
)
def test_who_lacks_a_group_for_good(
    before: tuple[bool, bool],
    heard: list[list[bool]],
    later: list[list[bool]],
    expected: list[int] | None,
) -> None:
    assert lacking_of([before, (True, False), (True, False)], heard, later) == expected
    assert lacking_of([before, (True, False), (True, True)], heard, later) == []
    assert lacking_of([before, (True, True), (True, False)], heard, later) == []


def log(first: int, stop: int, trimmed: int = 0) -> Log:
    first_id = (10 * first, 0) if first < stop else None
    return Log(first, stop, trimmed, (10 * (stop - 1), 0), first_id)


def test_where_all_trimmed_alike_everything_counts() -> None:
    assert _horizon([log(5, 9, 5), log(6, 9, 5)]) == NOWHERE
    assert _horizon([log(0, 9), log(5, 9, 5)]) == (50, 0)
    assert _horizon([log(0, 9), log(9, 9, 9)]) == (81, 0), "nothing at all is left"


@pytest.mark.parametrize(
    ("heard", "high"),
    [
        (BOTH, 80),  # who has less has caught up
        (PARTED, 40),
        ([[True, False], [True, True]], 80),  # us has heard of all that eu had
        ([[True, True], [False, True]], 40),
    ],
)
def test_the_cut_is_what_everybody_has_heard_of(heard: list[list[bool]], high: int) -> None:
    before: list[list[Standing | None]] = [
        [Standing({"1": log(0, 9)}), None],
        [Standing({"1": log(0, 5)}), None],
    ]
    now: list[list[Standing | None]] = [
        [Standing({"1": log(0, 12)}), None],
        [Standing({"1": log(0, 9)}), Standing({"2": log(0, 3)})],
    ]
    pieces = _plan(["s", "new"], before, now, heard, None)
    assert [(each.replica, each.key, each.origin, each.first, each.stop) for each in pieces] == [
        (0, "s", "1", 0, 12),
        (1, "s", "1", 0, 9),
        (1, "new", "2", 0, 3),
    ]
    assert [each.high for each in pieces] == [(high, 0), (high, 0), NOWHERE]
    assert len({each.width for each in pieces if each.key == "s"}) == 1


OLD, ANEW = frozenset({(1, 0, 4)}), frozenset({(2, 0, 7)})


@pytest.mark.parametrize(
    ("was", "now", "lasted"),
    [
        (Standing(), Standing(), True),  # without any entry
        (Standing({"1": log(0, 9)}), Standing({"1": log(8, 12), "2": log(0, 3)}), True),
        (Standing({"1": log(0, 9)}), Standing({"1": log(9, 12)}), False),
        (Standing({"1": log(9, 9)}), Standing({"1": log(9, 12)}), False),
        (Standing({"1": log(0, 9)}), Standing({"2": log(0, 12)}), False),
        (Standing({}, {"g": OLD}), Standing({"1": log(9, 12)}, {"g": OLD | ANEW}), True),
        (Standing({}, {"g": OLD}), Standing({}, {"g": ANEW}), False),
        (None, Standing(), False),
        (Standing(), None, False),
    ],
)
def test_a_stream_that_was_made_anew_is_not_the_one_that_was_there(
    was: Standing | None, now: Standing | None, lasted: bool
) -> None:
    assert has_lasted(ITSELF, was, now) is lasted


@pytest.mark.parametrize(
    ("was", "now", "lasted"),
    [
        (OLD, OLD, True),
        (frozenset(), frozenset(), True),  # without regions nothing tells them apart
        (OLD, OLD | ANEW, True),
        (OLD, ANEW, False),
        (None, OLD, False),
        (OLD, None, False),
    ],
)
def test_so_is_a_group(was: Creations | None, now: Creations | None, lasted: bool) -> None:
    one, other = (Standing({}, {} if made is None else {"g": made}) for made in (was, now))
    assert has_lasted((1, "g"), one, other) is lasted
