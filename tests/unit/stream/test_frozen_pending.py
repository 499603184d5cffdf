"""A pending list read in pieces shows one moment, whatever happens between the pieces."""

from __future__ import annotations

import random

import pytest

from anabranch.stream.groups import frozen_pending
from anabranch.stream.groups.frozen_pending import FrozenPending
from anabranch.stream.groups.group import LOCAL_REPLICA_ID, Group, group_alone
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import Consumer

Shown = tuple[int, bytes | None, int, int, int]


def shown(entry: PendingEntry) -> Shown:
    owner = None if entry.consumer is None else entry.consumer.name
    return entry.entry_id, owner, entry.delivery_ms, entry.delivery_count, entry.stamp


def a_group(entries: int) -> Group:
    group = group_alone(0, 0)
    for name in (b"a", b"b"):
        group.consumer(name, 0)
    ids = range(10, 10 + 2 * entries, 2)  # room between them
    group.pending.deliver(LOCAL_REPLICA_ID, ids, group.consumers[b"a"], 1)
    return group


def change(group: Group, chance: random.Random, top: int) -> None:
    """One of everything that happens to pending entries."""
    pending = group.pending.lists[LOCAL_REPLICA_ID]
    some = [chance.randrange(10, top) for _ in range(chance.randrange(1, 6))]
    act = chance.randrange(5)
    if act == 0:
        group.pending.acknowledge(some)
    elif act == 1:
        owner = chance.choice([None, *group.consumers.values()])
        for entry_id in some:
            group.pending.assign(
                LOCAL_REPLICA_ID, entry_id, owner, chance.randrange(99), chance.randrange(9)
            )
    elif act == 2:
        group.pending.deliver(LOCAL_REPLICA_ID, sorted(set(some)), group.consumer(b"b", 0), 7)
    elif act == 3:
        newest = pending.last()
        first = top if newest is None else max(top, newest.entry_id + 1)
        group.pending.deliver(LOCAL_REPLICA_ID, range(first, first + 3), group.consumer(b"a", 0), 8)
    elif chance.random() < 0.2:
        group.remove_consumer(b"b")
        group.consumers[b"b"] = Consumer(b"b", 9)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_read_in_pieces_is_one_moment_although_the_list_changes(
    seed: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(frozen_pending, "_PIECE", 1 + seed % 4)
    chance = random.Random(seed)
    group = a_group(chance.randrange(60))
    pending = group.pending.lists[LOCAL_REPLICA_ID]
    top = 140
    for _ in range(chance.randrange(20)):
        change(group, chance, top)
    expected = [shown(entry) for entry in group.pending.between(0, 1 << 128)]
    frozen = FrozenPending(pending)
    found = []
    for piece in frozen.pieces():
        assert 0 < len(piece) <= 2 * (1 + seed % 4)
        found += map(shown, piece)
        for _ in range(chance.randrange(8)):
            change(group, chance, top)
    assert found == expected
    assert pending.frozen == ()
    group.check()


def test_two_read_the_same_list_from_different_moments(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(frozen_pending, "_PIECE", 2)
    group = a_group(10)
    pending = group.pending.lists[LOCAL_REPLICA_ID]
    first = FrozenPending(pending).pieces()
    read = [entry.entry_id for entry in next(first)]
    group.pending.acknowledge([20, 22])
    second = FrozenPending(pending).pieces()
    group.pending.acknowledge([24])
    rest = [entry.entry_id for piece in first for entry in piece]
    assert read + rest == list(range(10, 30, 2))
    later = [entry.entry_id for piece in second for entry in piece]
    assert later == [10, 12, 14, 16, 18, 24, 26, 28]


def test_entries_that_come_again_after_the_newest_have_left(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(frozen_pending, "_PIECE", 2)
    group = a_group(entries=10)
    pending = group.pending.lists[LOCAL_REPLICA_ID]
    group.pending.acknowledge([14, 16])
    expected = [shown(entry) for entry in group.pending.between(0, 99)]
    reader = FrozenPending(pending).pieces()
    read = list(map(shown, next(reader)))
    group.pending.acknowledge(range(14, 40))
    assert pending.last() is not None
    group.pending.deliver(
        LOCAL_REPLICA_ID, range(14, 40), group.consumer(b"new", 0), 7
    )  # XGROUP SETID
    read += [shown(entry) for piece in reader for entry in piece]
    assert read == expected


def test_a_list_that_nobody_reads_to_the_end_is_free_when_it_is_released():
    group = a_group(10)
    pending = group.pending.lists[LOCAL_REPLICA_ID]
    frozen = FrozenPending(pending)
    assert pending.frozen == (frozen,)
    frozen.release()
    assert pending.frozen == ()
    assert list(frozen.pieces()) == []
    abandoned = FrozenPending(pending).pieces()
    next(abandoned)
    abandoned.close()
    assert pending.frozen == ()


def test_of_a_list_without_entries_nothing_is_read():
    assert list(FrozenPending(a_group(0).pending.lists[LOCAL_REPLICA_ID]).pieces()) == []
