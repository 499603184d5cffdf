"""Scheduled entries as data: states merge in any order, and invariants hold."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from anabranch.keyspace.expiry import Deadlines
from anabranch.keyspace.timetables import GONE_MS, Addition, ScheduledEntry, Timetables, written

Change = Callable[[Timetables], None]


def live(table: Timetables) -> list[tuple[bytes, bytes, tuple[int, int], int]]:
    return sorted(
        (*place, entry.identity, entry.at_ms)
        for place, entry in table.entries.items()
        if entry.at_ms != GONE_MS
    )


def scheduling(handle: bytes, identity: tuple[int, int], at_ms: int) -> Change:
    return lambda table: table.set(b"s", handle, ScheduledEntry(identity, at_ms, b"*0\r\n"))


def advancing(handle: bytes, identity: tuple[int, int], next_ms: int) -> Change:
    return lambda table: table.advance(b"s", handle, identity, next_ms, ended=(identity[1], 1))


def random_changes(rng: random.Random) -> list[list[Change]]:
    """For each entry its causal order: it is scheduled before anything else happens to it."""
    found = []
    for _ in range(rng.randint(1, 8)):
        handle, identity = rng.choice([b"a", b"b", b"c"]), (rng.randint(1, 5), rng.randint(1, 3))
        changes = [scheduling(handle, identity, 100)]
        for _ in range(rng.randint(0, 4)):
            next_ms = rng.choice([200, 300, 400, GONE_MS])
            changes.insert(rng.randint(1, len(changes)), advancing(handle, identity, next_ms))
        found.append(changes)
    return found


@pytest.mark.parametrize("seed", range(100))
def test_the_order_of_concurrent_changes_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    changes = random_changes(rng)
    states = []
    for _ in range(3):
        table, left = Timetables(), [list(each) for each in changes]
        while left := [each for each in left if each]:
            chosen = rng.choice(left)
            head, *rest = chosen
            head(table)
            if rng.random() < 0.2:
                head(table)  # once more
            rng.shuffle(rest)
            chosen[:] = rest
            table.check()
        states.append(live(table))
    assert states[0] == states[1] == states[2]


def test_what_is_put_off_takes_memory() -> None:
    table = Timetables()
    for handle in (b"a", b"b"):
        table.set(b"s", handle, ScheduledEntry((1, 1), 100, b"*0\r\n"))
    before = table.used_bytes
    table.look(b"s", b"a", 150)
    table.look(b"s", b"a", 160)
    one = table.used_bytes
    table.look(b"s", b"b", 150)
    assert before < one < table.used_bytes
    table.check()
    table.look(b"s", b"a", 100)
    table.advance(b"s", b"b", (1, 1), 200, ended=None)
    assert table.used_bytes == before
    table.check()


@pytest.mark.parametrize("seed", range(30))
def test_a_joined_table_is_as_if_it_had_seen_both(seed: int) -> None:
    rng = random.Random(seed)
    both, one, other = Timetables(), Timetables(), Timetables()
    for changes in random_changes(rng):
        for change in changes:
            change(both)
            rng.choice([one, other])  # who decides; both hear what is scheduled
            for table in (one, other) if change is changes[0] else (rng.choice([one, other]),):
                change(table)
    one.join(other)
    one.check()
    assert live(one) == live(both)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_of_several_additions_the_same_one_stays(order: tuple[int, ...]) -> None:
    """That of the owner; without one that of the lowest replica ID."""
    all_ = [Addition(False, 9, 5), Addition(True, 2, 7), Addition(True, 3, 1)]
    table = Timetables()
    gone = [table.added(b"s", b"h", (1, 9), 100, all_[at]) for at in order]
    assert sorted(filter(None, gone)) == all_[1:]
    assert table.added(b"s", b"h", (1, 9), 100, all_[0]) is None  # once more
    assert table.added(b"s", b"h", (1, 9), 200, all_[2]) is None  # another time


def test_what_every_member_has_is_forgotten() -> None:
    table = Timetables()
    for change in (scheduling(b"h", (1, 1), 100), advancing(b"h", (1, 1), GONE_MS)):
        change(table)
    table.added(b"s", b"h", (1, 1), 100, Addition(False, 1, 1))
    table.prune({1: 0})
    assert (len(table.tombstones), len(table.additions)) == (1, 1)
    table.prune({1: 1})
    table.check()
    assert (table.entries, len(table.tombstones), len(table.additions)) == ({}, 0, 0)
    assert table.used_bytes == 0


def test_a_snapshot_has_what_is_needed() -> None:
    rng = random.Random(1)
    table, copy = Timetables(), Timetables()
    for changes in random_changes(rng):
        for change in changes:
            change(table)
    copy.restore(written(table.entries.items()))
    copy.check()
    assert live(copy) == live(table)
    assert copy.tombstones.keys() == table.tombstones.keys()
    assert all(table.freed())
    assert (table.entries, table.handles) == ({}, {})


@pytest.mark.parametrize("seed", range(20))
def test_the_earliest_deadlines_are_those_of_a_sorted_list(seed: int) -> None:
    rng = random.Random(seed)
    deadlines: Deadlines[int] = Deadlines()
    for _ in range(rng.randint(0, 200)):
        key = rng.randrange(50)
        if rng.random() < 0.3:
            deadlines.pop(key, None)
        else:
            deadlines[key] = rng.randrange(30)
    expected = sorted((at, key) for key, at in deadlines.items())
    count = rng.randint(1, 60)
    assert deadlines.earliest(count) == expected[:count]
    assert deadlines.first_ms() == (expected[0][0] if expected else None)
    deadlines.check()
