"""Which deliveries belong to one run, and in which order lists of equal IDs are read."""

from __future__ import annotations

from anabranch.stream.groups.pending_list import PendingList, ranked
from anabranch.stream.groups.runs import DeliveryRun, Runs


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
