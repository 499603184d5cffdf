"""Effects as arrays and back: nothing is lost, whatever the kind and however large the ID."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.effects import kinds
from anabranch.effects.apply import EFFECTS
from anabranch.effects.codec import (
    EffectFormatError,
    effect_of,
    join_ids,
    plain,
    runs_of,
)
from anabranch.stream.entry_id import MAX_ID, SEQ_BITS

ENTRY_IDS = st.integers(0, MAX_ID) | st.integers(0, 3 << 64)
NUMBERS = st.integers(0, (1 << 63) - 1)
BYTES = st.binary(max_size=12)

BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    repr(kinds.EntryId): ENTRY_IDS,
    repr(kinds.EntryId | None): st.none() | ENTRY_IDS,
    repr(kinds.EntryIds): st.lists(ENTRY_IDS, max_size=8),
    repr(int): NUMBERS,
    repr(int | None): st.none() | NUMBERS,
    repr(bool): st.booleans(),
    repr(str): st.text(max_size=12),
    repr(bytes): BYTES,
    repr(bytes | None): st.none() | BYTES,
    repr(list[bytes]): st.lists(BYTES, max_size=4),
    repr(list[int]): st.lists(NUMBERS, max_size=4),
    repr(Sequence[int]): st.lists(NUMBERS, max_size=4),
    repr(list[tuple[bytes, bytes | None]]): st.lists(
        st.tuples(BYTES, st.none() | BYTES), max_size=4
    ),
    repr(tuple[bytes, bytes] | None): st.none() | st.tuples(BYTES, BYTES),
    repr(tuple[bytes, bytes, int] | None): st.none() | st.tuples(BYTES, BYTES, NUMBERS),
    repr(list[tuple[bytes, int, int, int, int, int]]): st.lists(
        st.tuples(BYTES, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=4
    ),
    repr(list[tuple[bytes, bytes, list[bytes]]]): st.lists(
        st.tuples(st.binary(max_size=4), st.binary(max_size=4), st.lists(st.binary(max_size=4))),
        max_size=3,
    ),
    repr(list[tuple[int, int]]): st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4),
    repr(list[tuple[int, int, bytes]]): st.lists(st.tuples(NUMBERS, NUMBERS, BYTES), max_size=4),
    repr(list[tuple[kinds.EntryId, int, int, int]]): st.lists(
        st.tuples(ENTRY_IDS, NUMBERS, NUMBERS, NUMBERS), max_size=4
    ),
}


def effects_of_kind(kind: type[kinds.Effect]) -> st.SearchStrategy[kinds.Effect]:
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, *(BY_TYPE[repr(hints[name])] for name in kind.__struct_fields__))


def over_the_wire(array: list[Any]) -> list[Any]:
    decoded: list[Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(array))
    return decoded


# -- IDs --------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(ENTRY_IDS, max_size=30))
def test_runs_give_the_same_ids_back_in_any_order(ids: list[int]) -> None:
    assert join_ids(runs_of(ids)) == ids


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 40)), max_size=12), st.integers(0, 1 << 70)
)
def test_ascending_ids_become_as_few_runs_as_there_are(
    steps: list[tuple[int, int]], first: int
) -> None:
    ids: list[int] = []
    runs = 0
    at = first
    for gap, count in steps:
        at += gap
        if gap > 1 or not ids:
            runs += 1
        ids += range(at, at + count)
        at += count - 1
    assert join_ids(runs_of(ids)) == ids
    assert len(runs_of(ids)) == 3 * runs


def test_a_run_goes_on_over_the_end_of_a_millisecond() -> None:
    end = (5 << 64) - 1
    assert runs_of([end, end + 1]) == [4, (1 << 64) - 1, 2]
    assert join_ids([4, (1 << 64) - 1, 2]) == [end, end + 1]
    assert runs_of([]) == []


# -- effects ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [kind for kind, row in EFFECTS.items() if row.alone], ids=lambda kind: kind.__name__
)
def test_every_kind_comes_back_as_it_was(kind: type[kinds.Effect]) -> None:
    @settings(deadline=None)
    @given(effects_of_kind(kind))
    def comes_back(effect: kinds.Effect) -> None:
        if isinstance(effect, kinds.AddRun):
            effect.sizes = [1] * len(effect.ids)  # it has an entry for each ID
        again = effect_of(over_the_wire(plain(effect)))
        assert again == effect
        assert type(again) is kind

    comes_back()


# -- what is no effect ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array",
    [
        [],
        [999, 0, b"k"],
        [None],
        [[1], 2],
        [40],
        [40, 0],
        [40, "0", b"k", True],
        [40, 0, b"k", 1],
        [29, 0, b"k", b"g", [1, 2]],
        [29, 0, b"k", b"g", [1, "2", 3]],
        [29, 0, b"k", b"g", 7],
        [2, 0, b"k", [1], b"", 1, True],
    ],
)
def test_arrays_that_are_no_effects_say_so(array: list[Any]) -> None:
    with pytest.raises(EffectFormatError):
        effect_of(array)


def test_an_effect_of_an_older_server_has_defaults_for_what_it_lacks() -> None:
    assert effect_of([50, 0, b"k", b"v"]) == kinds.SetString(0, b"k", b"v", False, False)


def test_ids_of_one_region_are_one_run() -> None:
    ids = list(range((7 << SEQ_BITS) + 3, (7 << SEQ_BITS) + 3 + 256 * 50, 256))
    assert runs_of(ids) == [7, 3, -50, 256]
    for few in (1, 2, 3, 50):
        even = range(ids[0], ids[0] + few * 256, 256)
        assert runs_of(even) == runs_of(list(even))
        assert runs_of(range(9, 9 + few)) == [0, 9, few]
    assert join_ids(runs_of(ids)) == ids
    mixed = [*ids, ids[-1] + 1, ids[-1] + 2, 9 << SEQ_BITS, (9 << SEQ_BITS) + 256]
    assert join_ids(runs_of(mixed)) == mixed
    assert join_ids(runs_of(mixed[::-1])) == mixed[::-1]
