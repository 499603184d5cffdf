"""Places of items, and what is put and taken where."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import pytest

from anabranch.stream.elements import (
    LIST,
    PLACE_BYTES_MAX,
    SET,
    Elements,
    is_place,
    places_between,
)
from anabranch.stream.shared import Dot

ALL: Final = {1: 1 << 60, 2: 1 << 60}


def seen(upto: dict[int, int]) -> Callable[[Dot], bool]:
    return lambda dot: dot[1] <= upto.get(dot[0], 0)


def test_places_are_between_their_neighbours_whoever_chooses() -> None:
    chance = random.Random(1)
    places: list[bytes] = []
    for number in range(1, 1500):
        at = chance.choice([0, len(places), chance.randint(0, len(places))])
        low = places[at - 1] if at else b""
        high = places[at] if at < len(places) else b"\xff"
        count = chance.choice([1, 1, 3])
        new = places_between(low, high, chance.choice([1, 2, (7 << 32) | 2]), number, count)
        assert all(map(is_place, new))
        places[at:at] = new
        assert places[max(at - 1, 0) : at + count + 1] == sorted(
            set(places[max(at - 1, 0) : at + count + 1])
        )
    assert places == sorted(set(places))


def test_a_queue_has_short_places() -> None:
    """Whatever regions push and pop by turns, no place has more than one level."""
    chance = random.Random(2)
    places: list[bytes] = []
    for number in range(1, 3000):
        if places and chance.random() < 0.45:
            places.pop(0)
        else:
            low = places[-1] if places else b""
            places += places_between(low, b"\xff", chance.choice([1, 2, 3]), number, 1)
        assert {len(each) for each in places} <= {25}


@pytest.mark.parametrize("after", [True, False])
def test_insertions_beside_one_item_have_short_places(after: bool) -> None:
    low, high = places_between(b"", b"\xff", 1, 1, 2)
    for number in range(2, 500):
        (new,) = places_between(low, high, 1, number, 1)
        assert len(new) <= 50
        low, high = (low, new) if after else (new, high)


def test_what_one_region_pushes_stays_together() -> None:
    begin = places_between(b"", b"\xff", 1, 1, 1)
    pushed = {}
    for own in (1, 2):
        places = list(begin)
        for number in range(2, 8):
            places += places_between(places[-1], b"\xff", own, number, 1)
            places[:0] = places_between(b"", places[0], own, number + 10, 1)
        pushed |= dict.fromkeys(places, own)
    pushed[begin[0]] = 0
    # Of region 1 the first item is the own one, so what it pushes has the same rank.
    found = [pushed[place] for place in sorted(pushed)]
    assert found == [*[2] * 6, *[1] * 6, 0, *[1] * 6, *[2] * 6]


@pytest.mark.parametrize(
    "place", [b"", b"x", bytes(24), bytes(25), bytes(26), b"\xff" * 25, b"\x80" * (64 * 25 + 25)]
)
def test_these_are_no_places(place: bytes) -> None:
    assert not is_place(place)


def test_a_long_place_is_one() -> None:
    (place,) = places_between(b"", b"\xff", 1, 1, 1)
    assert is_place(place * 64)
    assert len(place * 64) == PLACE_BYTES_MAX


def test_a_removal_takes_what_it_has_seen() -> None:
    members = Elements(SET)
    members.put((1, 1), [b"a", b"b"], [], seen({}))
    members.put((2, 1), [b"a"], [], seen({}))
    assert members.left_without([b"a", b"b", b"c"], seen({1: 1})) == 1
    assert members.take([b"a", b"b", b"c"], seen({1: 1})) == 1
    assert set(members.puts) == {b"a"}
    members.check()
    assert members.take([b"a"], seen({2: 1})) == 1
    assert members.digest == 0


def test_an_addition_replaces_those_that_it_has_seen() -> None:
    members = Elements(SET)
    members.put((1, 1), [b"a"], [], seen({}))
    assert members.put((2, 1), [b"a"], [], seen({1: 1})) == 0
    assert members.take([b"a"], seen({1: 1})) == 0
    members.check()


def test_taking_a_range_takes_its_ends() -> None:
    items = Elements(LIST)
    places = items.places_at(0, 6, 1, 1)
    items.put((1, 1), places, [b"a", b"b", b"c", b"d", b"e", b"f"], seen({}))
    assert items.spans(range(1, 4)) == items.spans([1, 2, 3]) == [places[1], places[3]]
    assert not items.spans(range(0))
    assert items.spans([1, 2, 4]) == [places[1], places[2], places[4], places[4]]
    assert items.left_without(items.spans([1, 2, 4]), seen(ALL)) == 3
    assert items.take(items.spans([1, 2, 4]), seen(ALL)) == 3
    assert list(items.items()) == [b"a", b"d", b"f"]
    assert list(items.items(reverse=True)) == [b"f", b"d", b"a"]
    assert items.at(-1) == b"f"
    items.check()


def test_of_items_set_at_once_that_of_the_greatest_region_counts() -> None:
    items = Elements(LIST)
    (place,) = items.places_at(0, 1, 1, 1)
    items.put((1, 1), [place], [b"a"], seen({}))
    items.put((1 << 8 | 2, 1), [place], [b"y"], seen({1: 1}))
    items.put((2 << 8 | 1, 1), [place], [b"x"], seen({1: 1}))
    assert list(items.items()) == [b"y"]
    assert items.take([place, place], seen({1 << 8 | 2: 1})) == 0
    assert list(items.items()) == [b"x"]
    items.check()


def test_joined_states_are_what_both_would_be_after_all_effects() -> None:
    chance = random.Random(3)
    for kind in (SET, LIST):
        for _ in range(60):
            sides = [Elements(kind), Elements(kind)]
            vectors = [{1: 0}, {2: 0}]
            whole = Elements(kind)
            steps = []
            for number in range(1, 6):
                for side, own in ((0, 1), (1, 2)):
                    elements = sides[side]
                    dot = (own, number)
                    if elements.puts and chance.random() < 0.4:
                        place = chance.choice(sorted(elements.puts))
                        places = [place] if kind == SET else [place, place]
                        steps.append((dot, "take", places, []))
                        elements.take(places, seen({own: number - 1}))
                    else:
                        places = (
                            [chance.choice([b"a", b"b", b"c"])]
                            if kind == SET
                            else elements.places_at(len(elements), 1, own, number)
                        )
                        items = [] if kind == SET else [b"i%d" % number]
                        steps.append((dot, "put", places, items))
                        elements.put(dot, places, items, seen({own: number - 1}))
                    vectors[side][own] = number
            for (own, number), what, places, items in steps:
                knows = seen({own: number - 1})
                if what == "put":
                    whole.put((own, number), places, items, knows)
                else:
                    whole.take(places, knows)
            copy = Elements.restored(kind, dict(sides[1].puts))
            sides[0].join(copy, *vectors)
            sides[0].check()
            assert sides[0].digest == whole.digest
            assert sides[0].puts.keys() == whole.puts.keys()


def test_clearing_everything_forgets_all_and_else_keeps_the_unseen() -> None:
    items = Elements(LIST)
    items.put((1, 1), items.places_at(0, 3, 1, 1), [b"a", b"b", b"c"], seen({}))
    items.put((2, 5), items.places_at(3, 1, 2, 5), [b"d"], seen({}))
    items.clear(seen({1: 1}))
    assert list(items.items()) == [b"d"]
    items.check()
    items.clear(seen({1: 1, 2: 5}))
    assert not items.puts
    assert items.digest == 0
    assert not items.order
