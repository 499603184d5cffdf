"""Writes whole RDB files: what :mod:`.file` reads, in the forms that Redis writes.

Nothing is written that a server of the version would not know, so Redis can load the file at its
start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from anabranch.rdb.crc64 import crc64
from anabranch.rdb.lengths import length_bytes, string_bytes

_AUX: Final = b"\xfa"
_EXPIRE_MS: Final = b"\xfc"
_SELECT: Final = b"\xfe"
_END: Final = b"\xff"
_BUFFER_BYTES: Final = 1 << 20


class RdbWriter:
    """A file that is being written: :meth:`write` keys, then :meth:`end`."""

    __slots__ = ("_buffered", "_crc", "_db", "_pieces", "_write")

    def __init__(
        self, write: Callable[[bytes], object], rdb_version: int, aux: Mapping[bytes, bytes]
    ) -> None:
        """``write`` takes the file's bytes in order; ``aux`` is what the file says of itself."""
        self._write = write
        self._crc = 0
        self._db: int | None = None
        self._pieces: list[bytes] = [b"REDIS%04d" % rdb_version]
        self._buffered = 0
        for name, value in aux.items():
            self._pieces.append(_AUX + string_bytes(name) + string_bytes(value))

    def write(self, db: int, key: bytes, expire_at_ms: int | None, body: bytes) -> None:
        """One key; ``body`` is type byte and value, in forms the file's version knows.

        No key may come twice: Redis refuses to load such a file.
        """
        pieces = self._pieces
        if db != self._db:
            self._db = db
            pieces.append(_SELECT + length_bytes(db))
        if expire_at_ms is not None:
            pieces.append(_EXPIRE_MS + expire_at_ms.to_bytes(8, "little", signed=True))
        pieces += (body[:1], string_bytes(key), body[1:])
        self._buffered += len(key) + len(body)
        if self._buffered >= _BUFFER_BYTES:
            self._flush()

    def end(self) -> None:
        """Write what closes the file."""
        self._pieces.append(_END)
        self._flush()
        self._write(self._crc.to_bytes(8, "little"))

    def _flush(self) -> None:
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._buffered = 0
        self._crc = crc64(data, self._crc)
        self._write(data)
