"""Packed IDs are the list they were made of."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.stream.entry_id import MAX_ID, MAX_SEQ, make
from anabranch.stream.packed_ids import PackedIds

SEQ_END = 1 << 24
MS_END = 1 << 39

offsets_ms = st.one_of(st.integers(0, 5), st.sampled_from([MS_END - 1, MS_END - 2]))
seqs = st.one_of(st.integers(0, 5), st.sampled_from([SEQ_END - 1, SEQ_END - 2]))


@st.composite
def packable(draw: st.DrawFn) -> list[int]:
    """Ascending IDs that fit, at the edges too."""
    base = draw(st.sampled_from([0, 1_700_000_000_000, MAX_SEQ - MS_END, MAX_SEQ - MS_END + 1]))
    pairs = draw(st.sets(st.tuples(offsets_ms, seqs), min_size=1, max_size=12))
    first = min(ms for ms, _ in pairs)
    return sorted(make(base + ms - first, seq) for ms, seq in pairs)


@given(ids=packable(), low=st.integers(-13, 13), high=st.integers(-13, 13))
def test_packed_ids_are_a_sequence_like_the_list(ids: list[int], low: int, high: int) -> None:
    packed = PackedIds.pack(ids)
    assert packed is not None
    assert list(packed) == ids
    assert len(packed) == len(ids)
    assert [packed[index] for index in range(-len(ids), len(ids))] == ids + ids
    assert packed[low:high] == ids[low:high]


@given(
    runs=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 60)), min_size=1, max_size=4),
    holes=st.sets(st.integers(0, 100)),
)
def test_many_ids_of_few_milliseconds_are_packed(
    runs: list[tuple[int, int]], holes: set[int]
) -> None:
    """Runs that begin with a sequence number, a millisecond each, with gaps in them."""
    all_ids = [
        make(7 + ms, low + at) for ms, (low, count) in enumerate(runs) for at in range(count)
    ]
    ids = [entry_id for at, entry_id in enumerate(all_ids) if at not in holes] or all_ids
    packed = PackedIds.pack(ids)
    assert packed is not None
    assert list(packed) == ids
    too_high = PackedIds.pack([*ids, make(20, SEQ_END)])
    assert too_high is None


@given(
    ids=packable(),
    away_ms=st.sampled_from([-1, 0, 1, MS_END - 1, MS_END, MS_END + 1]),
    seq=st.sampled_from([0, 1, SEQ_END - 1, SEQ_END, SEQ_END + 1, MAX_SEQ]),
)
def test_packed_ids_are_searched_like_the_list(ids: list[int], away_ms: int, seq: int) -> None:
    packed = PackedIds.pack(ids)
    assert packed is not None
    wanted = [0, MAX_ID, MAX_ID + 1, *ids, *(entry_id + 1 for entry_id in ids)]
    wanted += [make(max((entry_id >> 64) + away_ms, 0), seq) for entry_id in ids]
    for entry_id in wanted:
        assert packed.index_from(entry_id) == bisect_left(ids, entry_id)


@pytest.mark.parametrize(
    "ids",
    [
        [make(5, 0), make(5, SEQ_END)],
        [make(5, SEQ_END), make(6, 0)],
        [make(5, 0), make(5 + MS_END, 0)],
        [make(5, MAX_SEQ)],
    ],
)
def test_what_does_not_fit_is_not_packed(ids: list[int]) -> None:
    assert PackedIds.pack(ids) is None


@pytest.mark.parametrize(
    ("first", "count", "step"),
    [
        (0, 1, 1),
        (7, 100, 1),
        (1 << 14, 100, 1),
        ((1 << 14) - 50, 100, 1),
        (3, 100, 256),
        (3, 1, 256),
    ],
)
def test_even_ids_are_packed_as_they_are(first: int, count: int, step: int) -> None:
    start = make(1_700_000_000_000, first)
    ids = range(start, start + count * step, step)
    packed = PackedIds.pack_run(ids)
    assert packed is not None
    assert list(packed) == list(ids)
    slow = PackedIds.pack(list(ids))
    assert slow is not None
    assert (packed.base_ms, packed.words) == (slow.base_ms, slow.words)
    crossing = make(5, MAX_SEQ)
    assert PackedIds.pack_run(range(crossing, crossing + 2)) is None
