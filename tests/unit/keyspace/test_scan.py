"""SCAN's order: every key exactly once, whatever happens around it."""

from __future__ import annotations

import random
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.keyspace.scan import CURSOR_END, KeyOrder

KEYS = st.binary(max_size=8)


def iterate(order: KeyOrder, count: int) -> list[bytes]:
    cursor, found = order.page(CURSOR_END, count)
    while cursor != CURSOR_END:
        cursor, keys = order.page(cursor, count)
        found += keys
    return found


class Keys:
    """Keys that exist, and their order."""

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self.keys: set[bytes] = set()
        self.order = KeyOrder(self.keys)
        for key in keys:
            self.add(key)

    def add(self, key: bytes) -> None:
        self.keys.add(key)
        self.order.add(key)

    def remove(self, key: bytes) -> None:
        self.keys.remove(key)
        self.order.remove(key)

    def change(self, keys: set[bytes]) -> None:
        """Create those that are missing and remove the others, all at once."""
        self.keys ^= keys
        self.order.changed(list(keys))


@given(st.sets(KEYS), st.integers(1, 20))
def test_an_iteration_returns_every_key_once(keys: set[bytes], count: int) -> None:
    order = Keys(keys).order
    found = iterate(order, count)
    assert len(found) == len(keys)
    assert set(found) == keys
    order.check()


@settings(max_examples=50)
@given(st.sets(KEYS, min_size=5), st.data())
def test_keys_that_stay_are_returned_whatever_comes_and_goes(
    stable: set[bytes], data: st.DataObject
) -> None:
    keys = Keys(stable)
    found: list[bytes] = []
    cursor = CURSOR_END
    while True:
        cursor, page = keys.order.page(cursor, 1)
        found += page
        if cursor == CURSOR_END:
            break
        for key in data.draw(st.sets(KEYS, max_size=3)) - stable:
            if key in keys.keys:
                keys.remove(key)
            else:
                keys.add(key)
    assert stable <= set(found)
    assert all(found.count(key) == 1 for key in stable)
    keys.order.check()


MANY = [b"key:%d" % number for number in range(5000)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("+-^s"), st.integers(0, 3000), st.integers(1, 2000))))
def test_many_changes_at_once_are_settled_in_steps(
    steps: list[tuple[str, int, int]],
) -> None:
    """Also if the keys change again before."""
    keys = Keys()
    for sign, low, count in steps:
        some = set(MANY[low : low + count])
        if sign == "+":
            for key in list(some - keys.keys)[:5]:
                keys.add(key)
        elif sign == "-":
            for key in list(some & keys.keys)[:5]:
                keys.remove(key)
        elif sign == "^":
            keys.change(some)
        else:
            keys.order.settle()
    while keys.order.settle():
        assert not keys.order.is_settled
    found = iterate(keys.order, 100)
    assert len(found) == len(keys.keys)
    assert set(found) == keys.keys
    keys.order.check()


def test_a_page_has_about_as_many_keys_as_asked_for() -> None:
    cursor, page = Keys(MANY).order.page(CURSOR_END, 100)
    assert cursor != CURSOR_END
    assert 100 <= len(page) < 110


def test_cursors_mean_the_same_after_a_restart() -> None:
    names = MANY[:500]
    first, second = Keys(names).order, Keys(reversed(names)).order
    cursor, found = first.page(CURSOR_END, 200)
    while cursor != CURSOR_END:
        cursor, keys = second.page(cursor, 200)
        found += keys
    assert sorted(found) == sorted(names)


def test_a_cursor_beyond_everything_ends_the_iteration() -> None:
    assert Keys([b"k"]).order.page((1 << 64) - 1, 10) == (CURSOR_END, [])


def test_random_keys() -> None:
    below = random.Random(7).randrange
    assert Keys().order.any_key(below) is None
    names = set(MANY[:20])
    keys = Keys(names)
    assert {keys.order.any_key(below) for _ in range(1000)} == names
    keys.change(set(MANY[20:]))  # more than a few buckets
    while keys.order.settle():
        pass
    drawn = {keys.order.any_key(below) for _ in range(10_000)}
    assert len(drawn) > 2500
    assert drawn <= set(MANY)
