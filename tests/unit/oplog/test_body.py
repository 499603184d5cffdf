"""The body of a batch: what is written from columns is what msgspec would write."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.effects import kinds
from anabranch.effects.codec import effect_of, plain
from anabranch.effects.recorded import RUN_ENTRIES_MAX, Additions, Recorded
from anabranch.oplog.body import LONG_FIELD_BYTES, body_parts
from tests.support.recording import Recording, record_all

IDS = st.integers(1, 3 << 64) | st.integers(1, (1 << 128) - 1) | st.integers(1, 9)
WEIGHTS = st.integers(0, 300) | st.sampled_from(
    [65_535, 65_536, (1 << 31) + 1, (1 << 32) - 1, 1 << 32]
)
SIZES = st.integers(0, 20) | st.sampled_from([127, 128, 255, 256, 65_535, 65_536])

ADDITIONS = st.builds(
    kinds.Add,
    st.integers(0, 1) | st.just(200),
    st.sampled_from([b"k", b"l", b"m" * 300]),
    IDS,
    SIZES.map(bytes),
    WEIGHTS,
    st.booleans(),
)
OTHERS = st.builds(kinds.Delete, st.just(0), st.just(b"k"), st.booleans())


def recorded(effects: list[kinds.Effect]) -> Recorded:
    """The effects as a region records them."""
    found = Recorded()
    record_all(found, effects)
    return found


def decoded(parts: list[bytes]) -> tuple[list[int], list[kinds.Effect]]:
    """The dependencies and the effects of a body; the bytes are those that msgspec writes."""
    body = b"".join(parts)
    dependencies, arrays = msgspec.msgpack.decode(body)
    effects = [effect_of(array) for array in arrays]
    assert msgspec.msgpack.encode((dependencies, [plain(each) for each in effects])) == body
    return dependencies, effects


def entries(effect: kinds.Effect) -> list[kinds.Effect]:
    """A run of additions as the additions it stands for."""
    if not isinstance(effect, kinds.AddRun):
        return [effect]
    found: list[kinds.Effect] = []
    at = 0
    for index, (entry_id, size) in enumerate(zip(effect.ids, effect.sizes, strict=True)):
        fragment = effect.data[at : at + size]
        at += size
        found.append(
            kinds.Add(
                effect.db,
                effect.key,
                entry_id,
                fragment,
                effect.weights[index],
                index in effect.opens,
            )
        )
    assert at == len(effect.data)
    return found


def ascending(effects: list[kinds.Effect]) -> list[kinds.Effect]:
    """The effects with the same IDs in ascending order, as those of one key are."""
    ids = iter(sorted({each.entry_id for each in effects if isinstance(each, kinds.Add)}))
    given: list[kinds.Effect] = []
    for each in effects:
        if isinstance(each, kinds.Add):
            entry_id = next(ids, None)
            if entry_id is None:
                break
            each = msgspec.structs.replace(each, entry_id=entry_id)
        given.append(each)
    return given


@settings(deadline=None)
@given(
    st.lists(ADDITIONS | OTHERS, max_size=24).map(ascending), st.sampled_from([[], [3, 1 << 40]])
)
@example([kinds.Add(0, b"k", 1 << 64 | n, b"f", n, n % 100 == 0) for n in range(300)], [])
@example([kinds.Add(0, b"k", (1 << 63) + n, b"f", 9, False, 7 + n) for n in (-1, 0, 1)], [])
@example([kinds.Add(0, b"k", n << 64, b"f", 9, True, 1 << 40) for n in range(1, 40)], [1, 2])
@example([kinds.Delete(0, b"k", False)] * 20 + [kinds.Add(0, b"k", 1, b"f", 9, True)], [])
def test_additions_become_runs_that_say_the_same(
    effects: list[kinds.Effect], dependencies: list[int]
) -> None:
    found = recorded(effects)
    assert found.count == len(effects)
    told, read = decoded(body_parts(found.effects, dependencies))
    assert told == dependencies
    first = [each for effect in read for each in entries(effect)]
    assert first == [_without_position(each) for each in effects]
    for one, other in pairwise(read):
        if isinstance(one, kinds.AddRun) and isinstance(other, kinds.AddRun):
            assert (one.db, one.key) != (other.db, other.key), "one run would have done"
    assert [each.position for each in read if isinstance(each, kinds.AddRun)] == [
        each.position for each in found.effects if isinstance(each, Additions)
    ]


def _without_position(effect: kinds.Effect) -> kinds.Effect:
    return msgspec.structs.replace(effect, position=-1) if isinstance(effect, kinds.Add) else effect


def test_a_run_is_limited() -> None:
    adds = [kinds.Add(0, b"k", 1 + n, b"f", 1, False) for n in range(2 * RUN_ENTRIES_MAX + 1)]
    found = recorded(list(adds))
    assert found.count == len(adds)
    assert [len(run.ids) for run in found.effects if isinstance(run, Additions)] == [
        RUN_ENTRIES_MAX, RUN_ENTRIES_MAX, 1,
    ]  # fmt: skip
    _, effects = decoded(body_parts(found.effects, []))
    assert [each for effect in effects for each in entries(effect)] == adds


@pytest.mark.parametrize("region", [False, True])
def test_a_part_of_a_run_is_what_its_entries_are(region: bool) -> None:
    adds = [
        kinds.Add(1, b"k", 5 + n, b"f%d" % n, n, n % 3 == 0, 70 + n if region else -1)
        for n in range(10)
    ]
    (run,) = recorded(list(adds)).effects
    assert isinstance(run, Additions)
    for low, high in ((0, 10), (0, 4), (3, 7), (9, 10)):
        noted: list[Any] = []
        part = Recorded()
        part.effects.append(run.part(low, high))
        Recording(noted).extend(part)
        assert noted == adds[low:high]


def test_long_entries_are_parts_of_the_body() -> None:
    long = bytes(LONG_FIELD_BYTES + 1)
    adds = [
        kinds.Add(0, b"k", 1, b"short", 1, True),
        kinds.Add(0, b"k", 2, long, 1, False),
        kinds.Add(0, b"k", 3, b"short", 1, False),
    ]
    parts = body_parts(recorded(list(adds)).effects, [])
    assert sum(part is long for part in parts) == 1
    _, effects = decoded(parts)
    assert [each for effect in effects for each in entries(effect)] == adds


def test_what_a_transaction_recorded_follows_what_was_recorded() -> None:
    """And an addition behind it begins a run of its own."""
    adds = [kinds.Add(0, b"k", 1 + n, b"f", 1, False) for n in range(5)]
    whole, transaction = recorded(list(adds[:2])), recorded(list(adds[2:4]))
    whole.extend(transaction)
    record_all(whole, adds[4:])
    assert whole.count == 5
    _, effects = decoded(body_parts(whole.effects, []))
    assert [each for effect in effects for each in entries(effect)] == adds
    whole.clear()
    assert (whole.count, whole.effects) == (0, [])
    record_all(whole, adds)
    assert len(whole.effects) == 1
