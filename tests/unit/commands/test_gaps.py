"""Notes of AB.READ about entries that were removed before the reader reached them."""

from __future__ import annotations

import random

import pytest

from tests.support.streams import Streams


def read(s: Streams, cursor: str, options: str = "") -> tuple[str, list[str], list[list[object]]]:
    """Cursor, IDs of the entries, notes."""
    ((_, after, entries, notes),) = s.run(f"AB.READ NOTES {options} STREAMS s {cursor}")
    return after, [entry[0] for entry in entries], notes


@pytest.fixture
def s() -> Streams:
    streams = Streams(stream_node_max_entries=4)
    streams.count_to("s", 10)
    return streams


def test_what_was_trimmed_or_deleted_before_the_cursor_reached_it(s: Streams) -> None:
    cursor, ids, notes = read(s, "0", "COUNT 2")
    assert (ids, notes) == (["1-0", "2-0"], [])
    s.run("XTRIM s MAXLEN 5", "XDEL s 8-0 9-0")
    cursor, ids, notes = read(s, cursor)
    assert (ids, notes) == (["6-0", "7-0", "10-0"], [["gap", 3, 5], ["gap", 8, 9]])
    assert read(s, cursor) == (cursor, [], [])
    s.count_to("s", 12, 11)
    s.run("XDEL s 11-0 12-0")
    after, ids, notes = read(s, cursor)
    assert (ids, notes) == ([], [["gap", 11, 12]])
    assert after != cursor
    assert read(s, after) == (after, [], [])


def test_what_the_cursor_has_reached_is_no_gap(s: Streams) -> None:
    cursor, _, _ = read(s, "0")
    s.run("XTRIM s MAXLEN 0")
    assert read(s, cursor) == (cursor, [], [])


def test_a_reader_that_begins_at_the_end_has_no_gap(s: Streams) -> None:
    s.run("XTRIM s MAXLEN 5")
    assert read(s, "$")[1:] == ([], [])
    assert read(s, "0")[2] == [["gap", 1, 5]]


def test_a_reader_that_waits_is_told(s: Streams) -> None:
    cursor, _, _ = read(s, "0")
    waiting = s.waits(f"AB.READ NOTES BLOCK 0 STREAMS s {cursor}")
    s.run("MULTI", "XADD s 11-0 f v", "XADD s 12-0 f v", "XDEL s 11-0", "EXEC")
    assert "[['gap', 11, 11]]" in s.answer(waiting)


def test_without_notes_the_reply_is_as_ever(s: Streams) -> None:
    s.run("XDEL s 5-0")
    ((_, _, entries),) = s.run("AB.READ STREAMS s 0")
    assert len(entries) == 9


def test_a_stream_that_was_made_again(s: Streams) -> None:
    cursor, _, _ = read(s, "0", "COUNT 4")
    s.run("DEL s")
    s.count_to("s", 22, 21)
    assert read(s, cursor)[1:] == (["21-0", "22-0"], [["gap", 5, 10]])
    assert read(s, "0")[1:] == (["21-0", "22-0"], [])


@pytest.mark.parametrize("seed", range(10))
def test_entries_and_gaps_together_are_all_that_was_added_once(seed: int) -> None:
    rng = random.Random(seed)
    s = Streams(stream_node_max_entries=4)
    last, cursor, told = 0, "0", 0
    for _ in range(200):
        match rng.randrange(5):
            case 0 | 1:
                count = rng.randint(1, 8)
                s.count_to("s", last + count, last + 1)
                last += count
            case 2:
                s.do("XDEL", "s", *(f"{rng.randint(1, last + 1)}-0" for _ in range(5)))
            case 3:
                s.run(f"XTRIM s MAXLEN {rng.randrange(20)}")
            case _:
                if not last:
                    continue
                cursor, ids, notes = read(s, cursor, f"COUNT {rng.randint(1, 9)}")
                numbers = [int(each.split("-")[0]) for each in ids]
                for _, low, high in notes:
                    numbers += range(int(str(low)), int(str(high)) + 1)
                assert sorted(numbers) == list(range(told + 1, told + len(numbers) + 1))
                told += len(numbers)
    while told < last:
        cursor, ids, notes = read(s, cursor)
        told += len(ids) + sum(int(str(high)) - int(str(low)) + 1 for _, low, high in notes)
    assert told == last
