"""The common parts of both kinds of file: a name with a position, and a header.

::

    magic | version | lowest reader | features | position | XXH3-64 of all before
      8        2           2             4          8                8

All integers are little-endian. ``features`` are bits a reader must know to read the file; a reader
older than the lowest one leaves it untouched.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from anabranch.oplog.errors import CorruptLogError, NewerFormatError

_KNOWN_FEATURES: Final = 0
_LOWEST_READER: Final = 1
_HEADER: Final = struct.Struct("<8sHHIQ")
_CHECKSUM: Final = struct.Struct("<Q")
HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size


class FileHeader(NamedTuple):
    """What a header says, sound or not."""

    magic: bytes
    version: int
    lowest_reader: int
    features: int
    position: int


def glance(data: bytes) -> FileHeader:
    """The fields of a header, unchecked; missing bytes count as 0."""
    return FileHeader._make(_HEADER.unpack(data[: _HEADER.size].ljust(_HEADER.size, b"\0")))


class FileKind:
    """A kind of files in a data directory: log files, or snapshots."""

    def __init__(
        self,
        what: str,
        magic: bytes,
        prefix: str,
        suffix: str,
        version: int,
    ) -> None:
        """``what`` is the name of the kind for error texts: "this is no ..."."""
        self.magic = magic
        self.version = version
        self._what = what
        self._prefix = prefix
        self._suffix = suffix

    def name(self, position: int) -> str:
        """The name of the file of a position; names sort as positions do."""
        return f"{self._prefix}{position:020d}{self._suffix}"

    def position_of(self, name: str) -> int | None:
        """The position in a file's name; None for files of other kinds."""
        if not (name.startswith(self._prefix) and name.endswith(self._suffix)):
            return None
        digits = name.removeprefix(self._prefix).removesuffix(self._suffix)
        return int(digits) if digits.isdecimal() and digits.isascii() else None

    def header(self, position: int) -> bytes:
        """The header of a new file."""
        header = _HEADER.pack(self.magic, self.version, _LOWEST_READER, 0, position)
        return header + _CHECKSUM.pack(xxh3_64_intdigest(header))

    def read_header(self, data: bytes, name: str) -> int:
        """The position in the header of a file; ``name`` is its name in errors.

        Raises :class:`CorruptLogError` for damage and :class:`NewerFormatError` for a file of a
        newer format.
        """
        if len(data) < HEADER_BYTES:
            raise CorruptLogError(name, 0, "the file is shorter than its header")
        header = glance(data)
        if header.magic != self.magic:
            raise CorruptLogError(name, 0, f"this is no {self._what}")
        (expected,) = _CHECKSUM.unpack_from(data, _HEADER.size)
        found = xxh3_64_intdigest(data[: _HEADER.size])
        if found != expected:
            raise CorruptLogError(
                name, 0, f"the header has checksum {found:016x} instead of {expected:016x}"
            )
        if header.lowest_reader > self.version or header.features & ~_KNOWN_FEATURES:
            raise NewerFormatError(
                f"{name} was written by a newer server (format {header.version}, readable from "
                f"{header.lowest_reader} on, features {header.features:#x}; this one knows format "
                f"{self.version}). Nothing was changed; start the newer version again, or export "
                "the data with it"
            )
        return header.position
