"""The idempotent ID that ``XADD ... IDMPAUTO`` derives from an entry's field/value pairs.

Same function as Redis 8.6+, so producer tables can be exchanged through DUMP payloads: per pair
XXH3-128 of field, field length (8 bytes, little-endian) and value; pairs are combined by sum and
by xor, so their order does not matter and a pair given twice does not cancel itself out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import xxhash

__all__ = ["content_id"]

_MASK: Final = (1 << 64) - 1
_LENGTHS: Final = [length.to_bytes(8, "little") for length in range(256)]


def _rotl1(value: int) -> int:
    """A word of 64 bits, rotated: as twice a number, but a bit that leaves comes back as one."""
    twice = value + value
    return twice if twice <= _MASK else twice - _MASK


def content_id(pairs: Sequence[bytes]) -> bytes:
    """The 16-byte ID of ``[field, value, field, value, ...]``.

    Each digest is one integer of two words. Sums are taken of the low words and of whole digests.
    """
    low = total = xor = 0
    for index in range(0, len(pairs), 2):
        field = pairs[index]
        size = len(field)
        length = _LENGTHS[size] if size < len(_LENGTHS) else size.to_bytes(8, "little")
        digest: int = xxhash.xxh3_128_intdigest(field + length + pairs[index + 1])
        low += digest & _MASK
        total += digest
        xor ^= digest
    out_low = low & _MASK ^ _rotl1(xor >> 64)
    out_high = (total - low >> 64) & _MASK ^ _rotl1(xor & _MASK)
    return (out_high << 64 | out_low).to_bytes(16, "little")
