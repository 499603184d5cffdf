"""Blocks and region logs against a naive model, with small blocks and all kinds of gaps."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.stream import block as block_module
from anabranch.stream import by_position
from anabranch.stream.block import Block, block_index
from anabranch.stream.compression import BlockCache
from anabranch.stream.entry_id import MAX_ID, make
from anabranch.stream.frozen_log import FrozenLog
from anabranch.stream.region_log import RegionLog
from tests.support.compressing import compress_blocks, whatever_it_gains
from tests.support.engine_model import (
    ModelledLog,
    contents,
    contents_reversed,
    copy_of,
    fragment,
    id_steps,
)

ACTS = st.sampled_from(
    ["append"] * 5
    + ["remove"] * 3
    + ["remove some", "remove many", "remove newest", "drop block", "lower last id", "copy"]
    + ["compress"] * 2
)
STEPS = st.lists(
    st.tuples(ACTS, st.integers(0, 1000), st.integers(0, 1000), id_steps()),
    min_size=10,
    max_size=40,
)

BEYOND = ((1 << 62) - 1, 1 << 62, (1 << 64) - 2, (1 << 64) - 1)
"""Milliseconds around those that machine code compares in registers, and above them."""


def _act(subject: ModelledLog, act: str, one: int, other: int, step: int) -> None:
    """One random step; ``one`` and ``other`` choose whatever there is to choose."""
    live = sorted(subject.live)
    if act == "append":
        for number in range(1 + one % 3):
            new = subject.last_id + step
            if new < MAX_ID:
                subject.append(new, opens=number == 0 and other % 3 > 0, size=other % 20)
    elif act == "lower last id":  # XSETID: down to the newest live entry
        low = max(subject.live, default=0)
        subject.last_id = [low, (low + subject.last_id) // 2, subject.last_id][one % 3]
        subject.log.reopen_at(subject.last_id)
    elif act == "copy":
        copy = copy_of(subject.log)
        subject.log.append(MAX_ID, b"x", 1, other % 2 == 0)  # must not show in the copy
        subject.log = copy
    elif act == "compress":
        compress_blocks(subject.log.blocks[one % 2 :], BlockCache(other * 5))
    elif not live:
        return
    elif act == "remove":
        subject.remove(live[one % len(live)])
        subject.remove(live[one % len(live)] + 1)  # mostly not there
    elif act == "remove some":
        for entry_id in live[one % len(live) :: 1 + other % 2]:
            subject.remove(entry_id)
    elif act == "remove many":  # neighbours, a jump back, IDs of no entry
        some = live[one % len(live) :: 1 + other % 3]
        wanted = [*some, *live[: other % 5], live[-1] + 1, MAX_ID]
        wanted = list(dict.fromkeys(wanted))
        expected = [entry_id for entry_id in wanted if entry_id in subject.live]
        assert subject.log.live_among(wanted) == expected
        assert subject.log.remove_all(wanted) == expected
        for entry_id in expected:
            del subject.live[entry_id]
    elif act == "remove newest":
        subject.remove(live[-1])
    else:
        blocks = subject.log.blocks[: 1 + other % 3]
        subject.log.drop_blocks(0, 1 + other % 3)
        for block in blocks:
            for low, high in block.runs(0, len(block.ids)):
                for entry_id in block.ids[low:high]:
                    del subject.live[entry_id]


def _bound(subject: ModelledLog, choice: int) -> int:
    """A live ID or its neighbour, the ID of a dead entry, or one of the ends."""
    live = sorted(subject.live)
    if not live or choice % 7 == 0:
        return [0, MAX_ID, subject.last_id, subject.last_id // 2][choice % 4]
    return live[choice % len(live)] + choice % 3 - 1


@settings(max_examples=250, deadline=None)
@given(rewrite_min=st.sampled_from([1, 2, 5, 64]), block_entries=st.integers(1, 9), steps=STEPS)
def test_a_region_log_agrees_with_a_list(
    rewrite_min: int, block_entries: int, steps: list[tuple[str, int, int, int]]
) -> None:
    """After every step: all entries, their positions, and some interval in both directions."""
    with pytest.MonkeyPatch.context() as patch, whatever_it_gains():
        patch.setattr(block_module, "_REWRITE_DEAD_MIN", rewrite_min)
        subject = _log(12, block_entries)
        for act, one, other, step in steps:
            _act(subject, act, one, other, step)
            start, end = _bound(subject, one), _bound(subject, other)
            limit = (one + other) % 14 - 1
            ids = subject.between(start, end)
            entries = [(entry_id, subject.live[entry_id][1]) for entry_id in ids]
            cut = len(ids) if limit < 0 else limit
            parts: list[bytes] = []
            assert subject.log.read(start, end, limit, parts) == len(entries[:cut])
            assert b"".join(parts) == b"".join(data for _, data in entries[:cut])
            subject.check()  # moves the blocks down, so not before the read
            spans = subject.log.spans(start, end, limit)
            assert contents(spans) == entries[:cut]
            spans = subject.log.spans_reversed(start, end, limit)
            assert contents_reversed(spans) == entries[::-1][:cut]
            position = one % (subject.log.next_position + 2)
            below = [each for each, (at, _) in subject.live.items() if at < position]
            assert by_position.id_below(subject.log, position) == max(below, default=0)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["drop"] * 6 + ["append", "look up", "count", "count", "drop all"]),
            st.integers(250, 400),
        ),
        min_size=30,
        max_size=60,
    )
)
def test_blocks_that_go_at_the_front_are_not_read_any_more(steps: list[tuple[str, int]]) -> None:
    """Nothing here looks at :attr:`blocks`, which would move the rest of the list down."""
    log = RegionLog()
    blocks: list[list[int]] = []

    def append(entry_id: int) -> None:
        opens = not blocks or len(blocks[-1]) > blocks[-1][0] % 4  # blocks of one to four entries
        log.append(entry_id, fragment(entry_id), 1, opens)
        if opens:
            blocks.append([])
        blocks[-1].append(entry_id)

    def fill(ms: int) -> None:
        for number in range(400):
            append(make(ms + number // 7, number % 7))

    fill(300)
    for act, place in steps:
        if act == "drop":
            count = min(1 + place % 6, len(blocks) - 1)
            assert len(log.drop_blocks(0, count)) == count
            del blocks[:count]
        elif act == "append":
            append(blocks[-1][-1] + 1)
        elif act == "drop all":  # lower IDs may follow
            log.drop_blocks(0, len(blocks))
            blocks.clear()
            fill(place)
        ids = [each for block in blocks for each in block]
        start = make(place, 0)
        if act == "look up":
            wanted = [*ids[place % 3 :: 7], make(place, 9)]
            assert log.live_among(wanted) == [each for each in wanted if each in ids]
        elif act == "count":
            assert log.count(start, MAX_ID) == sum(each >= start for each in ids)
        expected = [each for each in ids if each >= start][:7]
        parts: list[bytes] = []
        assert log.read(start, MAX_ID, 7, parts) == len(expected)
        assert b"".join(parts) == b"".join(map(fragment, expected))
        if start in ids:
            assert contents(log.spans_from(start, 1)) == [(start, fragment(start))]
        assert (log.find(start) is not None) == (start in ids)
        assert log.first_id == ids[0]
        assert log.length == len(ids)
    log.check()


# -- examples ---------------------------------------------------------------------------------


def _log(count: int, block_entries: int = 100) -> ModelledLog:
    subject = ModelledLog()
    for index in range(count):
        subject.append(make(index + 1, 0), opens=index % block_entries == 0)
    return subject


def test_many_deletions_give_memory_back_but_no_slot() -> None:
    subject = _log(1000, 1000)
    subject.append(make(2000, 0), opens=True)
    block = subject.log.blocks[0]
    for ms in range(1, 901):
        subject.remove(make(ms, 0))
    assert len(block.ids) < 250
    assert (block.live, block.slots) == (100, 1000)
    subject.check()


def test_positions_are_never_used_twice() -> None:
    """Not even when the newest block goes and the one before it is open again."""
    subject = _log(4, 2)
    subject.remove(make(4, 0))
    subject.remove(make(3, 0))
    subject.append(make(9, 0))
    found = subject.log.find(make(9, 0))
    assert found is not None
    assert found[0].position(found[1]) == 4
    subject.check()


def test_a_frozen_log_stays_as_it_was_although_its_last_block_is_open_again() -> None:
    subject = _log(6, 2)
    frozen = FrozenLog(subject.log)
    subject.remove(make(6, 0))
    subject.remove(make(5, 0))
    subject.append(make(9, 0))
    subject.check()
    assert subject.between(0, MAX_ID) == [make(ms, 0) for ms in (1, 2, 3, 4, 9)]
    held = [each for block, low, high in frozen.spans() for each in block.ids[low:high]]
    assert held == [make(ms, 0) for ms in range(1, 7)]
    frozen.release()
    assert not any(block.shared for block in subject.log.blocks)


def test_an_id_that_died_may_be_used_again_after_the_last_id_was_lowered() -> None:
    """What XSETID allows after a trim: dead slots above must not disturb the order."""
    subject = _log(6, 3)
    subject.remove(make(6, 0))
    subject.remove(make(5, 0))
    subject.log.reopen_at(make(4, 0))
    subject.append(make(4, 1))
    subject.append(make(5, 0))
    assert subject.between(0, MAX_ID) == [make(ms, 0) for ms in range(1, 5)] + [
        make(4, 1), make(5, 0),
    ]  # fmt: skip
    subject.check()


@given(
    begins=st.sets(st.builds(make, st.sampled_from([0, 1, 7, *BEYOND]), st.integers(0, 3))),
    wanted=st.builds(make, st.sampled_from([0, 1, 2, 8, *BEYOND]), st.integers(0, 4)),
)
def test_a_block_is_found_by_its_whole_id_where_milliseconds_are_the_same(
    begins: set[int], wanted: int
) -> None:
    """Also where they are too large for a register."""
    ascending = sorted(begins)
    blocks = [Block(each, 0) for each in ascending]
    assert block_index(blocks, wanted) == bisect_right(ascending, wanted) - 1


def test_an_empty_log_has_nothing() -> None:
    subject = ModelledLog()
    assert list(subject.log.spans(0, MAX_ID)) == list(subject.log.spans_reversed(0, MAX_ID)) == []
    assert subject.log.find(1) is None
    assert by_position.id_below(subject.log, 1) == 0
    subject.check()
