"""Intervals of numbers against plain sets of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.stream.ranges import Ranges, gaps

TOP = 40
PAIRS = st.lists(st.tuples(st.integers(0, TOP), st.integers(0, TOP)), max_size=12)


def numbers(pairs: list[tuple[int, int]]) -> set[int]:
    return {number for low, high in pairs for number in range(low + 1, high + 1)}


def held(ranges: Ranges) -> set[int]:
    ranges.check()
    return numbers(list(ranges))


@given(PAIRS)
def test_it_holds_what_was_added(pairs: list[tuple[int, int]]) -> None:
    ranges = Ranges(pairs)
    assert held(ranges) == numbers(pairs)
    assert [number in ranges for number in range(TOP + 2)] == [
        number in numbers(pairs) for number in range(TOP + 2)
    ]
    assert bool(ranges) == bool(numbers(pairs))


@given(st.lists(st.integers(1, TOP), max_size=20))
def test_single_numbers(singles: list[int]) -> None:
    ranges = Ranges()
    ranges.add_numbers(singles)
    assert held(ranges) == set(singles)


@given(st.lists(PAIRS, max_size=3), st.integers(0, TOP), st.integers(0, TOP))
def test_gaps_are_what_is_in_none_of_them(
    sets: list[list[tuple[int, int]]], low: int, high: int
) -> None:
    found = list(gaps([Ranges(pairs) for pairs in sets], low, high))
    assert numbers(found) == numbers([(low, high)]).difference(*map(numbers, sets))
    assert found == list(Ranges(found)), "ascending, and none touches the next"


@given(PAIRS, st.integers(0, TOP + 1))
def test_the_end_of_what_is_below(pairs: list[tuple[int, int]], number: int) -> None:
    ranges = Ranges(pairs)
    ends = [high for _, high in ranges if high < number]
    assert ranges.end_below(number) == max(ends, default=0)


@given(PAIRS, PAIRS)
def test_union_and_difference(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    ranges = Ranges(some)
    assert held(ranges.without(Ranges(others))) == numbers(some) - numbers(others)
    ranges.update(Ranges(others))
    assert held(ranges) == numbers(some) | numbers(others)


@given(PAIRS)
def test_written_down_and_read_again(pairs: list[tuple[int, int]]) -> None:
    ranges = Ranges(pairs)
    twin = Ranges.of_flat(ranges.flat())
    assert twin == ranges
    twin.add(100, 200)
    assert twin != ranges
    assert ranges.copy() == ranges
