"""Which deliveries belong to one run, and in which order lists of equal IDs are read."""

from __future__ import annotations

import random

import pytest

from anabranch.stream import by_number
from anabranch.stream.groups.pending import GroupPending
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import PendingList, ranked
from anabranch.stream.groups.runs import DeliveryRun, Runs
from anabranch.stream.region_log import RegionLog


def extents(runs: Runs) -> list[tuple[int, int]]:
    return [(run.low, run.last) for run in runs.by_replica_id[1]]


def test_deliveries_one_after_the_other_are_one_run() -> None:
    runs = Runs()
    for numbers in ([3], [4, 5], [9]):
        runs.add(1, numbers)
    assert extents(runs) == [(2, 9)]


def test_each_delivery_goes_on_with_the_run_that_ends_next_below_it() -> None:
    runs = Runs()
    runs.by_replica_id[1] = [DeliveryRun(0, 0, 2), DeliveryRun(9, 9, 11)]
    runs.add(1, [5, 6])
    assert extents(runs) == [(0, 6), (9, 11)]
    runs.add(1, [12, 20])
    assert extents(runs) == [(0, 6), (9, 20)]
    runs.add(1, [7, 21, 22])
    assert extents(runs) == [(0, 7), (9, 22)]


def test_what_lies_below_all_open_runs_begins_one() -> None:
    runs = Runs()
    runs.by_replica_id[1] = [DeliveryRun(0, 0, 2, closed=True)]
    runs.add(1, [5, 7])
    assert extents(runs) == [(0, 2), (4, 7)]


def test_lists_are_read_in_the_order_of_equal_ids() -> None:
    first, second, third = 0x101, 0x002, 0x102  # region 1, then the epochs of region 2
    lists = {each: PendingList() for each in (third, first, second)}
    assert ranked(lists) == [lists[first], lists[second], lists[third]]
    del lists[third]
    lists = {second: lists[second], first: lists[first]}
    assert ranked(lists) == [lists[first], lists[second]]
    assert ranked({third: (alone := PendingList())}) == [alone]


@pytest.mark.parametrize("seed", range(40))
def test_acknowledgements_reach_up_to_the_first_open_entry(seed: int) -> None:
    """Open is what exists and is pending or was given up; more may be pending again before it."""
    chance = random.Random(seed)
    log, pending, runs = RegionLog(), GroupPending(), Runs()
    ids = {number: 7 * number for number in sorted(chance.sample(range(1, 200), 60))}
    for number, entry_id in ids.items():
        opens = chance.random() < 0.2
        log.append(entry_id, b"<%d>" % number, 1, opens, number - log.next_position)
    for number in chance.sample([*ids], 15):
        by_number.remove(log, number - 1, number)
    for number in sorted(chance.sample([*ids], chance.choice([1, 10, 40]))):
        pending.lists[1].add(PendingEntry(ids[number], None, 0, 1, 0, number))
    runs.give_up(1, chance.sample([*ids], chance.choice([0, 3])))
    edges = [0, *sorted(chance.sample(range(1, 200), 4)), 200]
    runs.by_replica_id[1] = [
        DeliveryRun(low, chance.randint(low, high), high)
        for low, high in zip(edges[::2], edges[1::2], strict=True)
    ]
    for _ in range(10):
        left = {entry.number for entry in pending.lists[1].entries.values()}
        opened = {
            number
            for number in left | set(runs.discarded[1])
            if by_number.find(log, number) is not None
        }
        due = []
        for run in runs.by_replica_id[1]:
            above = [number for number in opened if run.sent < number <= run.last]
            if (high := min(above, default=run.last + 1) - 1) > run.sent:
                due.append((1, run.sent, high))
        assert runs.grown({1: log}, pending) == due
        runs.record_sent(due[:1])
        pending.lists[1].pop_all([ids[each] for each in sorted(left)[: chance.randint(0, 6)]])
