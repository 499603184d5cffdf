"""The same part of a log on several replicas: every difference is found, at its position."""

from __future__ import annotations

import random
from typing import Any

import pytest

from anabranch.spark.reading.comparison import Piece, differences, id_of
from tests.unit.spark.exports import Entry, chunk, payload


class FakeServer:
    """Answers AB.EXPORT from a list, a few entries at a time."""

    def __init__(self, entries: list[Entry] | None, at_once: int = 7) -> None:
        self._entries = entries
        self._at_once = at_once

    def begin(self, commands: list[tuple[Any, ...]]) -> Any:
        ((_, _, _, first, stop, *_),) = commands
        if self._entries is None:
            return lambda: [None]
        some = [each for each in self._entries if first <= each[0] < stop]
        page = some[: self._at_once]
        end = max((each[0] + 1 for each in self._entries), default=0)
        after = page[-1][0] + 1 if len(page) < len(some) else max(first, min(stop, end))
        chunks = [chunk(page, packed=True, width=8, explicit=True, base=0)] if page else []
        return lambda: [payload(chunks, after)]

    def checked(self, replies: list[Any]) -> list[Any]:
        return replies


def made(count: int, base: int = 0) -> list[Entry]:
    rng = random.Random(1)
    return [
        (base + position, 1_000 + 10 * position, rng.randrange(5), [(b"n", b"%d" % position)])
        for position in range(count)
        if position % 9 != 4  # a deleted one
    ]


def found(piece: Piece, *servers: FakeServer) -> tuple[list[int], dict[int, Any]]:
    counts = [0] * len(servers)
    differing = {}
    for some, more in differences(piece, servers):  # type: ignore[arg-type]
        counts = [count + each for count, each in zip(counts, some, strict=True)]
        differing |= more
    return counts, differing


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_equal_replicas_have_no_difference_however_they_answer(at_once: int) -> None:
    piece = Piece("s", "1", 3, 180, (0, 100, 0))
    servers = [
        FakeServer(made(200), 11),
        FakeServer(made(200, 100), at_once),
        FakeServer(made(200)),
    ]
    counts, differing = found(piece, *servers)
    expected = sum(3 <= position < 180 for position, *_ in made(200))
    assert (counts, differing) == ([expected] * 3, {})


@pytest.mark.parametrize("change", ["value", "name", "seq", "missing", "moved value", "added"])
@pytest.mark.parametrize("at_once", [3, 1000])
def test_any_change_is_found_at_its_position_only(change: str, at_once: int) -> None:
    other = made(200)
    at = 77
    position, ms, seq, fields = other[at]
    if change == "value":
        other[at] = (position, ms, seq, [(b"n", b"xy")])
    elif change == "name":
        other[at] = (position, ms, seq, [(b"m", fields[0][1])])
    elif change == "seq":
        other[at] = (position, ms, seq + 7, fields)
    elif change == "missing":
        del other[at]
    elif change == "added":
        position = 4
        other.insert(4, (position, 1_040, 0, [(b"n", b"4")]))
    else:
        other[at] = (position, ms, seq, [(b"n", b""), (fields[0][1], b"")])
    piece = Piece("s", "1", 0, 200, (0, 0))
    counts, differing = found(piece, FakeServer(made(200)), FakeServer(other, at_once))
    assert counts == [len(made(200)), len(other)]
    assert list(differing) == [position]
    ids = {id_of(each) for each in differing[position] if each is not None}
    assert f"{1_000 + 10 * position}-" in next(iter(ids))
    assert len(ids) == (2 if change == "seq" else 1)


def test_a_replica_without_the_key_or_with_less_has_nothing_more() -> None:
    piece = Piece("s", "1", 0, 50, (0, 0, 0))
    counts, differing = found(
        piece, FakeServer(made(50)), FakeServer(None), FakeServer(made(20), at_once=3)
    )
    assert counts == [len(made(50)), 0, len(made(20))]
    assert list(differing) == [position for position, *_ in made(50)]
