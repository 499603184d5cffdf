"""The idempotent ID that ``XADD ... IDMPAUTO`` derives from an entry's field/value pairs.

Same function as Redis 8.6+, so producer tables can be exchanged through DUMP payloads: per pair
XXH3-128 of field, field length (8 bytes, little-endian) and value; pairs are combined by sum and
by xor, so their order does not matter and a pair given twice does not cancel itself out.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, read_i64_be, write_i64_le
from xxhash import xxh3_128_digest

from anabranch.version import IS_COMPILED

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

_MASK: Final = (1 << 64) - 1
_LENGTHS: Final = [length.to_bytes(8, "little") for length in range(256)]
_halves: Final = Struct(">qq").unpack
_joined: Final = Struct("<QQ").pack


def content_id(words: list[bytes], start: int = 0) -> bytes:
    """The 16-byte ID of ``[field, value, field, value, ...]``, which begin at ``start``.

    Digests are two signed words. In machine code sums leave out what is above 64 bits; otherwise
    the mask drops it at the end.
    """
    high_sum: i64 = 0
    low_sum: i64 = 0
    high_xor: i64 = 0
    low_xor: i64 = 0
    for index in range(start, len(words), 2):
        field = words[index]
        size = len(field)
        length = _LENGTHS[size] if size < 256 else size.to_bytes(8, "little")
        value = words[index + 1]
        if IS_COMPILED:  # fewer instructions than the other way, which is faster interpreted
            digest: bytes = xxh3_128_digest(b"%b%b%b" % (field, length, value))
            high: i64 = read_i64_be(digest, 0)
            low: i64 = read_i64_be(digest, 8)
        else:
            high, low = _halves(xxh3_128_digest(field + length + value))
        high_sum += high
        low_sum += low
        high_xor ^= high
        low_xor ^= low
    # The words of the xor change places, each rotated left by one: doubled, and its sign comes back
    high_sign: i64 = 1 if high_xor < 0 else 0
    low_sign: i64 = 1 if low_xor < 0 else 0
    low_out: i64 = low_sum ^ (high_xor + high_xor + high_sign)
    high_out: i64 = high_sum ^ (low_xor + low_xor + low_sign)
    if IS_COMPILED:
        both = BytesWriter()
        write_i64_le(both, low_out)
        write_i64_le(both, high_out)
        return both.getvalue()
    return _joined(low_out & _MASK, high_out & _MASK)
