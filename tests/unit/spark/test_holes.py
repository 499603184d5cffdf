"""Sets of positions, and what was removed between two of them."""

from __future__ import annotations

import random

import pytest

from anabranch.spark.options import OptionError
from anabranch.spark.reading import holes
from anabranch.spark.reading.holes import Holes, Spans, joined, removals, within, without
from anabranch.spark.reading.offsets import LogCursor, Vector


def numbers(spans: Spans | list[tuple[int, int]]) -> set[int]:
    return {position for first, stop in spans for position in range(first, stop)}


def some(rng: random.Random) -> list[tuple[int, int]]:
    firsts = [rng.randrange(60) for _ in range(rng.randrange(8))]
    return [(first, first + rng.randrange(9)) for first in firsts]


@pytest.mark.parametrize("seed", range(50))
def test_spans_are_sets(seed: int) -> None:
    rng = random.Random(seed)
    one, two = some(rng), some(rng)
    spans, others = joined(one), joined(two)
    assert numbers(spans) == numbers(one)
    assert all(spans[at][1] < spans[at + 1][0] for at in range(len(spans) - 1))
    assert numbers(list(without(spans, others))) == numbers(one) - numbers(two)
    low, high = sorted((rng.randrange(70), rng.randrange(70)))
    assert numbers(within(spans, low, high)) == numbers(one) & {*range(low, high)}
    seen = Holes(3, 7, spans)
    assert Holes.of(*seen.to_list()) == seen


@pytest.mark.parametrize(
    ("deleted", "trimmed", "kinds"),
    [
        (0, 0, [("delete", 4, 12)]),
        (0, 9, [("trim", 4, 9), ("delete", 9, 12)]),
        (6, 9, [("delete", 4, 6), ("trim", 6, 9), ("delete", 9, 12)]),
        (20, 20, [("delete", 4, 12)]),
        (6, 2, [("delete", 4, 6), ("delete", 6, 12)]),
    ],
)
def test_what_removed_an_entry_is_told_by_its_place(
    deleted: int, trimmed: int, kinds: list[tuple[str, int, int]]
) -> None:
    known = Holes(0, 0, ((0, 4),))
    found = removals("s", "1", known, Holes(deleted, trimmed, ((0, 15),)), 12)
    assert [(each.kind, each.first, each.stop) for each in found] == kinds


def test_an_offset_without_holes_knows_what_was_trimmed_before() -> None:
    seen = Holes(5, 9, ((0, 12), (20, 21)))
    start = Vector({"s": {"1": LogCursor(5, 30)}})
    end = Vector({"s": {"1": LogCursor(5, 40)}}, holes={"s": {"1": seen}})
    found = [(each.kind, each.first, each.stop) for each in end.removals(start)]
    assert found == [("delete", 9, 12), ("delete", 20, 21)]
    again = Vector({"s": {"1": LogCursor(5, 30)}}, holes={"s": {"1": seen}})
    assert end.removals(again) == []
    assert Vector.parse(end.to_json()) == end


def test_too_many_holes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holes, "SPANS_MAX", 1)
    Holes(0, 0, ((0, 4),)).check("stream s")
    with pytest.raises(OptionError, match=r"stream s has more than 1 holes .* trim the stream"):
        Holes(0, 0, ((0, 4), (5, 6))).check("stream s")
