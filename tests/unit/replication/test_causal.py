"""What waits, beside a list that is searched in the plainest way."""

from __future__ import annotations

import random

import pytest

from anabranch.oplog.batch import decode_batch
from anabranch.replication.causal import CausalBuffer, Held, MissingEffects
from tests.support.counted_region import batch_bytes


def held(replica_id: int, first: int, count: int = 1, source: int = 9, **what: object) -> Held:
    raw = batch_bytes(replica_id, first, count, **what)  # type: ignore[arg-type]
    return Held(decode_batch(raw), raw, source, 0.0)


def spans(unit: list[Held]) -> list[tuple[int, int, int]]:
    return [(each.batch.replica_id, each.batch.first, each.batch.last) for each in unit]


def test_the_next_number_is_ready_and_a_later_one_is_not() -> None:
    buffer = CausalBuffer()
    assert buffer.add(held(1, 6, 2))
    assert buffer.next_units({1: 4}) == []
    assert list(buffer.missing({1: 4})) == [MissingEffects(1, 5, 9, 0.0)]
    assert spans(buffer.next_units({1: 5})) == [(1, 6, 7)]


def test_a_batch_waits_for_all_it_depends_on() -> None:
    buffer = CausalBuffer()
    buffer.add(held(1, 1, dependencies=[(2, 5), (3, 1)]))
    assert list(buffer.missing({2: 4})) == [
        MissingEffects(2, 5, 9, 0.0),
        MissingEffects(3, 1, 9, 0.0),
    ]
    assert buffer.lacks_cause(1, {2: 4})
    assert buffer.next_units({2: 5}) == []
    assert spans(buffer.next_units({2: 5, 3: 7})) == [(1, 1, 1)]


def test_a_unit_is_ready_when_its_last_batch_is_here() -> None:
    buffer = CausalBuffer()
    buffer.add(held(1, 1, 2, continues=True))
    buffer.add(held(1, 3, continues=True))
    assert buffer.next_units({}) == []
    assert buffer.lacks_rest(1, {})
    assert list(buffer.missing({})) == []
    buffer.add(held(1, 4))
    assert spans(buffer.next_units({})) == [(1, 1, 2), (1, 3, 3), (1, 4, 4)]
    assert not buffer.lacks_rest(1, {})


def test_a_dependency_of_any_batch_holds_back_the_unit() -> None:
    buffer = CausalBuffer()
    buffer.add(held(1, 1, continues=True))
    buffer.add(held(1, 2, dependencies=[(2, 1)]))
    assert buffer.next_units({}) == []
    assert list(buffer.missing({})) == [MissingEffects(2, 1, 9, 0.0)]


def test_units_of_one_region_are_ready_together() -> None:
    buffer = CausalBuffer()
    buffer.add(held(1, 1, 2))
    buffer.add(held(1, 3))
    buffer.add(held(1, 4))
    buffer.add(held(1, 5, continues=True))
    assert spans(buffer.next_units({}, 2)) == [(1, 1, 2)]
    assert spans(buffer.next_units({}, 3)) == [(1, 1, 2), (1, 3, 3)]
    assert spans(buffer.next_units({}, 99)) == [(1, 1, 2), (1, 3, 3), (1, 4, 4)], "a long one waits"
    buffer.remove(buffer.next_units({}, 99))
    assert spans(buffer.next_units({1: 4}, 99)) == []
    buffer.add(held(1, 6))
    buffer.add(held(1, 7, dependencies=[(2, 1)]))
    assert spans(buffer.next_units({1: 4}, 99)) == [(1, 5, 5), (1, 6, 6)]
    assert spans(buffer.next_units({1: 4, 2: 1}, 99)) == [(1, 5, 5), (1, 6, 6), (1, 7, 7)]


def test_what_is_here_is_not_kept_twice() -> None:
    buffer = CausalBuffer()
    assert buffer.add(held(1, 5, 4))
    for first, count in [(5, 4), (5, 1), (8, 3), (3, 3), (4, 9)]:
        assert not buffer.add(held(1, first, count))
    assert buffer.add(held(1, 9))
    assert buffer.add(held(1, 4))
    assert buffer.reach(1, 3) == 9
    assert buffer.reach(1, 2) == 2
    assert buffer.last() == {1: 9}


def test_what_fills_a_gap_joins_what_waits_behind_it() -> None:
    buffer = CausalBuffer()
    for first in (5, 7):
        assert buffer.add(held(1, first))
    assert buffer.reach(1, 4) == 5
    assert buffer.add(held(1, 6))
    assert buffer.reach(1, 4) == 7


def test_bytes_are_counted_for_who_sent_them() -> None:
    buffer = CausalBuffer()
    one, two = held(1, 1, source=7), held(1, 2, source=8, size=100)
    buffer.add(one)
    buffer.add(two)
    assert buffer.bytes_of == {7: len(one.raw), 8: len(two.raw)}
    buffer.remove(buffer.next_units({}))
    assert buffer.bytes_of[7] == 0
    buffer.drop_applied({1: 2})
    assert buffer.bytes_of[8] == 0
    assert len(buffer) == 0


def test_an_epoch_can_be_forgotten() -> None:
    buffer = CausalBuffer()
    buffer.add(held(2, 1))
    buffer.add(held(258, 1))
    buffer.drop(2)
    assert buffer.replica_ids() == [258]
    assert sum(buffer.bytes_of.values()) == len(held(258, 1).raw)


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_arrival_ends_in_one_causal_order(seed: int) -> None:
    chance = random.Random(seed)
    made: list[Held] = []
    vectors: dict[int, dict[int, int]] = {replica_id: {} for replica_id in (1, 2, 3)}
    for _ in range(60):
        replica_id = chance.choice([1, 2, 3])
        vector = vectors[replica_id]
        if chance.random() < 0.4:  # it hears of another one
            for cause, number in vectors[chance.choice([1, 2, 3])].items():
                vector[cause] = max(vector.get(cause, 0), number)
        count = chance.randint(1, 3)
        dependencies = [(cause, number) for cause, number in vector.items() if cause != replica_id]
        made.append(
            held(replica_id, vector.get(replica_id, 0) + 1, count, dependencies=dependencies)
        )
        vector[replica_id] = vector.get(replica_id, 0) + count
    arriving = made + chance.sample(made, 10)
    chance.shuffle(arriving)

    buffer = CausalBuffer()
    vector = {}
    applied: list[Held] = []
    for each in arriving:
        if each.batch.last > vector.get(each.batch.replica_id, 0):
            buffer.add(each)
        while unit := buffer.next_units(vector):
            for ready in unit:
                assert ready.batch.first == vector.get(ready.batch.replica_id, 0) + 1
                assert all(vector.get(o, 0) >= n for o, n in ready.batch.dependencies.items())
                vector[ready.batch.replica_id] = ready.batch.last
            applied += unit
            buffer.remove(unit)
        waiting = [
            other
            for other in made
            if other in arriving[: arriving.index(each) + 1] and other not in applied
        ]
        assert not any(
            other.batch.first == vector.get(other.batch.replica_id, 0) + 1
            and all(vector.get(o, 0) >= n for o, n in other.batch.dependencies.items())
            for other in waiting
        )
    assert len(applied) == len(made)
    assert len(buffer) == 0
    assert not any(buffer.bytes_of.values())
