"""Streams of several regions: one sequence in ID order, whatever wrote it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.frozen import copied, head_of
from anabranch.stream.stream import Stream
from tests.support.engine_model import ModelledLog, contents, contents_reversed


@st.composite
def streams(draw: st.DrawFn) -> tuple[Stream, dict[int, ModelledLog]]:
    """A stream of one to four regions with small blocks, gaps, and IDs that may coincide."""
    regions: dict[int, ModelledLog] = {}
    for region in draw(st.sampled_from([[0], [0, 1], [0, 2, 1], [0, 3, 1, 7]])):
        subject = ModelledLog()
        size = draw(st.integers(1, 4))
        ids = sorted(draw(st.sets(st.integers(1, 40), max_size=15)))
        for index, entry_id in enumerate(ids):
            subject.append(entry_id, opens=index % size == 0, size=region)
        for entry_id in draw(st.sets(st.sampled_from(ids or [1]), max_size=6)):
            subject.remove(entry_id)
        regions[region] = subject
    stream = Stream(100, 100)
    stream.logs = {region: subject.log for region, subject in regions.items()}
    stream.local = stream.logs[0]
    return stream, regions


def _expected(
    regions: dict[int, ModelledLog], above: dict[int, int], end: int
) -> list[tuple[int, int, bytes]]:
    """``(ID, region, fragment)`` of everything above each region's bound, in order."""
    return sorted(
        (entry_id, region, data)
        for region, subject in regions.items()
        for entry_id, (_, data) in subject.live.items()
        if above.get(region, 0) < entry_id <= end
    )


bounds = st.one_of(st.just(0), st.integers(0, 41), st.just(MAX_ID))
limits = st.one_of(st.just(-1), st.integers(0, 30))


@settings(max_examples=400, deadline=None)
@given(made=streams(), start=bounds, end=bounds, limit=limits)
def test_an_interval_of_several_regions_is_in_order(
    made: tuple[Stream, dict[int, ModelledLog]], start: int, end: int, limit: int
) -> None:
    """By ID; equal IDs by region number, and never only some of them."""
    stream, regions = made
    rows = _expected(regions, dict.fromkeys(regions, start - 1), end)
    entries = [(entry_id, data) for entry_id, _, data in rows]
    assert contents(stream.spans(start, end, limit)) == _whole(entries, limit)
    backwards = contents_reversed(stream.spans_reversed(start, end, limit))
    assert backwards == _whole(entries[::-1], limit)


def _whole(entries: list[tuple[int, bytes]], limit: int) -> list[tuple[int, bytes]]:
    """The first entries, and with the last of them all that have its ID."""
    cut = len(entries) if limit < 0 else limit
    while 0 < cut < len(entries) and entries[cut][0] == entries[cut - 1][0]:
        cut += 1
    return entries[:cut]


@settings(max_examples=400, deadline=None)
@given(made=streams(), limit=limits)
def test_entries_come_with_their_regions(
    made: tuple[Stream, dict[int, ModelledLog]], limit: int
) -> None:
    stream, regions = made
    rows = _expected(regions, {}, MAX_ID)
    cut = len(rows) if limit < 0 else limit
    found = [
        (entry_id, region, data)
        for region, span in stream.spans_by_region(limit)
        for entry_id, data in contents([span])
    ]
    assert found == rows[:cut]


@settings(max_examples=200, deadline=None)
@given(made=streams(), entry_id=st.integers(0, 41))
def test_the_figures_are_of_all_regions(
    made: tuple[Stream, dict[int, ModelledLog]], entry_id: int
) -> None:
    stream, regions = made
    rows = _expected(regions, {}, MAX_ID)
    assert stream.length == len(rows)
    assert stream.first_id == (rows[0][0] if rows else 0)
    assert stream.last_live_id == (rows[-1][0] if rows else 0)
    assert stream.node_count == sum(len(subject.log.blocks) for subject in regions.values())
    holders = [region for region, subject in regions.items() if entry_id in subject.live]
    found = stream.find(entry_id)
    assert (found is not None) == bool(holders)
    if found is not None:
        region, block, index = found
        assert region in holders
        assert block.ids[index] == entry_id
        assert regions[region].live[entry_id][1] in stream.fragments(entry_id)


@settings(max_examples=200, deadline=None)
@given(
    made=streams(), positions=st.dictionaries(st.sampled_from([0, 1, 2, 3, 7]), st.integers(0, 16))
)
def test_trimming_removes_what_lies_below_a_position(
    made: tuple[Stream, dict[int, ModelledLog]], positions: dict[int, int]
) -> None:
    stream, regions = made
    for region, below in positions.items():
        if region not in regions:
            continue
        live = regions[region].live
        doomed = [entry_id for entry_id, (position, _) in live.items() if position < below]
        before = stream.length
        stream.trim(region, below)
        assert before - stream.length == len(doomed)
        for entry_id in doomed:
            del live[entry_id]
        regions[region].check()
    assert stream.length == len(_expected(regions, {}, MAX_ID))


@settings(max_examples=100, deadline=None)
@given(made=streams(), doomed=st.sets(st.integers(1, 40)))
def test_a_copy_is_complete_and_independent(
    made: tuple[Stream, dict[int, ModelledLog]], doomed: set[int]
) -> None:
    stream, regions = made
    stream.last_id = 40
    copy = copied(stream)
    copy.check()
    assert head_of(copy) == head_of(stream)
    before = contents(stream.spans(0, MAX_ID))
    assert contents(copy.spans(0, MAX_ID)) == before
    for entry_id in doomed:
        copy.remove(entry_id)
    copy.local.append(41, b"x", 1, False)
    assert contents(stream.spans(0, MAX_ID)) == before
    for subject in regions.values():
        subject.check()
