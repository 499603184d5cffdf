"""The idempotent ID that ``XADD ... IDMPAUTO`` derives from an entry's field/value pairs.

Same function as Redis 8.6+, so producer tables can be exchanged through DUMP payloads: per pair
XXH3-128 of field, field length (8 bytes, little-endian) and value; pairs are combined by sum and
by xor, so their order does not matter and a pair given twice does not cancel itself out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, read_i64_be, write_i64_le
from xxhash import xxh3_128_digest

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

_HALF: Final = 0xFFFF_FFFF
_SIGN_OF_HALF: Final = 0x8000_0000
_BELOW_TOP: Final = 1 << 62
_LENGTHS: Final = [length.to_bytes(8, "little") for length in range(256)]


def content_id(words: list[bytes], start: int = 0) -> bytes:
    """The 16-byte ID of ``[field, value, field, value, ...]``, which begin at ``start``.

    Digests are two signed words. Sums are kept in two halves, so that they fit into registers.
    """
    high_upper: i64 = 0
    high_lower: i64 = 0
    low_upper: i64 = 0
    low_lower: i64 = 0
    high_xor: i64 = 0
    low_xor: i64 = 0
    for index in range(start, len(words), 2):
        field = words[index]
        size = len(field)
        length = _LENGTHS[size] if size < 256 else size.to_bytes(8, "little")
        digest: bytes = xxh3_128_digest(b"%b%b%b" % (field, length, words[index + 1]))
        high: i64 = read_i64_be(digest, 0)
        low: i64 = read_i64_be(digest, 8)
        high_upper += high >> 32
        high_lower += high & _HALF
        low_upper += low >> 32
        low_lower += low & _HALF
        high_xor ^= high
        low_xor ^= low
    # The words of the xor change places, each rotated left by one.
    both = BytesWriter()
    write_i64_le(both, _sum_of(low_upper, low_lower) ^ _rotated(high_xor))
    write_i64_le(both, _sum_of(high_upper, high_lower) ^ _rotated(low_xor))
    return both.getvalue()


def _sum_of(upper: i64, lower: i64) -> i64:
    """The signed word of two halves; what is above its 64 bits is left out."""
    upper += lower >> 32
    upper = ((upper & _HALF) ^ _SIGN_OF_HALF) - _SIGN_OF_HALF
    return upper << 32 | (lower & _HALF)


def _rotated(word: i64) -> i64:
    """A signed word rotated left by one bit."""
    lowest: i64 = 1 if word < 0 else 0
    sign: i64 = -2 if word & _BELOW_TOP else 0
    return sign << 62 | (word & (_BELOW_TOP - 1)) << 1 | lowest
