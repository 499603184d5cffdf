"""What regions share of a stream: its tables are made when something is put into them."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.stream.frozen import SHARED
from anabranch.stream.joining import join_dots
from anabranch.stream.producer import Accepted
from anabranch.stream.shared import ALL_GROUPS, Limits, Shared, Tag
from anabranch.stream.stream import Stream

OWN = 0x101
DOT = OWN, 7
TABLES = (
    *("tombstones", "deadlines", "last_ids", "deleted_ids", "surpluses", "limits"),
    *("tags", "accepted"),
)


def streams() -> tuple[Stream, Stream]:
    return Stream.of_regions(OWN, 100, 100), Stream.of_regions(OWN, 100, 100)


def covered(_: tuple[int, int]) -> bool:
    return False


def fill(stream: Stream) -> None:
    """Put something into each table, as effects do."""
    shared = stream.shared
    shared.bury(DOT, ALL_GROUPS, set().add)
    shared.set_ids(stream, DOT, 5, 3, 2, covered)
    shared.set_deadline(DOT, 1_000, covered)
    shared.set_limits(stream, DOT, Limits(1, 1, 60, 10), covered)
    shared.remember(stream, DOT, b"p", b"i", Tag(5, 1_000, False), covered)
    shared.accept(b"bulk", DOT, Accepted(1, 2, 3, 4), covered)


def test_what_one_stream_shares_is_not_in_another() -> None:
    filled, empty = streams()
    assert all(getattr(filled.shared, name) is getattr(empty.shared, name) for name in TABLES)
    fill(filled)
    assert all(len(getattr(filled.shared, name)) == 1 for name in TABLES)
    assert empty.shared.is_blank
    assert Shared().is_blank


@pytest.mark.parametrize("name", TABLES)
def test_the_common_empty_table_cannot_be_changed(name: str) -> None:
    table: dict[Any, Any] = getattr(Shared(), name)
    with pytest.raises(TypeError, match="in common"):
        table[DOT] = 1
    with pytest.raises(TypeError, match="in common"):
        table.setdefault(DOT, 1)
    with pytest.raises(TypeError, match="in common"):
        table.update({DOT: 1})
    with pytest.raises(TypeError, match="in common"):
        table |= {DOT: 1}
    assert Shared().is_blank


@pytest.mark.parametrize("is_filled", [False, True])
def test_what_was_written_is_restored(is_filled: bool) -> None:
    filled, empty = streams()
    fill(filled)
    shared = (filled if is_filled else empty).shared
    restored = Shared()
    SHARED.restore(restored, SHARED.write(shared))
    assert SHARED.write(restored) == SHARED.write(shared)
    assert all(getattr(restored, name) == getattr(shared, name) for name in TABLES)
    assert restored.is_blank is not is_filled


def test_a_table_that_was_restored_takes_more() -> None:
    filled, _ = streams()
    fill(filled)
    shared = Shared()
    SHARED.restore(shared, SHARED.write(filled.shared))
    shared.tags_of(b"q")[b"j"] = {DOT: Tag(1, 2, False)}
    shared.bury((OWN, 8), b"group", set().add)
    assert set(shared.tags) == {b"p", b"q"}
    assert set(shared.tombstones) == {DOT, (OWN, 8)}


def test_a_removal_beats_the_creations_that_do_not_know_it() -> None:
    shared = Shared()
    other = OWN + 1
    for dot, what in {(OWN, 5): b"g", (OWN, 7): b"g", (other, 3): b"h", (other, 4): b"g"}.items():
        shared.bury(dot, what, set().add)
        assert shared.beats(b"g", lambda each, new=dot: each != new) is (what == b"g")
    assert not shared.beats(b"g", lambda _: True)
    assert shared.beats(b"g", lambda dot: dot[0] == OWN)
    assert not shared.beats(b"h", lambda dot: dot == (other, 3))
    shared.bury((OWN, 8), ALL_GROUPS, set().add)
    assert shared.beats(b"h", lambda dot: dot != (OWN, 8))
    shared.set_tombstones({(OWN, 7): b"g"})
    assert not shared.beats(b"h", lambda _: False)
    assert shared.beats(b"g", lambda dot: dot == (OWN, 5))


def test_an_id_that_was_set_replaces_smaller_ones_in_its_context() -> None:
    stream, _ = streams()
    shared = stream.shared
    shared.set_ids(stream, (OWN, 1), 10, None, 9, covered)
    shared.set_ids(stream, (OWN + 1, 1), 12, None, 5, covered)
    assert set(shared.last_ids) == set(shared.deleted_ids) == {(OWN, 1), (OWN + 1, 1)}
    shared.set_ids(stream, (OWN, 2), 20, None, 7, lambda dot: dot == (OWN, 1))
    assert shared.last_ids == {(OWN + 1, 1): 12, (OWN, 2): 20}
    assert shared.deleted_ids == {(OWN, 1): 9, (OWN + 1, 1): 5, (OWN, 2): 7}, "9 counts"


def test_rows_of_another_region_join_the_common_empty_table() -> None:
    mine, theirs = Shared(), {DOT: 1_000, (OWN, 3): None}
    joined = join_dots(mine.deadlines, theirs, {OWN: 5}, {OWN: 9})
    assert joined == {DOT: 1_000}, "what we have seen and dropped does not come back"
    assert not mine.deadlines
    assert join_dots(joined, {}, {OWN: 9}, {OWN: 9}) == {}
