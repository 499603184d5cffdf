"""Reads a file in chunks, like :class:`~anabranch.rdb.lengths.Cursor` reads bytes in memory.

Values are skipped and not decoded: only bytes that the caller asked to *keep* stay in memory, up to
a limit. All bytes that were passed are part of the running checksum.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.rdb.crc64 import crc64
from anabranch.rdb.errors import PayloadFormatError, RdbFileError
from anabranch.rdb.lengths import Cursor

TEXT_BYTES_MAX: Final = 512 << 20
"""The longest string that is read at once: Redis's limit for keys."""

_SPECIAL: Final = 0xC0
_LZF: Final = 0xC3


class ChunkReader:
    """A position in a file. Errors are :class:`RdbFileError` with that position."""

    __slots__ = (
        "_base",
        "_buffer",
        "_chunks",
        "_crc",
        "_kept",
        "_kept_from",
        "_position",
        "_room",
    )

    def __init__(self, chunks: Iterable[bytes]) -> None:
        """``chunks`` is the file, in order; it ends with an empty chunk or with the iterable."""
        self._chunks = iter(chunks)
        self._buffer = b""
        self._position = 0
        self._base = 0  # where in the file the buffer begins
        self._crc = 0  # of all before the buffer
        self._kept: list[bytes] | None = None
        self._kept_from = 0
        self._room = 0

    @property
    def offset(self) -> int:
        """The count of bytes passed so far."""
        return self._base + self._position

    def error(self, text: str) -> RdbFileError:
        """An error at this position."""
        return RdbFileError(text, self.offset)

    def crc(self) -> int:
        """The checksum of all bytes passed so far."""
        return crc64(self._buffer[: self._position], self._crc)

    def at_end(self) -> bool:
        """Whether nothing follows."""
        return self._position == len(self._buffer) and not self._fetch()

    # -- keeping ------------------------------------------------------------------------------

    def keep(self, bytes_max: int) -> None:
        """Begin to keep what is passed, unless it becomes more than that many bytes."""
        self._kept = []
        self._kept_from = self._position
        self._room = bytes_max

    def kept(self, prefix: bytes = b"") -> bytes | None:
        """``prefix`` and what was passed since :meth:`keep`; None if that was too much."""
        self._store()
        pieces, self._kept = self._kept, None
        return b"".join((prefix, *(pieces or ()))) if self._room >= 0 else None

    def _store(self) -> None:
        if self._kept is None:
            return
        self._room -= self._position - self._kept_from
        if self._room >= 0:
            self._kept.append(self._buffer[self._kept_from : self._position])
        else:
            self._kept.clear()

    # -- passing ------------------------------------------------------------------------------

    def _fetch(self) -> bool:
        """Replace what has been passed by the next chunk; False at the end of the file."""
        chunk = next(self._chunks, b"")
        if not chunk:
            return False
        position = self._position
        self._store()
        self._kept_from = 0
        self._crc = self.crc()
        self._base += position
        self._buffer = self._buffer[position:] + chunk
        self._position = 0
        return True

    def _more(self) -> None:
        if not self._fetch():
            raise RdbFileError("the file ends early", self._base + len(self._buffer))

    def skip(self, size: int) -> None:
        """Pass ``size`` bytes."""
        while (after := self._position + size) > len(self._buffer):
            size = after - len(self._buffer)
            self._position = len(self._buffer)
            self._more()
        self._position = after

    def byte(self) -> int:
        """The next byte."""
        if self._position >= len(self._buffer):
            self._more()
        position = self._position
        self._position = position + 1
        return self._buffer[position]

    def raw(self, size: int) -> bytes:
        """The next few bytes."""
        while len(self._buffer) - self._position < size:
            self._more()
        start = self._position
        self._position = start + size
        return self._buffer[start : start + size]

    def length(self) -> int:
        """A length, or any other unsigned integer that is written like one."""
        first = self.byte()
        if first >= _SPECIAL:
            raise self.error("a string where a length should be")
        return self._length(first)

    def _length(self, first: int) -> int:
        if first < 0x40:
            return first
        if first < 0x80:
            return (first & 0x3F) << 8 | self.byte()
        if first == 0x80:
            return int.from_bytes(self.raw(4), "big")
        if first == 0x81:
            return int.from_bytes(self.raw(8), "big")
        raise self.error("unknown length form")

    def skip_string(self) -> None:
        """Pass a string in any form."""
        first = self.byte()
        if first < _SPECIAL:
            self.skip(self._length(first))
        elif first < _LZF:
            self.skip(1 << (first & 3))
        elif first == _LZF:
            packed_size = self.length()
            self.length()
            self.skip(packed_size)
        else:
            raise self.error("unknown string form")

    def string(self) -> bytes:
        """A string that may be kept whole: a key, a name."""
        self.keep(TEXT_BYTES_MAX)
        self.skip_string()
        data = self.kept()
        if data is None:
            raise self.error(f"a string of more than {TEXT_BYTES_MAX} bytes")
        try:
            return Cursor(data, expanded_max=TEXT_BYTES_MAX).string()
        except PayloadFormatError as problem:
            raise self.error(str(problem)) from None
