"""What an entry adds to the weight of its block, by which ``stream-node-max-bytes`` ends one."""

from __future__ import annotations

from itertools import repeat
from operator import add, rshift

__all__ = ["entry_weight", "entry_weights"]


def entry_weight(fields_bytes: int, words: int) -> int:
    """What an entry adds to the weight of its block.

    ``fields_bytes`` are those of ``*2n $field $value ...`` in its fragment, ``words`` is their 2n.
    That is roughly what a Redis node would spend: two bytes of framing where a word on the wire
    carries six; and of several fields a node keeps the names, half of the bytes, once for all its
    entries. XADD has this formula inline, in terms of its own.
    """
    return fields_bytes - 4 if words == 2 else (fields_bytes + 4 - 4 * words) >> 1


def entry_weights(sizes: list[int], words: int | list[int]) -> list[int]:
    """The same for many entries, of as many words each or of a number for each."""
    if isinstance(words, list):
        return list(map(entry_weight, sizes, words))
    if words == 2:
        return [size - 4 for size in sizes]
    return list(map(rshift, map(add, sizes, repeat(4 - 4 * words)), repeat(1)))
