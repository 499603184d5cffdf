"""A packed table is a dictionary with its keys in order, whatever is done to it."""

from __future__ import annotations

import random

import pytest
import pyzstd
from hypothesis import given
from hypothesis import strategies as st

from anabranch.keyspace.packed_table import (
    ROWS_MAX,
    PackedRows,
    PackedTable,
    map_of,
    rows_in_chunk,
)

KEYS = st.one_of(
    st.binary(max_size=3),
    st.integers(0, 400).map(lambda number: b"key:%d" % number),
)
CHANGES = st.lists(
    st.one_of(
        st.dictionaries(KEYS, st.binary(max_size=9), max_size=2 * ROWS_MAX),
        st.lists(KEYS, max_size=ROWS_MAX),
    ),
    max_size=12,
)


@given(CHANGES, st.booleans())
def test_a_table_agrees_with_a_dictionary(
    changes: list[PackedRows | list[bytes]], joins: bool
) -> None:
    table = PackedTable()
    model: PackedRows = {}
    for change in changes:
        if isinstance(change, dict):
            table.update(change, bytes.__add__ if joins else None)
            model |= {
                key: model.get(key, b"") + row if joins else row for key, row in change.items()
            }
        else:
            table.remove(change)
            for key in change:
                model.pop(key, None)
        table.check()
        assert len(table) == len(model)
    assert list(table) == sorted(model)
    assert {key: table.get(key) for key in model} == model
    assert table.get(b"no key") is None


@given(st.sets(st.integers(0, 400)), st.integers(0, 401), st.integers(0, 401))
def test_the_first_rows_are_dropped_and_the_last_ones_read(
    numbers: set[int], key: int, other: int
) -> None:
    table = PackedTable()
    table.update({b"%03d" % number: b"" for number in numbers})
    table.drop_before(b"%03d" % key)
    table.check()
    left = sorted(int(each) for each in table)
    assert [each for each in left if each >= key] == sorted(n for n in numbers if n >= key)
    assert sum(each < key for each in left) < ROWS_MAX, "whole chunks are dropped"
    assert bool(left) == any(number >= key for number in numbers)
    read = [int(each) for rows in table.pages(b"%03d" % other) for each in rows]
    assert read == [each for each in left if each > other]


NO_ROWS = pyzstd.compress(b"\x80")


@pytest.mark.parametrize(
    "chunk", [b"", b"text", pyzstd.compress(b"\x01"), NO_ROWS[:4], NO_ROWS[:-1], NO_ROWS + b"?"]
)
def test_what_is_no_chunk_is_refused(chunk: bytes) -> None:
    with pytest.raises(ValueError, match="not a chunk"):
        rows_in_chunk(chunk)
    assert rows_in_chunk(NO_ROWS) == {}


def test_who_keeps_the_chunks_has_the_table_as_it_was() -> None:
    table = PackedTable()
    table.update({b"%d" % number: b"old" for number in range(1000)})
    chunks = table.chunks
    before = [map_of(chunk) for chunk in chunks]
    table.update({b"%d" % number: b"new" for number in range(0, 2000, 3)})
    table.remove([b"%d" % number for number in range(500)])
    assert [map_of(chunk) for chunk in chunks] == before
    assert table.chunks != chunks


@pytest.mark.parametrize("seed", range(20))
def test_pages_show_once_what_is_there_all_the_time(seed: int) -> None:
    chance = random.Random(seed)
    table = PackedTable()
    names = [b"%04d" % number for number in range(500)]
    table.update(dict.fromkeys(names, b"row"))
    stays = set(chance.sample(names, 250))
    comes_and_goes = [name for name in names if name not in stays]
    seen: list[bytes] = []
    for rows in table.pages():
        seen += rows
        for _ in range(3):
            table.remove(chance.sample(comes_and_goes, 100))
            table.update(dict.fromkeys(chance.sample(comes_and_goes, 50), b"again"))
        if chance.random() < 0.3:
            table.remove(list(rows))
            table.update(rows)
    assert seen == sorted(set(seen))
    assert stays <= set(seen)
    table.check()


def test_ascending_keys_fill_their_chunks() -> None:
    table = PackedTable()
    for number in range(20 * ROWS_MAX):
        table.update({b"%06d" % number: b"row"})
    assert len(table.chunks) == 20
