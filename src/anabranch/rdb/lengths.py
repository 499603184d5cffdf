"""The numbers and strings every RDB value is made of, read from a cursor and written.

A length is 1, 2, 5 or 9 bytes, big-endian; the upper two bits of the first byte choose. The fourth
choice is no length but a string in a special form: a small integer (8, 16 or 32 bits,
little-endian) or LZF. The cursor is all a reader needs: DUMP payloads and whole RDB files differ
only in what surrounds the values.
"""

from __future__ import annotations

from typing import Final

from anabranch.rdb import lzf
from anabranch.rdb.errors import PayloadFormatError, PayloadSizeError
from anabranch.scheduling import Steps

EXPANDED_BYTES_MIN: Final = 256 << 20
EXPANDED_RATIO: Final = 8
"""By default the LZF strings of one cursor may together expand to 256 MB, or to 8 times the bytes
it reads if that is more. LZF can expand 88 times, and decoded elements take a few times more again;
real streams of a size that matters stay far below 8."""

ITEM_BYTES: Final = 64
"""What a decoded item takes beside its text, for :meth:`Cursor.spend`."""

_LENGTH_32: Final = 0x80
_LENGTH_64: Final = 0x81
_SPECIAL: Final = 0xC0
_SPECIAL_LZF: Final = 0xC3
_INTEGER_TEXT_MAX: Final = 11  # len("-2147483648")


class Cursor:
    """A position in bytes, and methods to read there. Reading beyond the end is a format error.

    ``expanded_max`` limits the sum of all decompressed strings; None: see :data:`EXPANDED_RATIO`.
    ``decoded_max`` limits what decoders :meth:`spend`; None: no limit.
    """

    __slots__ = ("data", "decoded_left", "end", "expanded_left", "position")

    def __init__(
        self,
        data: bytes,
        position: int = 0,
        end: int | None = None,
        expanded_max: int | None = None,
        decoded_max: int | None = None,
    ) -> None:
        """Begin at ``position``; nothing is read from ``end`` on (default: the end of ``data``)."""
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end
        if expanded_max is None:
            expanded_max = max(EXPANDED_BYTES_MIN, EXPANDED_RATIO * self.remaining)
        self.expanded_left = expanded_max
        self.decoded_left = decoded_max

    @property
    def remaining(self) -> int:
        """Bytes not yet read."""
        return self.end - self.position

    def spend(self, size: int) -> None:
        """The decoded value takes so many bytes of memory more."""
        if self.decoded_left is not None:
            self.decoded_left -= size
            if self.decoded_left < 0:
                raise PayloadSizeError("takes too much memory for its size")

    def raw(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        start = self.position
        after = start + size
        if after > self.end:
            raise PayloadFormatError("cut short")
        self.position = after
        return self.data[start:after]

    def byte(self) -> int:
        """The next byte."""
        position = self.position
        if position >= self.end:
            raise PayloadFormatError("cut short")
        self.position = position + 1
        return self.data[position]

    def time_ms(self) -> int:
        """A time, or anything else that is a signed little-endian 64-bit integer."""
        return int.from_bytes(self.raw(8), "little", signed=True)

    def raw_id(self) -> int:
        """An entry ID as 16 big-endian bytes (keys of nodes and pending entries)."""
        return int.from_bytes(self.raw(16), "big")

    def length(self) -> int:
        """A length, or any other unsigned integer that is written like one."""
        first = self.byte()
        if first < _SPECIAL:
            return self._length(first)
        raise PayloadFormatError("a string where a length should be")

    def count(self, item_bytes_min: int) -> int:
        """A length that announces so many items; refused if they cannot fit in what remains."""
        count = self.length()
        if count * item_bytes_min > self.remaining:
            raise PayloadFormatError("more items announced than bytes left")
        return count

    def string(self) -> bytes:
        """A string in any form; one stored as integer comes back as its decimal text."""
        first = self.byte()
        if first < _SPECIAL:
            return self.raw(self._length(first))
        if first < _SPECIAL_LZF:
            number = int.from_bytes(self.raw(1 << (first & 3)), "little", signed=True)
            return b"%d" % number
        if first > _SPECIAL_LZF:
            raise PayloadFormatError("unknown string form")
        return lzf.decompress(*self._packed())

    def string_steps(self) -> Steps[bytes]:
        """Read a string in short steps: a long one may be compressed."""
        position = self.position
        if position < self.end and self.data[position] == _SPECIAL_LZF:
            self.position = position + 1
            return (yield from lzf.decompress_steps(*self._packed()))
        return self.string()

    def _packed(self) -> tuple[bytes, int]:
        """The rest of an LZF string: compressed, and its decompressed size."""
        packed_size = self.length()
        size = self.length()
        if size > self.expanded_left:
            raise PayloadSizeError("expands too far")
        self.expanded_left -= size
        return self.raw(packed_size), size

    def _length(self, first: int) -> int:
        if first < 0x40:
            return first
        if first < 0x80:
            return (first & 0x3F) << 8 | self.byte()
        if first == _LENGTH_32:
            return int.from_bytes(self.raw(4), "big")
        if first == _LENGTH_64:
            return int.from_bytes(self.raw(8), "big")
        raise PayloadFormatError("unknown length form")


def length_bytes(value: int) -> bytes:
    """``value`` (unsigned, at most 64 bits) in the shortest form."""
    if value < 0x40:
        return bytes((value,))
    if value < 0x4000:
        return (0x4000 | value).to_bytes(2, "big")
    if value < 1 << 32:
        return bytes((_LENGTH_32,)) + value.to_bytes(4, "big")
    return bytes((_LENGTH_64,)) + value.to_bytes(8, "big")


def string_bytes(value: bytes) -> bytes:
    """``value`` as Redis writes it without compression: as an integer if it is one, else plain."""
    size = len(value)
    if 0 < size <= _INTEGER_TEXT_MAX:
        integer = _integer_form(value)
        if integer is not None:
            return integer
    return length_bytes(size) + value


def _integer_form(value: bytes) -> bytes | None:
    digits = value[1:] if value[:1] == b"-" else value
    if not digits.isdigit():
        return None
    number = int(value)
    if b"%d" % number != value:  # leading zeros, "-0"
        return None
    for code, size in enumerate((1, 2, 4)):
        if -(1 << (8 * size - 1)) <= number < 1 << (8 * size - 1):
            return bytes((_SPECIAL | code,)) + number.to_bytes(size, "little", signed=True)
    return None
