"""The rows of AB.IMPORT, beside another parser."""

from __future__ import annotations

import random
import re
import tracemalloc
from array import array
from itertools import accumulate, pairwise

import pytest

from anabranch.commands.extensions.bulk_rows import added
from anabranch.stream.entry_id import make, text
from anabranch.stream.region_log import entry_weight
from anabranch.stream.rows import CheckedRows, RowError, rows_in

WORDS = (
    *(b"", b"a", b"bb", b"*4", b"*2", b"$1", b"\r\n", b"\r", b"\n", b"x" * 1500),
    *(b"mark0", b"mark1", b"*1000000", b"~9999999\r\n"),
)
CUNNING = (
    b"\r\n*4\r\n$1\r\na\r\n$",
    b"\r\n$1\r\na\r\n$1\r\na",
    b"*4\r\n$1\r\na\r\n$1\r\na\r\n",
    b"2\r\nbb",
    b"$2\r\nbb\r\n",
    b"$5\r\nmark0\r\n",
    b"*9999999\r\n",
)
NUMBER = re.compile(rb"[1-9][0-9]*|0")


def row_of(words: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(
        b"$%d\r\n%b\r\n" % (len(word), word) for word in words
    )


def words_in(row: bytes) -> list[bytes] | None:
    """The words of a row; None if it is none."""

    def line(sign: bytes, at: int) -> tuple[int, int] | None:
        end = row.find(b"\r\n", at)
        if end < 0 or row[at : at + 1] != sign or not NUMBER.fullmatch(row[at + 1 : end]):
            return None
        return int(row[at + 1 : end]), end + 2

    head = line(b"*", 0)
    if head is None or not head[0] or head[0] % 2:
        return None
    words, at = [], head[1]
    for _ in range(head[0]):
        size = line(b"$", at)
        if size is None or row[size[1] + size[0] :][:2] != b"\r\n":
            return None
        words.append(row[size[1] : size[1] + size[0]])
        at = size[1] + size[0] + 2
    return words if at == len(row) else None


def accepted(ends: list[int], data: bytes) -> CheckedRows | None:
    """The rows; None if they are refused."""
    try:
        return rows_in(array("I", ends), data)
    except RowError:
        return None


def table(rng: random.Random, rows: int, *, cunning: bool = False) -> list[bytes]:
    """CheckedRows that have the same names."""
    values = WORDS + CUNNING if cunning else WORDS
    names = [rng.choice(values if cunning else (b"a", b"bb", b"name")) for _ in range(3)]
    names = names[: rng.randrange(1, 4)]
    return [
        row_of([word for name in names for word in (name, rng.choice(values))]) for _ in range(rows)
    ]


def anything(rng: random.Random, rows: int) -> list[bytes]:
    """CheckedRows of any shape."""
    return [
        row_of([rng.choice(WORDS + CUNNING) for _ in range(2 * rng.randrange(1, 4))])
        for _ in range(rows)
    ]


def check(rows: list[bytes], found: CheckedRows) -> None:
    words = [words_in(row) for row in rows]
    assert found.rows == rows
    counts = [len(each or ()) for each in words]
    assert found.words == counts
    first = make(1_700_000_000_000, 95)
    ids = range(first, first + len(rows))
    effect = added(found, 0, b"k", ids, (3, 40), (5, 90))
    heads = [b"*2\r\n$%d\r\n%b\r\n" % (len(text(each)), text(each)) for each in ids]
    fragments = [head + row for head, row in zip(heads, rows, strict=True)]
    assert effect.data == b"".join(fragments)
    assert effect.sizes == list(map(len, fragments))
    weights = [entry_weight(len(row), count) for row, count in zip(rows, counts, strict=True)]
    assert effect.weights == weights
    slots, filled, opens = 3, 40, []
    for index, weight in enumerate(weights):
        filled += weight
        if slots >= 5 or filled >= 90:
            opens.append(index)
            slots, filled = 0, weight
        slots += 1
    assert effect.opens == opens


@pytest.mark.parametrize("seed", range(60))
def test_rows_become_what_they_are(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice((1, 2, 7, 300))
    for rows in (table(rng, count), table(rng, count, cunning=True), anything(rng, count)):
        found = accepted(list(accumulate(map(len, rows))), b"".join(rows))
        assert found is not None
        check(rows, found)


@pytest.mark.parametrize("seed", range(150))
def test_what_is_damaged_is_refused_by_all_or_none(seed: int) -> None:
    rng = random.Random(seed)
    refused = 0
    for _ in range(40):
        make_rows = rng.choice((table, anything))
        rows = make_rows(rng, rng.randrange(1, 6))
        ends = list(accumulate(map(len, rows)))
        data = bytearray(b"".join(rows))
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(len(data))
            match rng.randrange(5):
                case 0:
                    data[at] = rng.choice(b"\r\n$*+-:=0123456789ax")
                case 1:
                    data[at : at + 1] = rng.choice((b"", b"\r\n", b"0", b"$1\r\na\r\n"))
                case 2:
                    other = rng.randrange(len(data))
                    data[at], data[other] = data[other], data[at]
                case 3:
                    ends[rng.randrange(len(ends))] += rng.choice((-2, -1, 1, 2, 7))
                case _:
                    move = rng.choice(CUNNING)
                    data[at:at] = move
                    ends = [end + len(move) if end > at else end for end in ends]
        ends[-1] = len(data)
        pieces = [bytes(data[low:high]) for low, high in pairwise([0, *ends])]
        is_right = ends == sorted(ends) and all(words_in(piece) for piece in pieces)
        found = accepted(ends, bytes(data))
        assert (found is not None) == is_right, (pieces, ends)
        if found is not None:
            check(pieces, found)
        refused += not is_right
    assert refused


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((4, 4), ([b"a"] * 2, [b"a"] * 6)),
        ((2, 4), ([b"a"] * 4, [b"a"] * 2)),
        # One word of the second row lies where its mark should, and is like a mark.
        ((4, 4), ([b"a"] * 3, [b"mark0", *[b"a"] * 4])),
        ((4, 4), ([b"a"] * 3, [b"mark1", *[b"a"] * 3, b"mark0"])),
    ],
)
def test_each_row_has_as_many_words_as_it_says(
    said: tuple[int, int], words: tuple[list[bytes], list[bytes]]
) -> None:
    rows = [b"*%d%b" % (count, row_of(some)[2:]) for count, some in zip(said, words, strict=True)]
    assert accepted(list(accumulate(map(len, rows))), b"".join(rows)) is None


@pytest.mark.parametrize(
    "malformed",
    [
        b"*2\r\n$1\r\na\r\n$01\r\nb\r\n",
        b"*02\r\n$1\r\na\r\n$1\r\nb\r\n",
        b"*2\r\n$1\r\na\r\n$00\r\n\r\n",
        b"*2\r\n$1\r\na\r\n$\r\n\r\n",
        b"*2\r\n$1\r\na\r\n$-1\r\n",
        b"*2\r\n$1\r\na\r\n$1\rxb\r\n",
        b"*2\r\n$1\r\na\r\n$1\r\nbx\n",
        b"*2\r\n$1\r\na\r\n$1\r\nb\rx",
        b"*2\r\n$1\r\na\r\n:1\r\nb\r\n",
        b"*2\r\n$1\r\na\r\n$9999999999\r\nb\r\n",
        b"*2\r\n$1\r\na\r\n$99999999999999999999\r\nb\r\n",
        b"*1\r\n$1\r\na\r\n",
        b"*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
        b"*0\r\n",
        b"*\r\n",
        b"*-2\r\n",
        b"$2\r\n$1\r\na\r\n$1\r\nb\r\n",
        b"*2",
        b"*",
    ],
)
@pytest.mark.parametrize("good", [0, 1, 6])
def test_a_malformed_row_is_refused_wherever_it_stands(malformed: bytes, good: int) -> None:
    assert words_in(malformed) is None
    rows = [row_of([b"a", b"b"])] * good
    for at in {0, good}:
        some = [*rows[:at], malformed, *rows[at:]]
        assert accepted(list(accumulate(map(len, some))), b"".join(some)) is None


@pytest.mark.parametrize("sign", [b"*", b"~", b">", b"|", b"%"])
def test_no_room_is_made_for_an_array_that_is_not_there(sign: bytes) -> None:
    nested = b"%b4294967295\r\n" % sign
    tracemalloc.start()
    try:
        for start in (b"$1\r\na\r\n", b"$1\r\naxx", b""):
            row = b"*2\r\n" + start + nested
            assert accepted([len(row)], row) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    harmless = row_of([b"a", nested])
    check([harmless], rows_in(array("I", [len(harmless)]), harmless))


def test_ids_of_a_run_may_go_over_into_the_next_millisecond_and_may_have_a_step() -> None:
    rows = [row_of([b"f", b"v"])] * 1200
    found = rows_in(array("I", accumulate(map(len, rows))), b"".join(rows))
    for first, step in ((make(5, (1 << 64) - 600), 1), (make(5, 3), 256), (make(5, 1 << 40), 256)):
        ids = range(first, first + 1200 * step, step)
        effect = added(found, 0, b"k", ids, (0, 0), (100, 4096))
        at = 0
        for entry_id, size in zip(ids, effect.sizes, strict=True):
            head = b"*2\r\n$%d\r\n%b\r\n*2\r\n" % (len(text(entry_id)), text(entry_id))
            assert effect.data[at : at + len(head)] == head
            at += size
