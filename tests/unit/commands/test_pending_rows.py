"""Rows of pending entries: what is kept for the next row is not used where it is wrong."""

from __future__ import annotations

import random

import pytest
from librt.strings import BytesWriter

from anabranch.commands.stream.pending_rows import RowWriter, pending_rows
from anabranch.resp.encode import array_header, bulk
from anabranch.stream.entry_id import MAX_ID, MAX_SEQ, make, text
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import Consumer

EDGES = [0, 1, 9, 10, 99, 100, 10**18, 10**19 - 1, 10**19, MAX_SEQ - 1, MAX_SEQ]


def tail_of(entry: PendingEntry) -> bytes:
    name = b"" if entry.consumer is None else entry.consumer.name
    return bulk(name) + b":%d\r\n:%d\r\n" % (entry.delivery_ms, entry.delivery_count)


def array(entries: list[PendingEntry]) -> bytes:
    """The rows, each by itself."""
    rows = [b"*4\r\n" + bulk(text(each.entry_id)) + tail_of(each) for each in entries]
    return array_header(len(rows)) + b"".join(rows)


@pytest.mark.parametrize("seed", range(20))
def test_rows_in_any_order(seed: int) -> None:
    luck = random.Random(seed)
    owners = [None, Consumer(b"a", 0), Consumer(b"b\xff\r\n", 0)]
    arrays = [
        [
            PendingEntry(
                make(luck.choice(EDGES), luck.choice(EDGES)),
                luck.choice(owners),
                luck.choice([0, 1]),
                luck.choice([0, 1, MAX_SEQ >> 1]),
                0,
            )
            for _ in range(luck.choice([0, 1, 40]))
        ]
        for _ in range(10)
    ]
    out = BytesWriter()
    writer = RowWriter(out, tail_of)
    for entries in arrays:
        writer.write_array(entries)
        assert pending_rows(entries, tail_of) == array(entries)
    assert out.getvalue() == b"".join(map(array, arrays))


def test_the_first_row_of_a_released_entry_with_zeros() -> None:
    entries = [PendingEntry(each, None, 0, 0, 0) for each in (0, MAX_ID)]
    assert pending_rows(entries, tail_of) == array(entries)
