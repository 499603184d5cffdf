"""The idempotent ID that ``XADD ... IDMPAUTO`` derives from an entry's field/value pairs.

Same function as Redis 8.6+, so producer tables can be exchanged through DUMP payloads: per pair
XXH3-128 of field, field length (8 bytes, little-endian) and value; pairs are combined by sum and
by xor, so their order does not matter and a pair given twice does not cancel itself out.
"""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

__all__ = ["content_id"]

_MASK = (1 << 64) - 1


def _rotl1(value: int) -> int:
    return ((value << 1) | (value >> 63)) & _MASK


def content_id(pairs: Sequence[bytes]) -> bytes:
    """The 16-byte ID of ``[field, value, field, value, ...]``."""
    sum_low = sum_high = xor_low = xor_high = 0
    for index in range(0, len(pairs), 2):
        field = pairs[index]
        digest = xxhash.xxh3_128_intdigest(
            field + len(field).to_bytes(8, "little") + pairs[index + 1]
        )
        low, high = digest & _MASK, digest >> 64
        sum_low += low
        sum_high += high
        xor_low ^= low
        xor_high ^= high
    out_low = (sum_low & _MASK) ^ _rotl1(xor_high)
    out_high = (sum_high & _MASK) ^ _rotl1(xor_low)
    return out_low.to_bytes(8, "little") + out_high.to_bytes(8, "little")
