"""Groups and pending lists against dictionaries."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.frozen import copied
from anabranch.stream.groups import pending_list as pending_module
from anabranch.stream.groups.group import Group, group_alone
from anabranch.stream.groups.pending import GroupPending
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import Consumer, PendingList
from anabranch.stream.stream import Stream

# -- pending lists ----------------------------------------------------------------------------

LIST_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["add", "add", "extend", "extend", "pop", "pop many", "first", "last", "look"]
        ),
        st.integers(0, 40),
        st.integers(1, 6),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(
    sweep_min=st.sampled_from([0, 3, 64]),
    few_late=st.sampled_from([0, 2, 16]),
    late_max=st.sampled_from([0, 2, 1000]),
    steps=LIST_STEPS,
)
def test_a_pending_list_agrees_with_a_dictionary(
    sweep_min: int, few_late: int, late_max: int, steps: list[tuple[str, int, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pending_module, "_SWEEP_MIN", sweep_min)
        patch.setattr(pending_module, "_FEW_LATE", few_late)
        patch.setattr(pending_module, "_LATE_MAX", late_max)
        subject = PendingList()
        model: dict[int, PendingEntry] = {}
        for act, one, many in steps:
            if act == "add" and one not in model:
                model[one] = PendingEntry(one, None, 0, 1, 0)
                subject.add(model[one])
            elif act == "extend":
                fresh = {i: PendingEntry(i, None, 0, 1, 0) for i in range(one, one + many)}
                fresh = {i: entry for i, entry in fresh.items() if i not in model}
                subject.extend(list(fresh), list(fresh.values()))
                model |= fresh
            elif act == "pop":
                assert subject.pop(one) is model.pop(one, None)
            elif act == "pop many":
                ids = [one + 2 * index for index in range(many)]
                expected = [model.pop(i) for i in ids if i in model]
                assert subject.pop_all(ids) == expected
            elif act == "first":
                assert subject.first() is (model[min(model)] if model else None)
            elif act == "last":
                assert subject.last() is (model[max(model)] if model else None)
            elif act == "look":
                subject.check()
                shown = [entry.entry_id for entry in subject.between(one, one + 9)]
                assert shown == sorted(i for i in model if one <= i <= one + 9)
            assert len(subject) == len(model)
            assert (one in subject) == (one in model)
            assert subject.get(one) is model.get(one)
        subject.check()
        assert [entry.entry_id for entry in subject.between(0, 99)] == sorted(model)


class Moved(list[int]):
    """Counts what is inserted before others."""

    count = 0

    def insert(self, *args: object) -> None:
        self.count += 1
        super().insert(*args)  # type: ignore[arg-type]


def test_many_that_come_out_of_order_move_nothing() -> None:
    """Each move takes a third of a millisecond in a list of a million."""
    subject = PendingList()
    subject._order = moved = Moved()
    ids = [*range(0, 2000, 2), *range(1, 2000, 2)]
    for entry_id in ids:
        subject.add(PendingEntry(entry_id, None, 0, 1, 0))
    assert [entry.entry_id for entry in subject.between(0, MAX_ID)] == sorted(ids)
    assert moved.count == 0


def test_ids_that_came_and_left_out_of_order_take_no_memory() -> None:
    """A worker that claims old entries and acknowledges them never reads its list in order."""
    subject = PendingList()
    subject.add(PendingEntry(10_000, None, 0, 1, 0))
    for entry_id in range(9000):
        subject.add(PendingEntry(entry_id, None, 0, 1, 0))
        subject.pop(entry_id)
    assert len(subject._order) + len(subject._late) < 1100
    assert list(subject.entries) == [10_000]
    subject.check()


# -- groups -----------------------------------------------------------------------------------


@dataclass
class _Model:
    """ID -> [region, owner, delivery ms, count], in the order of the last update."""

    pending: dict[int, tuple[int, str | None, int, int]] = field(default_factory=dict)
    consumers: set[str] = field(default_factory=set)

    def put(self, entry_id: int, region: int, owner: str | None, at_ms: int, count: int) -> None:
        self.pending.pop(entry_id, None)
        self.pending[entry_id] = (region, owner, at_ms, count)

    @property
    def released(self) -> list[int]:
        return [entry_id for entry_id, row in self.pending.items() if row[1] is None]

    @property
    def by_age(self) -> list[int]:
        owned = [entry_id for entry_id, row in self.pending.items() if row[1] is not None]
        return sorted(
            owned, key=lambda entry_id: self.pending[entry_id][2]
        )  # stable: ties by update


GROUP_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["deliver"] * 3 + ["assign"] * 3 + ["release"] * 2 + ["acknowledge"] * 2
            + ["remove consumer", "ask for age", "sort some", "copy"]
        ),
        st.integers(0, 60),
        st.integers(1, 5),
        st.sampled_from("abc"),
        st.integers(0, 4),
    ),
    min_size=10,
    max_size=40,
)  # fmt: skip


def _region(entry_id: int, regions: int) -> int:
    """The region that wrote an entry."""
    return entry_id % regions


def _act(group: Group, model: _Model, step: tuple[str, int, int, str, int], regions: int) -> Group:
    act, one, many, name, at_ms = step
    model.consumers.add(name)
    consumer = group.consumer(name.encode(), 0)
    home = _region(one, regions)
    if act == "deliver":
        ids = [i for i in range(one, one + many * regions) if _region(i, regions) == home]
        group.pending.deliver(home, ids, consumer, at_ms)
        for entry_id in ids:
            model.put(entry_id, home, name, at_ms, 1)
    elif act == "assign":
        group.pending.assign(home, one, consumer, at_ms, many)
        model.put(one, home, name, at_ms, many)
    elif act == "release":
        group.pending.assign(home, one, None, 0, many)
        model.put(one, home, None, 0, many)
    elif act == "acknowledge":
        ids = list(range(one, one + many))
        known = [entry_id for entry_id in ids if entry_id in model.pending]
        assert group.pending.among(ids + ids) == known
        assert group.pending.acknowledge(ids) == len(known)
        for entry_id in known:
            del model.pending[entry_id]
    elif act == "remove consumer":
        mine = [entry_id for entry_id, row in model.pending.items() if row[1] == name]
        group.remove_consumer(name.encode())
        model.consumers.remove(name)
        for entry_id in mine:
            del model.pending[entry_id]
    elif act == "copy":
        old, group = group, _copy_of(group)
        old.pending.acknowledge([entry.entry_id for entry in old.pending.between(0, MAX_ID)])
        old.remove_consumer(name.encode())
        old.progress.see(999)
    elif act == "sort some":
        group.pending.sort_some(many)
    else:
        group.pending.oldest_first()
    return group


def _copy_of(group: Group) -> Group:
    """An independent copy, as COPY makes it."""
    stream = Stream(100, 100)
    stream.groups[b"g"] = group
    return copied(stream).groups[b"g"]


def _agree(group: Group, model: _Model) -> None:
    group.check()
    rows = [
        (e.entry_id, None if e.consumer is None else e.consumer.name.decode(), e.delivery_ms,
         e.delivery_count)
        for e in group.pending.between(0, MAX_ID)
    ]  # fmt: skip
    assert rows == sorted(
        ((entry_id, *row[1:]) for entry_id, row in model.pending.items()), key=lambda row: row[0]
    )
    assert {name.decode() for name in group.consumers} == model.consumers
    assert [entry.entry_id for entry in group.pending.released] == model.released
    assert group.pending.count == len(model.pending)
    ends = group.pending.first(), group.pending.last()
    assert [end and end.entry_id for end in ends] == (
        [min(model.pending), max(model.pending)] if model.pending else [None, None]
    )
    for name, consumer in group.consumers.items():
        mine = [i for i, row in model.pending.items() if row[1] == name.decode()]
        assert [entry.entry_id for entry in consumer.between(0, MAX_ID)] == sorted(mine)
        assert consumer.pending_count == len(mine)


@settings(max_examples=250, deadline=None)
@given(regions=st.sampled_from([1, 1, 2, 3]), steps=GROUP_STEPS)
def test_a_group_agrees_with_a_dictionary(
    regions: int, steps: list[tuple[str, int, int, str, int]]
) -> None:
    """Owned and released entries, their order, and who holds what."""
    group = group_alone(7, 3)
    model = _Model()
    for step in steps:
        group = _act(group, model, step, regions)
        _agree(group, model)
        entry_id = step[1]
        entry = group.pending.find(entry_id)
        assert (entry is None) == (entry_id not in model.pending)
        if entry is not None:
            assert group.pending.region_of(entry) == _region(entry_id, regions)
        if regions == 1:  # a copy puts the entries of several regions one region after the other
            sorted_now = group.pending.by_age if group.pending.is_sorted else None
            for by_age in (sorted_now, _copy_of(group).pending.oldest_first()):
                assert by_age is None or [row[2].entry_id for row in by_age] == model.by_age
    assert (group.progress.last_delivered_id, group.progress.entries_read) == (7, 3)


def test_entries_of_two_regions_may_have_one_id() -> None:
    group = group_alone(0, None)
    for region, name in ((1, b"a"), (2, b"b")):
        group.pending.deliver(region, [7], group.consumer(name, 0), 0)
    group.remove_consumer(b"a")
    assert [entry.consumer for entry in group.pending.between(0, MAX_ID)] == [group.consumers[b"b"]]
    group.pending.deliver(1, [7], group.consumer(b"a", 0), 0)
    by_id = list(group.pending.between(0, MAX_ID))
    assert [row[2] for row in group.pending.oldest_first()] == by_id[::-1]
    for region in (1, 2, 1):
        group.pending.assign(region, 7, None, 0, 1)
    group.check()
    assert [group.pending.region_of(entry) for entry in group.pending.released] == [2, 1]
    group.pending.assign(2, 7, group.consumers[b"a"], 0, 2)
    assert [group.pending.region_of(entry) for entry in group.pending.released] == [1]
    group.check()


def test_who_takes_the_first_entries_again_and_again_passes_over_no_removed_ones() -> None:
    pending, consumer = GroupPending(), Consumer(b"c", 0)
    pending.deliver(0, list(range(1, 101)), consumer, 0)
    for low in range(1, 41, 4):
        some = consumer.first(4)
        assert [entry.entry_id for entry in some] == list(range(low, low + 4))
        own = consumer.pending[0]
        assert own._order[own._gone] == low
        for entry in some:
            pending.assign(0, entry.entry_id, None, 0, 1)
    pending.check({b"c": consumer})
