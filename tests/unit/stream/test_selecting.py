"""Conditions of AB.READ against what a reader would find by going through all entries."""

from __future__ import annotations

import random

import pytest

from anabranch.resp.encode import array_header, bulk
from anabranch.stream.block import Block
from anabranch.stream.compression import BlockCache
from anabranch.stream.entry_id import text
from anabranch.stream.region_log import RegionLog
from anabranch.stream.selecting import Where

Fields = list[tuple[bytes, bytes]]

TRICKY = [b"", b"v", b"vv", b"$1\r\nf\r\n$1\r\nv\r\n", b"\r\nv", b"*2\r\n", b"v" * 5000, b"\0\xff"]
NAMES = [b"f", b"g", b"f\r\n$1\r\nf", b"", b"$1\r\nf\r\n$"]


def fragment(entry_id: int, fields: Fields) -> bytes:
    pairs = b"".join([bulk(name) + bulk(value) for name, value in fields])
    return array_header(2) + bulk(text(entry_id)) + array_header(2 * len(fields)) + pairs


def block_of(rows: list[Fields], form: str) -> Block:
    log = RegionLog()
    for number, fields in enumerate(rows, 1):
        entry_id = (1000 + number) << 64
        data = fragment(entry_id, fields)
        log.append(entry_id, data, len(data), number == 1)
    block = log.blocks[0]
    if form != "open":
        block.close()
    if form in ("light", "dense", "read"):
        assert block.compress(BlockCache(1 << 20), if_smaller=False, lightly=form == "light") or (
            form == "light"
        )
    if form == "read":
        block.slice(0, 1)
    return block


def matches(fields: Fields, field: bytes, value: bytes, *, is_prefix: bool) -> bool:
    return any(
        name == field and (given.startswith(value) if is_prefix else given == value)
        for name, given in fields
    )


def rows_of(rng: random.Random, shape: str) -> list[Fields]:
    count = rng.randint(1, 30)
    if shape == "columns":  # the same names in each entry, one of them twice now and then
        names = rng.choices(NAMES, k=rng.randint(1, 4))
        return [[(name, rng.choice(TRICKY[:6])) for name in names] for _ in range(count)]
    return [
        [(rng.choice(NAMES), rng.choice(TRICKY)) for _ in range(rng.randint(1, 4))]
        for _ in range(count)
    ]


@pytest.mark.parametrize("form", ["open", "closed", "light", "dense", "read"])
@pytest.mark.parametrize("shape", ["columns", "mixed"])
def test_what_is_selected_is_what_matches(form: str, shape: str) -> None:
    rng = random.Random(form + shape)
    found = 0
    for _ in range(60):
        rows = rows_of(rng, shape)
        block = block_of(rows, form)
        for _ in range(12):
            field, value, is_prefix = rng.choice(NAMES), rng.choice(TRICKY), rng.random() < 0.5
            low = rng.randrange(len(rows))
            high = rng.randint(low + 1, len(rows))
            where = Where(field, value, is_prefix=is_prefix)
            expected = [
                index
                for index in range(low, high)
                if matches(rows[index], field, value, is_prefix=is_prefix)
            ]
            assert block.selected(where, low, high) == expected
            found += len(expected)
    assert found > 100


def test_a_shut_block_is_opened_for_one_look_and_stays_out_of_the_cache() -> None:
    rows = [[(b"f", b"value"), (b"g", b"%d" % number)] for number in range(200)]
    block = block_of(rows, "dense")
    assert block.cache is not None
    before = block.cache.opens, block.cache.held
    assert block.selected(Where(b"g", b"77", is_prefix=False), 0, 200) == [77]
    assert (block.cache.opens, block.cache.held) == before
    assert not block.is_read
