"""How a batch is cut: every range once, in order, equal parts, whatever the number of streams."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark.options import ReadOptions
from anabranch.spark.reading.offsets import BY_ID, LogCursor, Range, Vector, parse_id
from anabranch.spark.reading.partitions import cut, partition_count
from tests.unit.spark.test_offsets import vectors

lengths = st.lists(st.integers(1, 40) | st.integers(1, 10**9), min_size=1, max_size=30)
counts = st.integers(1, 60)


def by_position(sizes):
    """A range of each size, which do not begin at the same place."""
    return [
        Range(f"s{number // 3}", str(number % 3), 1, 7 * number, 7 * number + size, "0-0", "0-0", 5)
        for number, size in enumerate(sizes)
    ]


def joined(pieces):
    """Neighbouring pieces of one log as one."""
    found = []
    for _, some in groupby(pieces, lambda each: (each.stream, each.region)):
        own = list(some)
        for left, right in pairwise(own):
            assert (left.stop, left.after, left.reported) == (right.first, right.after, 5)
        found.append(replace(own[0], stop=own[-1].stop))
    return found


def options(**given):
    return ReadOptions.parse(
        {"subscribe": "s", **{name: str(each) for name, each in given.items()}}
    )


@given(lengths, counts)
def test_partitions_are_all_ranges_in_their_order_and_equally_long(sizes, count):
    ranges = by_position(sizes)
    partitions = cut(ranges, count)
    assert joined([each for partition in partitions for each in partition]) == ranges
    assert len(partitions) == min(count, sum(sizes))
    long = [sum(map(len, each)) for each in partitions]
    assert max(long) - min(long) <= 1
    assert all(map(len, (each for partition in partitions for each in partition)))


def test_many_streams_are_few_partitions_and_a_large_one_is_cut():
    many = cut(by_position([1] * 600), 4)
    assert [len(each) for each in many] == [150] * 4
    skewed = cut(by_position([1_400_000, 400_000, 200_000]), 4)
    assert [sum(map(len, each)) for each in skewed] == [500_000] * 4
    assert [len(each) for each in skewed] == [1, 1, 2, 2]


def test_nothing_is_no_partition():
    assert cut([], 5) == []


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**64 - 1), st.integers(0, 9), st.integers(0, 10**6),
            st.integers(0, 9), st.integers(0, 200),
        ),
        min_size=1, max_size=8,
    ),
    counts,
)  # fmt: skip
def test_ranges_by_id_touch_and_cover(shapes, count):
    ranges = []
    for number, (ms, seq, span, end_seq, length) in enumerate(shapes):
        upto = f"{ms + span}-{seq + 1 + end_seq}"
        ranges.append(Range(f"s{number}", "", BY_ID, 3, 3 + length, f"{ms}-{seq}", upto))
    partitions = cut(ranges, count)
    assert 1 <= len(partitions) <= count
    for whole in ranges:
        pieces = [each for some in partitions for each in some if each.stream == whole.stream]
        assert (pieces[0].after, pieces[-1].upto) == (whole.after, whole.upto)
        assert all(parse_id(each.after) < parse_id(each.upto) for each in pieces)
        assert all(left.upto == right.after for left, right in pairwise(pieces))
        assert {(each.first, each.stop) for each in pieces} == {(whole.first, whole.stop)}


def test_a_range_by_id_is_cut_by_time():
    whole = Range("s", "", BY_ID, 0, 100, "1000-7", "2000-9")
    assert [(each.after, each.upto) for (each,) in cut([whole], 4)] == [
        ("1000-7", "1250-0"), ("1250-0", "1500-0"), ("1500-0", "1750-0"), ("1750-0", "2000-9"),
    ]  # fmt: skip


@given(vectors, vectors)
def test_partitions_follow_from_the_two_offsets_alone(start, end):
    replayed = Vector.parse(end.to_json())
    ranges = replayed.ranges(Vector.parse(start.to_json()))
    assert cut(ranges, replayed.splits) == cut(end.ranges(start), end.splits)


def test_positions_of_one_log_are_cut_as_before_a_restart():
    start = Vector({"s": {"": LogCursor(0, 100)}})
    end = Vector({"s": {"": LogCursor(0, 200)}}, 3)
    again = cut(Vector.parse(end.to_json()).ranges(start), 3)
    assert [(each.first, each.stop) for (each,) in again] == [(100, 133), (133, 166), (166, 200)]


@pytest.mark.parametrize(
    ("given", "entries", "count"),
    [
        ({}, 0, 1),
        ({}, 600, 1),
        ({}, 5_001, 2),
        ({}, 10**9, 8),
        ({"minPartitions": 3}, 600, 3),
        ({"minPartitions": 3}, 10**9, 3),
        ({"minPartitions": 99}, 10**9, 99),
        ({"maxRecordsPerPartition": 250}, 1_000, 4),
        ({"maxRecordsPerPartition": 250, "minPartitions": 7}, 1_001, 7),
        ({"maxRecordsPerPartition": 10}, 1_001, 101),
    ],
)
def test_tasks_are_as_many_as_cores_need_and_options_ask_for(given, entries, count):
    assert partition_count(options(**given), entries, 4) == count


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.integers(1, 64))
def test_no_partition_has_more_records_than_allowed(entries, most, cores):
    count = partition_count(options(maxRecordsPerPartition=most), entries, cores)
    if count <= 10_000:
        partitions = cut(by_position([entries]), count)
        assert max(sum(map(len, each)) for each in partitions) <= most


def test_each_part_of_a_range_knows_what_was_removed_in_it() -> None:
    removed = ((5, 7), (40, 60), (98, 100))
    whole = Range("s", "", 1, 0, 100, "0-0", "0-0", removed=removed)
    found = [each.removed for (each,) in cut([whole], 4)]
    assert found == [((5, 7),), ((40, 50),), ((50, 60),), ((98, 100),)]
