"""The entries of a block as columns: the field names once, then the values field by field.

Fragments repeat in each entry what a block knows already (the ID) or could know once (the names and
the framing). Columns leave that out, so they take about half of the room when both are compressed.
They are for entries with the same names in the same order: :func:`to_columns` refuses others, and
whatever it could not write again byte for byte.

Columns are, with all numbers little-endian::

    bytes of the schema (2); the schema: of each field bytes of its name (2), the name, a width (1);
    of each field: all sizes of values in so many bytes each, with width 0 one size (2) for all;
    of each field: all values
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from sys import byteorder
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, read_i64_le

from anabranch.compiling import mypyc_attr
from anabranch.stream.packed_ids import WORD_BYTES, WORD_SEQ_BITS, PackedIds
from anabranch.stream.scanning import CR, LF, ScanError, behind, number_at
from anabranch.stream.selecting import Where

if TYPE_CHECKING:
    from mypy_extensions import i64, u8  # an int in a register of the processor, once compiled

_BYTES_END: Final = 1 << 16
"""Fragments and values are smaller, so that sizes and offsets fit into two bytes."""

_WORD_END: Final = 1 << 62
_SEQ_MASK: Final = (1 << WORD_SEQ_BITS) - 1
_FIELDS_MAX: Final = 100
_SCHEMAS_MAX: Final = 64
"""So many schemas are remembered."""
_FEW_BYTES: Final = 24
"""So many bytes are copied one by one, because a slice of them would be an object."""

# Pieces of text that many fragments have.
_TAIL_END: Final = 1000
_TAILS: Final[list[bytes]] = [b"%03d-" % number for number in range(_TAIL_END)]
_FIRST_TAILS: Final[list[bytes]] = [b"%d-" % number for number in range(_TAIL_END)]
_NUMBERS: Final[list[bytes]] = [b"%d" % number for number in range(1 << 12)]
_SIZES_END: Final = 64
"""What stands before a value is remembered for smaller sizes."""

# Of objects, roughly.
_COLUMNS_BYTES: Final = 200
_COLUMN_BYTES: Final = 200


@mypyc_attr(acyclic=True)
class _Texts:
    """Writes what fragments begin with: ``*2``, ``$`` and the size of the ID, the ID."""

    def __init__(self) -> None:
        self._begin: bytes = b""
        self._head_ms: i64 = -1
        self._ends_size: i64 = 0

    def pieces(self, ms: i64, seq: i64) -> tuple[bytes, bytes, bytes]:
        """The text in pieces; neighbours usually share the first one."""
        head_ms = ms // _TAIL_END
        tail = (_TAILS if head_ms else _FIRST_TAILS)[ms - head_ms * _TAIL_END]
        number = _NUMBERS[seq] if seq < len(_NUMBERS) else b"%d" % seq
        ends_size: i64 = len(tail) + len(number)
        if head_ms != self._head_ms or ends_size != self._ends_size:
            self._head_ms = head_ms
            self._ends_size = ends_size
            head = b"%d" % head_ms if head_ms else b""
            self._begin = b"*2\r\n$%d\r\n%b" % (len(head) + ends_size, head)
        return self._begin, tail, number


# -- from fragments -------------------------------------------------------------------------------


def to_columns(
    ids: PackedIds, ends: array[int], data: bytes, field_bytes_max: int = 0
) -> bytes | None:
    """The fragments that end at ``ends`` in ``data`` as columns; None if they cannot be columns.

    Also if fields take more than ``field_bytes_max`` each on average; 0 is no limit.
    """
    if (
        len(data) >= _BYTES_END
        or ids.base_ms >= _WORD_END
        or ids.word_at(len(ids) - 1) >= _WORD_END
        or byteorder != "little"
    ):
        return None
    try:
        return _columns(ids, ends.tolist(), data, field_bytes_max)
    except (ScanError, IndexError):  # an index is past the end if a fragment breaks off
        return None


def _columns(ids: PackedIds, ends: list[int], data: bytes, field_bytes_max: int) -> bytes | None:
    names = _names(data)
    if 0 < field_bytes_max * len(names) * len(ends) < len(data):
        return None
    before = _texts_before(names)
    fields: i64 = len(names)
    base_ms: i64 = ids.base_ms
    words = ids.words
    texts = _Texts()
    sizes = [BytesWriter() for _ in names]
    values = [BytesWriter() for _ in names]
    at: i64 = 0
    word_at: i64 = 0
    end: i64
    for end in ends:
        word = read_i64_le(words, word_at)
        word_at += 8
        begin, tail, number = texts.pieces(base_ms + (word >> WORD_SEQ_BITS), word & _SEQ_MASK)
        at = behind(data, behind(data, behind(data, at, begin), tail), number)
        field: i64 = 0
        while field < fields:
            size, at = _size_at(data, behind(data, at, before[field]))
            write_short(sizes[field], size)
            _copy(values[field], data, at, at + size)
            at += size
            field += 1
        at += len(b"\r\n")
        if at != end or data[at - 2] != CR or data[at - 1] != LF:
            raise ScanError
    schema = BytesWriter()
    packed: list[bytes] = []
    for name, each in zip(names, sizes, strict=True):
        width, plain = _packed_sizes(each.getvalue())
        packed.append(plain)
        write_short(schema, len(name))
        schema.write(name)
        schema.write(width)
    writer = BytesWriter()
    write_short(writer, len(schema))
    writer.write(schema.getvalue())
    writer.write(b"".join(packed))
    for column in values:
        writer.write(column.getvalue())
    return writer.getvalue()


def _names(data: bytes) -> list[bytes]:
    """The names of the first fragment."""
    size, at = _size_at(data, len(b"*2\r\n$"))
    words, at = _size_at(data, at + size + len(b"\r\n*"))
    if not 0 < words <= 2 * _FIELDS_MAX or words % 2:
        raise ScanError
    at -= len(b"\r\n")
    names: list[bytes] = []
    while words:
        size, at = _size_at(data, at + len(b"\r\n$"))
        names.append(data[at : at + size])
        size, at = _size_at(data, at + size + len(b"\r\n$"))
        at += size
        words -= 2
    return names


def _texts_before(names: list[bytes]) -> list[bytes]:
    """What stands between the ID or a value and the size of the next value."""
    texts = [b"\r\n$%d\r\n%b\r\n$" % (len(name), name) for name in names]
    texts[0] = b"\r\n*%d%b" % (2 * len(names), texts[0])
    return texts


def _size_at(data: bytes, at: i64) -> tuple[i64, i64]:
    """A size in decimal digits, and where the bytes begin that have it."""
    size, at = number_at(data, at)
    if size >= _BYTES_END or at + size > len(data):
        raise ScanError
    return size, at


def _packed_sizes(sizes: bytes) -> tuple[bytes, bytes]:
    """The width of a size, and the sizes, which are given in two bytes each."""
    if sizes == sizes[:2] * (len(sizes) // 2):
        return b"\0", sizes[:2]
    high = sizes[1::2]
    if high.count(0) < len(high):
        return b"\2", sizes
    return b"\1", sizes[::2]


def write_short(writer: BytesWriter, number: i64) -> None:
    """Write a number below 2**16 in two bytes, the lower one first."""
    whole: int = number
    low: u8 = whole & 255
    high: u8 = whole >> 8
    writer.append(low)
    writer.append(high)


def _copy(writer: BytesWriter, data: bytes, at: i64, end: i64) -> None:
    if end - at > _FEW_BYTES:
        writer.write(data[at:end])
        return
    while at < end:
        byte: u8 = data[at]
        writer.append(byte)
        at += 1


# -- to fragments ---------------------------------------------------------------------------------


@mypyc_attr(acyclic=True)
class _Column:
    """The values of one field. They are read one after the other from where :meth:`seek` begins."""

    def __init__(
        self,
        name: bytes,
        before: bytes,
        lines: list[bytes],
        data: bytes,
        width: i64,
        sizes_at: i64,
    ) -> None:
        self.name = name
        self._data = data
        self._lines = lines
        self._width: i64 = width
        self._sizes_at: i64 = sizes_at
        self._values_at: i64 = 0
        self._size: i64 = 0 if width else _short_at(data, sizes_at)  # of all values
        # What stands in front of a value, down to its size if that is always the same.
        self._before: bytes = before if width else b"%b%d\r\n" % (before, self._size)
        self._size_at: i64 = sizes_at
        self._at: i64 = 0

    def sizes_end(self, count: i64) -> i64:
        """The offset at which the sizes of so many values end."""
        return self._sizes_at + (count * self._width if self._width else 2)

    def begin(self, values_at: i64, count: i64) -> i64:
        """Say where the first value begins; returns where so many values end."""
        self._values_at = values_at
        self.seek(count)
        return self._at

    def seek(self, index: i64) -> None:
        """Read on from the value with this index."""
        self._at = self._values_at
        if not self._width:
            self._at += index * self._size
            return
        data = self._data
        at = self._sizes_at
        end = self._size_at = at + index * self._width
        values_at = self._at
        while at < end:
            if self._width == 1:
                size: i64 = data[at]
                values_at += size
            else:
                values_at += _short_at(data, at)
            at += self._width
        self._at = values_at

    def _next_size(self) -> i64:
        at = self._size_at
        self._size_at = at + self._width
        if self._width == 1:
            size: i64 = self._data[at]
            return size
        return _short_at(self._data, at)

    def write_next(self, writer: BytesWriter) -> None:
        """Write the next value after its name and size."""
        size = self._size
        line = self._before
        if self._width:
            size = self._next_size()
            if size < _SIZES_END:
                line = self._lines[size]
                if not line:
                    line = self._lines[size] = b"%b%d\r\n" % (self._before, size)
            else:
                line = b"%b%d\r\n" % (line, size)
        writer.write(line)
        end = self._at + size
        _copy(writer, self._data, self._at, end)
        self._at = end

    def select(self, where: Where, low: i64, high: i64, found: set[int]) -> None:
        """Add the indexes in ``[low, high)`` of the values that a condition allows."""
        self.seek(low)
        data = self._data
        wanted = where.value
        least: i64 = len(wanted)
        index = low
        while index < high:
            size = self._next_size() if self._width else self._size
            at = self._at
            self._at = at + size
            if (
                size >= least
                and (size == least or where.is_prefix)
                and data[at : at + least] == wanted
            ):
                found.add(index)
            index += 1


def _short_at(data: bytes, at: i64) -> i64:
    low: i64 = data[at]
    high: i64 = data[at + 1]
    return low | high << 8


@lru_cache(_SCHEMAS_MAX)  # most blocks have the schema of one that was opened before
def _fields_of(schema: bytes) -> list[tuple[bytes, bytes, list[bytes], int]]:
    """Of each field its name, what stands before the sizes of its values, and its width.

    In between the same with the size, by size, as far as it was made before.
    """
    names: list[bytes] = []
    widths: list[int] = []
    at: i64 = 0
    while at < len(schema):
        name_at = at + 2
        at = name_at + _short_at(schema, at)
        names.append(schema[name_at:at])
        widths.append(schema[at])
        at += 1
    return [
        (name, before, [b""] * _SIZES_END, width)
        for name, before, width in zip(names, _texts_before(names), widths, strict=True)
    ]


@mypyc_attr(acyclic=True)
class Columns:
    """The entries of a block as columns. Fragments are made of those that are asked for."""

    def __init__(self, ids: PackedIds, data: bytes, begin: i64 = 0) -> None:
        """:func:`to_columns` was called with the IDs, and has returned what begins in ``data``."""
        self.made = 0
        """How many fragments were made; for the block, which decides when all are worth making."""
        self._ids = ids
        self._data = data
        count: i64 = len(ids)
        schema_at = begin + 2
        at = schema_at + _short_at(data, begin)
        fields: list[_Column] = []
        for name, before, lines, width in _fields_of(data[schema_at:at]):
            field = _Column(name, before, lines, data, width, at)
            at = field.sizes_end(count)
            fields.append(field)
        for field in fields:
            at = field.begin(at, count)
        self._fields = fields

    def nbytes_beside(self, held: object) -> int:
        """Memory of all this, without the IDs, and without the data if they are ``held`` anyway."""
        own = 0 if self._data is held else len(self._data)
        return own + _COLUMNS_BYTES + len(self._fields) * _COLUMN_BYTES

    def whole(self) -> tuple[array[int], bytes]:
        """End offsets and fragments of all entries, as :func:`to_columns` was called with."""
        writer, ends = BytesWriter(), BytesWriter()
        self._write(0, len(self._ids), writer, ends)
        offsets = array("H")
        offsets.frombytes(ends.getvalue())
        return offsets, writer.getvalue()

    def fragments(self, low: int, high: int) -> bytes:
        """The fragments of the entries ``[low, high)``."""
        writer = BytesWriter()
        self._write(low, high, writer, None)
        return writer.getvalue()

    def selected(self, where: Where, low: int, high: int) -> list[int]:
        """The indexes in ``[low, high)`` of entries for which a condition holds."""
        found: set[int] = set()
        for field in self._fields:
            if field.name == where.field:
                field.select(where, low, high, found)
        return sorted(found)

    def _write(self, low: i64, high: i64, writer: BytesWriter, ends: BytesWriter | None) -> None:
        fields = self._fields
        for field in fields:
            field.seek(low)
        words = self._ids.words
        base_ms: i64 = self._ids.base_ms
        texts = _Texts()
        at = low * WORD_BYTES
        while at < high * WORD_BYTES:
            word = read_i64_le(words, at)
            at += WORD_BYTES
            begin, tail, number = texts.pieces(base_ms + (word >> WORD_SEQ_BITS), word & _SEQ_MASK)
            writer.write(begin)
            writer.write(tail)
            writer.write(number)
            for field in fields:
                field.write_next(writer)
            writer.write(b"\r\n")
            if ends is not None:
                write_short(ends, len(writer))
