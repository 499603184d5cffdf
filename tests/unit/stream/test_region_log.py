"""Blocks and region logs against a naive model, with small blocks and all kinds of gaps."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from anabranch.stream import block as block_module
from anabranch.stream.entry_id import MAX_ID, make
from tests.support.engine_model import ModelledLog, contents, contents_reversed, id_steps

_REWRITE_DEAD_MIN = block_module._REWRITE_DEAD_MIN


class LogMachine(RuleBasedStateMachine):
    """Random life of one region log."""

    def __init__(self) -> None:
        super().__init__()
        self.subject = ModelledLog()

    @initialize(rewrite_min=st.sampled_from([1, 2, 5, 64]))
    def rewrite_early(self, rewrite_min: int) -> None:
        block_module._REWRITE_DEAD_MIN = rewrite_min

    def teardown(self) -> None:
        block_module._REWRITE_DEAD_MIN = _REWRITE_DEAD_MIN

    def _some_id(self, data: st.DataObject) -> int:
        """A live ID, its neighbour, or any ID."""
        live = sorted(self.subject.live) or [0]
        near = st.sampled_from(live).flatmap(
            lambda entry_id: st.sampled_from([max(entry_id - 1, 0), entry_id, entry_id + 1])
        )
        chosen: int = data.draw(st.one_of(near, st.sampled_from([0, make(5, 0), MAX_ID])))
        return min(chosen, MAX_ID)

    @rule(
        steps=st.lists(id_steps(), min_size=1, max_size=6),
        opens=st.booleans(),
        size=st.integers(0, 40),
    )
    def append(self, steps: list[int], opens: bool, size: int) -> None:
        for step in steps:
            if self.subject.last_id + step <= MAX_ID:
                self.subject.append(self.subject.last_id + step, opens=opens, size=size)
            opens = False

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.subject.remove(self._some_id(data))

    @rule(data=st.data(), share=st.integers(1, 4))
    def remove_many(self, data: st.DataObject, share: int) -> None:
        for entry_id in sorted(self.subject.live)[:: -share if data.draw(st.booleans()) else share]:
            self.subject.remove(entry_id)

    @precondition(lambda self: self.subject.live)
    @rule()
    def remove_the_newest(self) -> None:
        self.subject.remove(max(self.subject.live))

    @precondition(lambda self: self.subject.live)
    @rule()
    def drop_the_oldest_block(self) -> None:
        log = self.subject.log
        block = log.drop_oldest_block()
        for low, high in block.runs(0, len(block.ids)):
            for entry_id in block.ids[low:high]:
                del self.subject.live[entry_id]

    @rule(data=st.data())
    def lower_the_last_id(self, data: st.DataObject) -> None:
        """XSETID: anywhere between the newest live entry and the last ID."""
        low = max(self.subject.live, default=0)
        last = data.draw(st.integers(low, self.subject.last_id))
        self.subject.log.reopen_at(last)
        self.subject.last_id = last

    @rule()
    def go_on_with_a_copy(self) -> None:
        copy = self.subject.log.copy()
        self.subject.log.append(MAX_ID, b"x", 1, False)  # must not show in the copy
        self.subject.log = copy

    @rule(data=st.data(), limit=st.one_of(st.just(-1), st.integers(0, 12)))
    def read(self, data: st.DataObject, limit: int) -> None:
        start, end = self._some_id(data), self._some_id(data)
        live = self.subject.live
        ids = self.subject.between(start, end)
        cut = len(ids) if limit < 0 else limit
        log = self.subject.log
        assert contents(log.spans(start, end, limit)) == [(i, live[i][1]) for i in ids[:cut]]
        backwards = contents_reversed(log.spans_reversed(start, end, limit))
        assert backwards == [(i, live[i][1]) for i in ids[::-1][:cut]]

    @invariant()
    def agree(self) -> None:
        self.subject.check()


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)


# -- examples ---------------------------------------------------------------------------------


def _log(count: int, block_entries: int = 100) -> ModelledLog:
    subject = ModelledLog()
    for index in range(count):
        subject.append(make(index + 1, 0), opens=index % block_entries == 0)
    return subject


@pytest.mark.parametrize("entries_max", [1, 2, 7])
def test_a_block_is_full_by_its_slots_dead_or_live(entries_max: int) -> None:
    subject = _log(entries_max)
    block = subject.log.tail
    assert block is not None
    assert block.is_full(entries_max, 0, 1)
    assert not block.is_full(entries_max + 1, 0, 1)
    assert not block.is_full(0, 0, 1)
    if entries_max > 1:
        subject.remove(make(1, 0))
        assert block.is_full(entries_max, 0, 1)


def test_a_block_is_full_when_the_next_entry_reaches_its_bytes() -> None:
    block = _log(5).log.tail  # weight 1 each
    assert block is not None
    assert [block.is_full(0, 10, weight) for weight in (4, 5, 6)] == [False, True, True]


def test_many_deletions_give_memory_back_but_no_slot() -> None:
    subject = _log(1000, 1000)
    subject.append(make(2000, 0), opens=True)
    block = subject.log.blocks.peekitem(0)[1]
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


def test_an_empty_log_has_nothing() -> None:
    subject = ModelledLog()
    assert list(subject.log.spans(0, MAX_ID)) == list(subject.log.spans_reversed(0, MAX_ID)) == []
    assert subject.log.find(1) is None
    subject.check()
