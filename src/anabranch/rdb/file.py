"""Whole RDB files: from chunks of bytes to keys, one at a time, and back.

::

    REDIS0011 | (opcode ... | type byte, key, value) ... | 255 | CRC-64 of all before

Opcodes describe the following keys (database, deadline, sizes) or stand alone (fields about the
file, function libraries, data of modules). The value of one key is in
memory at a time, and only if it is of a kind that was asked for and not too large.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from anabranch.rdb.chunk_reader import ChunkReader
from anabranch.rdb.crc64 import crc64
from anabranch.rdb.errors import RdbFileError
from anabranch.rdb.kinds import KINDS, MODULE, MODULE_PRELIMINARY, SUPPORTED, module_name
from anabranch.rdb.lengths import length_bytes, string_bytes
from anabranch.rdb.payload import RDB_VERSION
from anabranch.rdb.walk import WALKS, walk_module

_MAGIC: Final = b"REDIS"
_FOREIGN_MAGIC: Final = b"VALKE"
_VERSION_DIGITS: Final = 4
_CHECKSUM_SINCE: Final = 5
_DATABASE_MAX: Final = (1 << 31) - 1

_KEY_META: Final = 243
_SLOT_INFO: Final = 244
_FUNCTION: Final = 245
_FUNCTION_PRELIMINARY: Final = 246
_MODULE_AUX: Final = 247
_IDLE: Final = 248
_FREQUENCY: Final = 249
_AUX: Final = 250
_RESIZE: Final = 251
_EXPIRE_MS: Final = 252
_EXPIRE_S: Final = 253
_SELECT: Final = 254
_END: Final = 255
_LENGTHS: Final = {_SLOT_INFO: 3, _RESIZE: 2, _IDLE: 1}
"""The count of lengths behind these opcodes; they are ignored."""

_SHOWN_BYTES: Final = 60


class FileKey(Struct, frozen=True):
    """One key of a file, with its value still encoded."""

    db: int
    key: bytes
    expire_at_ms: int | None
    kind: str
    """The word of the command TYPE; for a value of a module the name of its type."""
    body: bytes | None
    """Type byte and value; None if not requested or too large."""
    size: int
    """The size of type byte and value in bytes."""
    offset: int
    """The offset of its type byte in the file."""


class RdbFile:
    """A file whose keys are read once, by iterating over this object.

    All errors are :class:`RdbFileError`. The other attributes are complete when the iteration has
    ended. Only then the checksum is verified: until then any key may be damaged.
    """

    def __init__(
        self,
        chunks: Iterable[bytes],
        *,
        kinds: Collection[str] = SUPPORTED,
        value_bytes_max: int,
    ) -> None:
        """Read the header. Values of ``kinds`` are kept up to ``value_bytes_max`` bytes each."""
        self.aux: dict[bytes, bytes] = {}
        """Fields that the writer has added to the file, ``redis-ver`` for example."""
        self.functions = 0
        """The count of skipped function libraries."""
        self.module_data: set[str] = set()
        """Modules whose data, beside or with keys, was skipped."""
        self.has_checksum = False
        self._reader = reader = ChunkReader(chunks)
        self._kinds = kinds
        self._value_bytes_max = value_bytes_max
        self._db = 0
        self._expire_at_ms: int | None = None
        magic = reader.raw(len(_MAGIC))
        if magic == _FOREIGN_MAGIC:
            raise RdbFileError("a file of Valkey 9 or newer, not of Redis", 0)
        if magic != _MAGIC:
            raise RdbFileError("not an RDB file: it does not begin with REDIS", 0)
        digits = reader.raw(_VERSION_DIGITS)
        if not digits.isdigit() or not int(digits):
            raise RdbFileError("no version in the header", len(_MAGIC))
        self.version = int(digits)
        if self.version > RDB_VERSION:
            raise RdbFileError(
                f"RDB version {self.version} is newer than {RDB_VERSION}, the newest known here",
                len(_MAGIC),
            )

    def __iter__(self) -> Iterator[FileKey]:
        """The keys in the file's order."""
        reader = self._reader
        while True:
            offset = reader.offset
            mark = reader.byte()
            if mark in KINDS:
                yield self._key(mark, offset)
                self._expire_at_ms = None
            elif mark == _END:
                self._end()
                return
            elif mark == _FUNCTION_PRELIMINARY:
                raise RdbFileError("functions of a release candidate of Redis 7.0", offset)
            elif not self._opcode(mark):
                raise RdbFileError(f"unknown type or opcode {mark}", offset)

    def _key(self, type_byte: int, offset: int) -> FileKey:
        reader = self._reader
        key = reader.string()
        kind = KINDS[type_byte]
        if type_byte == MODULE_PRELIMINARY:
            raise RdbFileError(
                f"key {_shown(key)}: a module's value from before Redis 4.0, which has no end mark",
                offset,
            )
        start = reader.offset
        body = None
        try:
            if type_byte == MODULE:
                kind = module_name(reader.length())
            kept = kind in self._kinds
            if kept:
                reader.keep(self._value_bytes_max - 1)
            WALKS[type_byte](reader)
            if kept:
                body = reader.kept(bytes((type_byte,)))
        except RdbFileError as problem:
            text = f"in the value of key {_shown(key)} ({kind}): {problem.text}"
            raise RdbFileError(text, problem.offset) from None
        size = 1 + reader.offset - start
        return FileKey(self._db, key, self._expire_at_ms, kind, body, size, offset)

    def _end(self) -> None:
        reader = self._reader
        if self.version >= _CHECKSUM_SINCE:
            expected = reader.crc()
            stored = int.from_bytes(reader.raw(8), "little")
            self.has_checksum = stored != 0
            if stored not in (0, expected):
                raise RdbFileError("the checksum is wrong: the file is damaged", reader.offset - 8)
        if not reader.at_end():
            raise reader.error("more bytes behind the end of the file")

    def _opcode(self, mark: int) -> bool:
        """Read what follows an opcode; False if there is no such opcode."""
        reader = self._reader
        if mark == _SELECT:
            self._db = reader.length()
            if self._db > _DATABASE_MAX:
                raise reader.error("no number of a database")
        elif mark == _EXPIRE_MS:
            self._expire_at_ms = int.from_bytes(reader.raw(8), "little", signed=True)
        elif mark == _EXPIRE_S:
            self._expire_at_ms = 1000 * int.from_bytes(reader.raw(4), "little", signed=True)
        elif mark == _AUX:
            name = reader.string()
            self.aux[name] = reader.string()
        elif mark in _LENGTHS:
            for _ in range(_LENGTHS[mark]):
                reader.length()
        elif mark == _FREQUENCY:
            reader.skip(1)
        elif mark == _FUNCTION:
            reader.skip_string()
            self.functions += 1
        elif mark == _MODULE_AUX:
            self.module_data.add(module_name(reader.length()))
            reader.length()
            reader.length()  # before or after the keys, as a marked integer
            walk_module(reader)
        elif mark == _KEY_META:
            for _ in range(reader.length()):
                reader.skip(4)
                walk_module(reader)
            self.module_data.add("key metadata")
        else:
            return False
        return True


def _shown(key: bytes) -> str:
    return repr(key[:_SHOWN_BYTES])[1:]


_BUFFER_BYTES: Final = 1 << 20


class RdbWriter:
    """A file that is being written, in the forms of Redis: :meth:`write` keys, then :meth:`end`.

    Nothing is written that a server of the version would not know, so Redis can load the file at
    its start.
    """

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
            self._pieces.append(bytes([_AUX]) + string_bytes(name) + string_bytes(value))

    def write(self, db: int, key: bytes, expire_at_ms: int | None, body: bytes) -> None:
        """One key; ``body`` is type byte and value, in forms the file's version knows.

        No key may come twice: Redis refuses to load such a file.
        """
        pieces = self._pieces
        if db != self._db:
            self._db = db
            pieces.append(bytes([_SELECT]) + length_bytes(db))
        if expire_at_ms is not None:
            pieces.append(bytes([_EXPIRE_MS]) + expire_at_ms.to_bytes(8, "little", signed=True))
        pieces += (body[:1], string_bytes(key), body[1:])
        self._buffered += len(key) + len(body)
        if self._buffered >= _BUFFER_BYTES:
            self._flush()

    def end(self) -> None:
        """Write what closes the file."""
        self._pieces.append(bytes([_END]))
        self._flush()
        self._write(self._crc.to_bytes(8, "little"))

    def _flush(self) -> None:
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._buffered = 0
        self._crc = crc64(data, self._crc)
        self._write(data)
