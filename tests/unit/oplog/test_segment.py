"""One file of the log: its name, its header, its turns, and where they end."""

from __future__ import annotations

import pytest

from anabranch.effects import kinds
from anabranch.oplog.batch import CONTINUES, MAGIC
from anabranch.oplog.errors import CorruptLogError
from anabranch.oplog.segment import (
    SEGMENT_HEADER_BYTES,
    Damage,
    batches_in,
    check_segment_header,
    first_position_of,
    segment_header,
    segment_name,
    sound_batch_after,
    turns_in,
)
from tests.support.batches import encode_batch


def batch(*, continues: bool = False, value: bytes = b"v") -> bytes:
    effect = kinds.SetString(0, b"k", value)
    flags = CONTINUES if continues else 0
    return encode_batch([effect], region=0, epoch=0, first=1, wall_ms=1, flags=flags)


HEADER = segment_header(7)
ONE = batch()
BEGUN = batch(continues=True)


def damage(data: bytes) -> Damage | None:
    """What :func:`turns_in` ends with, if it is not a turn."""
    *_, last = turns_in(data)
    return last if isinstance(last, Damage) else None


# -- names and headers ------------------------------------------------------------------------


def test_names_tell_positions_and_sort_like_them() -> None:
    positions = [0, 9, 10, 123, 10**18]
    names = [segment_name(position) for position in positions]
    assert names == sorted(names)
    assert [first_position_of(name) for name in names] == positions


@pytest.mark.parametrize(
    "name",
    ["log-.ablog", "log-x.ablog", "log--1.ablog", "log-1.ablog.tmp", "log-¹.ablog", "1.ablog", ""],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert first_position_of(name) is None


def test_a_sound_header_is_accepted() -> None:
    assert len(HEADER) == SEGMENT_HEADER_BYTES
    check_segment_header(HEADER + b"anything", "name", 7)


def test_every_missing_and_every_changed_byte_of_a_header_is_noticed() -> None:
    for size in range(SEGMENT_HEADER_BYTES):
        with pytest.raises(CorruptLogError, match="shorter than its header"):
            check_segment_header(HEADER[:size], "name", 7)
    for at in range(SEGMENT_HEADER_BYTES):
        broken = bytearray(HEADER)
        broken[at] ^= 1
        with pytest.raises(CorruptLogError, match=r"^name is damaged at byte 0: "):
            check_segment_header(bytes(broken), "name", 7)
    with pytest.raises(CorruptLogError, match="the header says position 7"):
        check_segment_header(HEADER, "name", 8)


# -- turns ------------------------------------------------------------------------------------


def test_turns_are_read_where_they_stand() -> None:
    data = HEADER + ONE + BEGUN + BEGUN + ONE + ONE
    read = list(turns_in(data))
    places = [item[0] for item in read]
    size = len(ONE)
    assert places == [SEGMENT_HEADER_BYTES + n * size for n in (0, 1, 4)]
    assert [len(item[1]) for item in read if not isinstance(item, Damage)] == [1, 3, 1]
    assert len(list(batches_in(data))) == 5


def test_a_file_without_turns_has_none() -> None:
    assert list(turns_in(HEADER)) == []


@pytest.mark.parametrize("size", [1, 10, 40, len(BEGUN) - 1])
def test_a_turn_that_ends_early_begins_where_its_first_batch_does(size: int) -> None:
    found = damage(HEADER + ONE + BEGUN + BEGUN[:size])
    assert found is not None
    assert found.offset == SEGMENT_HEADER_BYTES + len(ONE)
    assert "cut off" in found.what


def test_a_turn_without_its_end_is_no_turn() -> None:
    found = damage(HEADER + ONE + BEGUN)
    assert found is not None
    assert (found.offset, found.what) == (
        SEGMENT_HEADER_BYTES + len(ONE),
        "the end of the turn is missing",
    )


# -- behind a damage --------------------------------------------------------------------------


def test_a_sound_batch_behind_a_damage_is_found() -> None:
    data = HEADER + b"damage" + ONE
    assert sound_batch_after(data, SEGMENT_HEADER_BYTES) == SEGMENT_HEADER_BYTES + 6


def test_nothing_is_found_behind_a_torn_end() -> None:
    for rest in (b"", b"A", MAGIC, MAGIC * 100, bytes(1000), ONE[:-1], b"x" + ONE[1:]):
        assert sound_batch_after(HEADER + b"damage" + rest, SEGMENT_HEADER_BYTES) is None
