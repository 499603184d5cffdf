"""SCAN's order: every key exactly once, whatever happens around it."""

from __future__ import annotations

import random

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


@given(st.sets(KEYS), st.integers(1, 20))
def test_an_iteration_returns_every_key_once(keys: set[bytes], count: int) -> None:
    order = KeyOrder()
    for key in keys:
        order.add(key)
    found = iterate(order, count)
    assert len(found) == len(keys)
    assert set(found) == keys
    order.check(keys)


@settings(max_examples=50)
@given(st.sets(KEYS, min_size=5), st.data())
def test_keys_that_stay_are_returned_whatever_comes_and_goes(
    stable: set[bytes], data: st.DataObject
) -> None:
    order = KeyOrder()
    for key in stable:
        order.add(key)
    passing: set[bytes] = set()
    found: list[bytes] = []
    cursor = CURSOR_END
    while True:
        cursor, keys = order.page(cursor, 1)
        found += keys
        if cursor == CURSOR_END:
            break
        for key in data.draw(st.sets(KEYS, max_size=3)) - stable:
            if key in passing:
                order.remove(key)
                passing.remove(key)
            else:
                order.add(key)
                passing.add(key)
    assert stable <= set(found)
    assert all(found.count(key) == 1 for key in stable)
    order.check(stable | passing)


def test_a_page_has_about_as_many_keys_as_asked_for() -> None:
    order = KeyOrder()
    for number in range(5000):
        order.add(b"key:%d" % number)
    cursor, keys = order.page(CURSOR_END, 100)
    assert cursor != CURSOR_END
    assert 100 <= len(keys) < 110


def test_cursors_mean_the_same_after_a_restart() -> None:
    first, second = KeyOrder(), KeyOrder()
    names = [b"key:%d" % number for number in range(500)]
    for name in names:
        first.add(name)
    for name in reversed(names):
        second.add(name)
    cursor, found = first.page(CURSOR_END, 200)
    while cursor != CURSOR_END:
        cursor, keys = second.page(cursor, 200)
        found += keys
    assert sorted(found) == sorted(names)


def test_a_cursor_beyond_everything_ends_the_iteration() -> None:
    order = KeyOrder()
    order.add(b"k")
    assert order.page((1 << 64) - 1, 10) == (CURSOR_END, [])


def test_random_keys() -> None:
    order = KeyOrder()
    below = random.Random(7).randrange
    assert order.any_key(below) is None
    names = {b"key:%d" % number for number in range(20)}
    for name in names:
        order.add(name)
    assert {order.any_key(below) for _ in range(1000)} == names
    more = {b"more:%d" % number for number in range(3000)}  # more than a few buckets
    for name in more:
        order.add(name)
    drawn = {order.any_key(below) for _ in range(10_000)}
    assert len(drawn) > 2500
    assert drawn <= names | more
