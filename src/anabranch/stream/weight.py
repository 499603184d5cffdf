"""The weight that an entry adds to its block, which ``stream-node-max-bytes`` limits."""

from __future__ import annotations

from typing import Final

_ID_BYTES: Final = 40  # of a fragment: the ID and the framing


def entry_weight(fields_bytes: int, words: int) -> int:
    """The weight that an entry adds to its block.

    ``fields_bytes`` is the length of ``*2n $field $value ...`` in its fragment, ``words`` is their
    2n. The weight is roughly the size in a Redis node: two bytes of framing for the six of a word
    on the wire. If there are several fields, a node stores the names, half of the bytes, once for
    all its entries.
    """
    return fields_bytes - 4 if words == 2 else (fields_bytes + 4 - 4 * words) >> 1


def fragments_bytes(weight: int, count: int) -> int:
    """An estimate of the bytes in the fragments of so many entries with this weight.

    The real size may be twice as large if entries have several fields with long names.
    """
    return weight + count * _ID_BYTES
