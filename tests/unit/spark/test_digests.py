"""Digests of spans of time: equal for equal contents, whatever pieces they were read in."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from anabranch.spark.reading.digests import Bucket, Piece, entries_between, summary, tasks_of
from tests.unit.spark.exports import Entry, chunk, payload


class FakeServer:
    """Answers AB.EXPORT from a list, a few entries at a time."""

    def __init__(self, entries: list[Entry], at_once: int) -> None:
        self._entries = entries
        self._at_once = at_once

    def ask(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        ((_, _, _, first, stop, *_),) = commands
        some = [each for each in self._entries if first <= each[0] < stop]
        page = some[: self._at_once]
        after = page[-1][0] + 1 if len(page) < len(some) else stop
        chunks = [chunk(page, packed=True, width=8, explicit=True, base=0)] if page else []
        return [payload(chunks, after)]


def made(count: int, seed: int = 1) -> list[Entry]:
    rng = random.Random(seed)
    ms = 1_000
    entries: list[Entry] = []
    for position in range(count):
        ms += rng.randrange(1, 20)
        entries.append((100 + position, ms, rng.randrange(5), [(b"n", b"%d" % position)]))
    return entries


def piece(first: int, stop: int) -> Piece:
    return Piece(0, 0, "s", "1", first, stop, width=100)


def read(entries: list[Entry], pieces: list[Piece], at_once: int = 7) -> dict[int, Bucket]:
    found: dict[int, Bucket] = {}
    for each in pieces:
        for number, bucket in summary(each, FakeServer(entries, at_once)).items():
            found.setdefault(number, Bucket()).add(
                *(bucket.entries, bucket.high, bucket.low, bucket.first, bucket.last)
            )
    return found


@pytest.mark.parametrize("cuts", [[], [150], [101, 102, 180, 299]])
def test_pieces_make_no_difference(cuts: list[int]) -> None:
    entries = made(200)
    whole = read(entries, [piece(100, 300)], at_once=1000)
    bounds = [100, *cuts, 300]
    parts = read(entries, [piece(*each) for each in pairwise(bounds)])
    assert parts == whole
    assert sum(each.entries for each in whole.values()) == 200
    assert set(whole) == {ms // 100 for _, ms, _, _ in entries}
    assert min(each.first for each in whole.values()) == 100
    assert max(each.last for each in whole.values()) == 299


@pytest.mark.parametrize("change", ["value", "name", "seq", "missing", "moved value"])
def test_any_change_shows_in_its_own_span_only(change: str) -> None:
    entries = made(200)
    other = made(200)
    position, ms, seq, fields = other[77]
    if change == "value":
        other[77] = (position, ms, seq, [(b"n", b"78")])
    elif change == "name":
        other[77] = (position, ms, seq, [(b"m", fields[0][1])])
    elif change == "seq":
        other[77] = (position, ms, seq + 7, fields)
    elif change == "missing":
        del other[77]
    else:
        other[77] = (position, ms, seq, [(b"n", b""), (b"77", b"")])
    one, two = read(entries, [piece(100, 300)]), read(other, [piece(100, 300)])
    assert one.keys() == two.keys()
    assert [number for number in one if one[number].digest != two[number].digest] == [ms // 100]


def test_only_positions_within_the_bounds_count() -> None:
    entries: list[Entry] = [(at, 5, at, [(b"f", b"v")]) for at in range(10)]
    found = read(entries, [piece(3, 7)])
    assert (found[0].entries, found[0].first, found[0].last) == (4, 3, 6)
    some = entries_between(FakeServer(entries, 3), "s", "1", 3, 6)
    assert list(some) == [(5, 3), (5, 4), (5, 5), (5, 6)]
    assert len(set(some.values())) == 4


def test_tasks_have_equal_shares_and_lose_nothing() -> None:
    rng = random.Random(4)
    for _ in range(50):
        pieces = []
        for stream in range(rng.randrange(1, 6)):
            first = rng.randrange(100)
            whole = piece(first, first + rng.randrange(1, 400))
            pieces.append(Piece(0, stream, "s", "", whole.first, whole.stop, 1))
        tasks = tasks_of(pieces, rng.randrange(1, 9))
        sizes = [sum(each.stop - each.first for each in task) for task in tasks]
        assert max(sizes[:-1], default=sizes[-1]) == max(sizes)
        assert len(set(sizes[:-1])) <= 1
        covered = [
            (each.stream, at)
            for task in tasks
            for each in task
            for at in range(each.first, each.stop)
        ]
        expected = [(each.stream, at) for each in pieces for at in range(each.first, each.stop)]
        assert covered == expected
