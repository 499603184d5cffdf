"""Pending entries by their numbers: found by bisection, although many IDs have left."""

from __future__ import annotations

import random
from typing import Any

import pytest

from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import PendingList
from anabranch.stream.ranges import Ranges


class Counted(dict[int, PendingEntry]):
    """Counts how often entries are looked up."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return super().__contains__(key)

    def get(self, key: int, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)


def a_list(entries: int) -> PendingList:
    pending = PendingList()
    for index in range(1, entries + 1):
        pending.add(PendingEntry(10 * index, None, 0, 1, 0, 3 * index))
    return pending


@pytest.mark.parametrize("seed", range(50))
def test_the_entries_with_some_numbers(seed: int) -> None:
    chance = random.Random(seed)
    pending = a_list(entries=chance.choice([3, 40, 2000]))
    top = 3 * len(pending) + 5
    for _ in range(20):
        low = chance.randrange(top)
        pending.pop_all([each * 10 for each in range(low // 3, low // 3 + chance.randrange(700))])
        if chance.random() < 0.3 and 10 * 2 not in pending:
            pending.add(PendingEntry(20, None, 0, 1, 0, 6))
        edges = sorted(chance.sample(range(top), 2 * chance.randrange(1, 4)))
        numbers = Ranges(zip(edges[::2], edges[1::2], strict=True))
        due = [entry for entry in pending.between(0, 10 * top) if entry.number in numbers]
        found = sorted(pending.numbered(numbers), key=lambda entry: entry.number)
        assert found == due
        pending.check()


def test_a_search_looks_at_few_entries() -> None:
    pending = a_list(entries=50_000)
    pending.pop_all([10 * each for each in range(20_000, 40_000)])
    pending.numbered(Ranges([(3, 4)]))  # forgets what has left in the middle
    pending.entries = counted = Counted(pending.entries)
    for index in (1, 15_000, 45_000):
        (entry,) = pending.numbered(Ranges([(3 * index - 1, 3 * index)]))
        assert entry.entry_id == 10 * index
    assert counted.looks < 4000


def test_what_is_acknowledged_in_order_takes_few_looks() -> None:
    pending = a_list(entries=3000)
    pending.entries = counted = Counted(pending.entries)
    for index in range(1, 1001):
        pending.pop(10 * index)
        assert pending.numbered(Ranges([(3 * index - 3, 3 * index)])) == []
    assert counted.looks <= 2 * 1000
    pending.check()
