"""The ID of contents, beside the same rules in unsigned numbers of any size."""

from __future__ import annotations

import random

import pytest
from xxhash import xxh3_128_digest

from anabranch.stream.content_id import content_id

WORD = (1 << 64) - 1


def rotated(word: int) -> int:
    return (word << 1 | word >> 63) & WORD


def plainly(words: list[bytes]) -> bytes:
    sums, xors = [0, 0], [0, 0]
    for field, value in zip(words[::2], words[1::2], strict=True):
        digest = xxh3_128_digest(field + len(field).to_bytes(8, "little") + value)
        for at in (0, 1):
            word = int.from_bytes(digest[8 * at : 8 * at + 8], "big")
            sums[at] = sums[at] + word & WORD
            xors[at] ^= word
    low = sums[1] ^ rotated(xors[0])
    high = sums[0] ^ rotated(xors[1])
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


@pytest.mark.parametrize("pairs", [1, 2, 3, 40])
def test_it_is_what_the_rules_say(pairs: int) -> None:
    chance = random.Random(pairs)
    for _ in range(50):
        words = [chance.randbytes(chance.choice([0, 1, 9, 255, 256])) for _ in range(2 * pairs)]
        assert content_id(words) == plainly(words)
