"""Entries of another region are checked byte by byte, beside the parser of hiredis."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise

import hiredis
import pytest

from anabranch.stream.entry_id import SEQ_BITS, text
from anabranch.stream.rows import RowError, check_fragments

BYTES = b"\r\n$*0123456789-ax"


def fragment(entry_id: int, *words: bytes) -> bytes:
    shown = text(entry_id)
    head = b"*2\r\n$%d\r\n%b\r\n*%d\r\n" % (len(shown), shown, len(words))
    return head + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def entries(rng: random.Random, count: int) -> tuple[list[int], list[bytes]]:
    """Of two fields each, in few or in many milliseconds."""
    step = rng.choice([1, 256, 1 << SEQ_BITS, (1 << SEQ_BITS) // 3])
    ids = [(1_700_000_000_000 << SEQ_BITS) + 7 + at * step for at in range(count)]
    values = [b"%d" % rng.randrange(1 << rng.randrange(30)) for _ in ids]
    return ids, [
        fragment(each, b"f", b"on", b"v", value) for each, value in zip(ids, values, strict=True)
    ]


def accepts(ids: list[int], sizes: list[int], data: bytes) -> bool:
    """Whether the fragments are accepted: they must be what hiredis reads, written again."""
    try:
        check_fragments(ids, sizes, data)
    except RowError:
        found = False
    else:
        found = True
    ends = list(accumulate(sizes))
    pieces = [data[low:high] for low, high in pairwise([0, *ends])]
    assert found == all(map(is_fragment, ids, pieces)), (ids, sizes, data)
    return found


def is_fragment(entry_id: int, piece: bytes) -> bool:
    """Whether hiredis reads an ID, and an even number of words, and nothing else."""
    reader = hiredis.Reader()
    reader.feed(piece)
    try:
        found = reader.gets()
    except hiredis.ProtocolError:
        return False
    match found:
        case [bytes(), [bytes(), bytes(), *_] as words] if len(words) % 2 == 0:
            return all(isinstance(each, bytes) for each in words) and (
                fragment(entry_id, *words) == piece
            )
    return False


@pytest.mark.parametrize("count", [1, 4, 5, 6, 100])
def test_entries_of_a_table_are_accepted(count: int) -> None:
    rng = random.Random(count)
    for _ in range(20):
        ids, found = entries(rng, count)
        assert accepts(ids, list(map(len, found)), b"".join(found))


@pytest.mark.parametrize("seq", [0, 9, 10, 10**18 - 1, 10**18, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("ms", [0, 7, 1_700_000_000_000, (1 << 64) - 1])
def test_ids_of_any_size_are_compared(ms: int, seq: int) -> None:
    entry_id = (ms << SEQ_BITS) + seq
    whole = fragment(entry_id, b"f", b"v")
    assert accepts([entry_id], [len(whole)], whole)
    for other in (entry_id - 1, entry_id + 1, entry_id + (1 << SEQ_BITS)):
        if 0 <= other < 1 << 2 * SEQ_BITS:
            assert not accepts([other], [len(whole)], whole)


def test_sizes_that_lead_into_the_next_entry_are_refused() -> None:
    """The bytes of both are the same as those of two entries cut elsewhere."""
    inner = fragment(2, b"f", b"v")
    outer = fragment(1, b"f", inner)
    assert accepts([1], [len(outer)], outer)
    at = len(outer) - len(inner) - 2
    assert not accepts([1, 2], [at, len(outer) - at], outer)
    assert not accepts([1, 2], [at, len(inner)], outer[:-2])
    assert not accepts([1, 2], [len(outer), len(inner)], outer + inner[:-1])


def test_values_may_look_like_sizes() -> None:
    """The line end before such a value and its first byte look like a cut between two words."""
    ids = [(1_700_000_000_000 << SEQ_BITS) + at for at in range(50)]
    found = [fragment(each, b"f", b"$5", b"v", b"\r\n$1\r\nv") for each in ids]
    assert accepts(ids, list(map(len, found)), b"".join(found))


def test_changed_bytes_and_sizes_are_judged_as_a_parser_judges_them() -> None:
    rng = random.Random(1)
    seen = set()
    for _ in range(1500):
        ids, found = entries(rng, rng.randrange(5, 12))
        sizes, data = list(map(len, found)), bytearray(b"".join(found))
        dice = rng.random()
        if dice < 0.5:
            data[rng.randrange(len(data))] = rng.choice(BYTES)
        elif dice < 0.7:
            at, by = rng.randrange(len(sizes) - 1), rng.randrange(-3, 4)
            sizes[at] += by
            sizes[at + 1] -= by
        elif dice < 0.8:
            ids[rng.randrange(len(ids))] += rng.choice([-1, 1, 1 << SEQ_BITS])
            ids.sort()
        else:
            piece = bytes(data[rng.randrange(len(data)) :][: rng.randrange(1, 6)])
            at = rng.randrange(len(data) - len(piece))
            data[at : at + len(piece)] = piece
        seen.add(accepts(ids, sizes, bytes(data)))
    assert seen == {True, False}
