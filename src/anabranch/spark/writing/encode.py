"""Encodes rows of Arrow batches for the server: field parts, and whole XADD commands.

A *field part* is an entry's wire bytes without ID: ``*4``, ``$6``, ``sensor``, ``$2``, ``s1`` ...,
each followed by CRLF. Parts are joined column by column with Arrow kernels, never row by row; the
result keeps the end of every part, so that a run of rows is a slice. This module uses neither Spark
nor sockets.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.spark.writing.layout import EncodeError, Layout

_CRLF: Final = pa.scalar(b"\r\n", pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())


# -------------------------------------------------------------------------------------- the rows


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Encoded rows in the order of the table, with stream, lane and ID of each."""

    bodies: pa.BinaryArray
    """The bulk strings of names and values, without the ``*2n`` in front."""
    counts: np.ndarray[Any, np.dtype[np.int64]]
    """Fields of each row."""
    streams: pa.BinaryArray | None
    """The ``stream`` column; NULL means the stream that the option names."""
    ids: pa.BinaryArray | None
    lanes: pa.BinaryArray | None = None
    """The lane of each row: rows of each lane of a stream are counted separately."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.bodies)

    def take(self, indices: pa.Array) -> EncodedRows:
        """Some rows, in the order of the indices."""
        return self._chosen(indices.to_numpy(), lambda column: column.take(indices))

    def slice(self, start: int, stop: int) -> EncodedRows:
        """Rows start ... stop - 1; nothing is copied."""
        return self._chosen(slice(start, stop), lambda column: column[start:stop])

    def _chosen(
        self, which: Any, chosen: Callable[[pa.BinaryArray], pa.BinaryArray]
    ) -> EncodedRows:
        columns = (self.streams, self.ids, self.lanes)
        return EncodedRows(
            chosen(self.bodies),
            self.counts[which],
            *(None if each is None else chosen(each) for each in columns),
        )

    def parts(self) -> RowBytes:
        """The field parts, for AB.IMPORT."""
        heads = _per_count(self.counts, lambda count: b"*%d\r\n" % (2 * count))
        return RowBytes.of(_joined(heads, self.bodies))

    def commands(
        self, before: bytes, words: int, ids: Sequence[pa.BinaryArray | bytes]
    ) -> RowBytes:
        """One XADD per row: ``before``, which is ``words`` bulk strings, ``ids`` and the fields.

        Of ``ids`` an array has a word for each row, bytes are the same in all.
        """
        total = words + len(ids)
        heads = _per_count(self.counts, lambda count: b"*%d\r\n%b" % (total + 2 * count, before))
        own: list[Any] = []
        for each in ids:
            if isinstance(each, bytes):
                own.append(pa.scalar(bulk(each), pa.binary()))
            else:
                own += [pa.scalar(b"$", pa.binary()), _lengths(each), _CRLF, each, _CRLF]
        return RowBytes.of(_joined(heads, *own, self.bodies))


@dataclass(frozen=True, slots=True)
class RowBytes:
    """Byte strings of consecutive rows, one behind the other."""

    data: memoryview
    ends: np.ndarray[Any, np.dtype[np.int64]]
    """The beginning of each part, and the end of the last one: one more than parts."""

    @classmethod
    def none(cls) -> Self:
        """No part at all."""
        return cls(memoryview(b""), np.zeros(1, np.int64))

    @classmethod
    def of(cls, array: pa.BinaryArray) -> Self:
        """Views on an Arrow array without NULLs."""
        if not len(array):
            return cls.none()
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
        # Arrow 26 shows signed bytes, which never equal those of a bytes object from 128 on.
        return cls(memoryview(data or b"").cast("B"), ends.astype(np.int64))

    def __len__(self) -> int:
        """Number of parts."""
        return len(self.ends) - 1

    def slice(self, start: int, stop: int) -> RowBytes:
        """Parts start ... stop - 1; nothing is copied."""
        return RowBytes(self.data, self.ends[start : stop + 1])

    def reach(self, start: int, rows: int, nbytes: int) -> int:
        """The end of a run from ``start`` within the limits; at least one row."""
        limit = int(np.searchsorted(self.ends, self.ends[start] + nbytes, side="right")) - 1
        return max(start + 1, min(start + rows, limit, len(self)))

    def between(self, start: int, stop: int) -> memoryview:
        """The bytes of a run."""
        return self.data[int(self.ends[start]) : int(self.ends[stop])]

    def each(self, start: int, stop: int) -> Iterator[memoryview]:
        """The parts of a run, one by one."""
        edges = self.ends[start : stop + 1].tolist()
        for left, right in pairwise(edges):
            yield self.data[left:right]

    def crc(self, start: int, stop: int, before: int) -> int:
        """CRC-32 of a run, going on from the one before."""
        return zlib.crc32(self.between(start, stop), before)

    def payload(self, start: int, stop: int) -> bytes:
        """A run in the form of AB.IMPORT: count, ends, parts."""
        ends = (self.ends[start + 1 : stop + 1] - self.ends[start]).astype("<u4")
        return b"".join(
            ((stop - start).to_bytes(4, "little"), ends.tobytes(), self.between(start, stop))
        )


def bulk(word: bytes) -> bytes:
    """A word of a command, as it is sent."""
    return b"$%d\r\n%b\r\n" % (len(word), word)


def runs_by_stream(rows: EncodedRows, default: str | None) -> Iterator[tuple[bytes, EncodedRows]]:
    """The rows of each stream, in their order; raises `EncodeError` where a row names none."""
    if not len(rows):
        return
    if rows.streams is None:
        if default is None:
            raise EncodeError("where to? Give option stream, or a column called stream")
        yield default.encode(), rows
        return
    streams = rows.streams
    if streams.null_count:
        if default is None:
            raise EncodeError("column stream is NULL in a row, and option stream is not given")
        streams = streams.fill_null(default.encode())
    grouped = streams.dictionary_encode()
    names = grouped.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], rows
        return
    codes = grouped.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    sorted_rows = rows.take(pa.array(order))
    edges = np.searchsorted(codes[order], np.arange(len(names) + 1)).tolist()
    for name, left, right in zip(names, edges, edges[1:], strict=False):
        yield name, sorted_rows.slice(left, right)


def runs_by_lane(rows: EncodedRows) -> Iterator[tuple[str | None, int, int]]:
    """Runs of neighbouring rows of one lane: lane, start and end. None: no lanes."""
    if rows.lanes is None:
        yield None, 0, len(rows)
        return
    coded = rows.lanes.dictionary_encode()
    names = coded.dictionary.to_pylist()
    codes = coded.indices.to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for start, stop in pairwise(edges):
        if start < stop:
            yield names[codes[start]].decode(), start, stop


# ---------------------------------------------------------------------------------------- encode


def encode(batch: pa.RecordBatch, layout: Layout) -> EncodedRows:
    """All rows of a batch; raises `EncodeError`."""
    if layout.payload:
        bodies, counts = _of_columns(batch, layout)
    else:
        bodies, counts = _of_pairs(batch.column("fields"), layout.null_value)
    if len(counts) and not counts.all():
        raise EncodeError(
            f"row {int(np.argmin(counts))} of a batch has no field, as all its values are NULL: an "
            "entry needs one. Filter such rows, or give option nullValue"
        )
    return EncodedRows(
        bodies,
        counts,
        _text(batch.column("stream"), "stream") if layout.has_stream else None,
        _whole(batch, "id", "preserveIds") if layout.has_id else None,
        _whole(batch, layout.lane, "laneColumn", least=0) if layout.lane is not None else None,
    )


def _whole(batch: pa.RecordBatch, name: str, option: str, least: int = 1) -> pa.BinaryArray:
    """A column with a text in all rows, of so many bytes at least."""
    column = _text(batch.column(name), name)
    if column.null_count or (len(column) and pc.min(pc.binary_length(column)).as_py() < least):
        what = "NULL or empty" if least else "NULL"
        raise EncodeError(f"column {name} is {what} in a row; {option} needs a value in all")
    return column


def _of_columns(
    batch: pa.RecordBatch, layout: Layout
) -> tuple[pa.BinaryArray, np.ndarray[Any, np.dtype[np.int64]]]:
    counts = np.full(batch.num_rows, len(layout.payload), np.int64)
    pieces: list[Any] = []
    pending = b""  # constant bytes of neighbouring columns are joined once
    for column, field in layout.payload:
        values = _text(batch.column(column), column)
        if layout.null_value is not None:
            values = values.fill_null(layout.null_value)
        head = bulk(field) + b"$"
        if values.null_count:
            piece = _joined(head, _lengths(values), _CRLF, values, _CRLF)
            pieces += [pa.scalar(pending, pa.binary()), piece.fill_null(b"")]
            counts -= values.is_null().to_numpy(zero_copy_only=False)
            pending = b""
        else:
            pieces += [pa.scalar(pending + head, pa.binary()), _lengths(values), _CRLF, values]
            pending = b"\r\n"
    return _joined(*pieces, pending), counts


def _of_pairs(
    column: pa.ListArray, null_value: bytes | None
) -> tuple[pa.BinaryArray, np.ndarray[Any, np.dtype[np.int64]]]:
    """Column ``fields``: a list of (field, value), repeats and order kept."""
    kind = column.type
    if not (
        (pa.types.is_list(kind) or pa.types.is_large_list(kind))
        and pa.types.is_struct(kind.value_type)
        and [each.name for each in kind.value_type] == ["field", "value"]
    ):
        raise EncodeError(
            f"column fields must be array<struct<field:binary,value:binary>>, and is {kind}"
        )
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    pairs = column.flatten()
    names = _text(pc.struct_field(pairs, "field"), "fields.field")
    values = _text(pc.struct_field(pairs, "value"), "fields.value")
    if names.null_count:
        raise EncodeError("column fields has a pair whose field is NULL: a field needs a name")
    if null_value is not None:
        values = values.fill_null(null_value)
    dollar = pa.scalar(b"$", pa.binary())
    items = _joined(
        *(dollar, _lengths(names), _CRLF, names, _CRLF),
        *(dollar, _lengths(values), _CRLF, values, _CRLF),
    )
    edges = np.concatenate(([0], np.cumsum(sizes)))
    if items.null_count:
        kept = np.concatenate(([0], np.cumsum(items.is_valid().to_numpy(zero_copy_only=False))))
        sizes = kept[edges[1:]] - kept[edges[:-1]]
        items = items.fill_null(b"")
    lists = pa.ListArray.from_arrays(pa.array(edges, pa.int32()), items)
    return pc.binary_join(lists, _NOTHING), sizes


def _joined(*pieces: Any) -> pa.BinaryArray:
    """Row by row one behind the other; NULL where a piece is NULL."""
    whole = [pa.scalar(each, pa.binary()) if isinstance(each, bytes) else each for each in pieces]
    return pc.binary_join_element_wise(*whole, _NOTHING)


def _lengths(values: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_length(values).cast(pa.string()).cast(pa.binary())


def _per_count(counts: np.ndarray[Any, np.dtype[np.int64]], head: Any) -> Any:
    """What depends on the number of fields alone: nearly always the same for all rows."""
    if len(counts) and counts.min() == counts.max():
        return pa.scalar(head(int(counts[0])), pa.binary())
    different, places = np.unique(counts, return_inverse=True)
    heads = pa.array([head(int(each)) for each in different], pa.binary())
    return heads.take(pa.array(places))


# --------------------------------------------------------------------------------- values as text


_DAY_US: Final = 86_400_000_000
_DAYS_MAX: Final = 10_968_000  # from 1970: its years have 16 bits with sign
_CAST_BY_ARROW: Final = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean),
    *(pa.types.is_integer, pa.types.is_null),
)


def _text(column: pa.Array, name: str) -> pa.BinaryArray:
    """Bytes as they are, anything else as text, as Spark's ``cast(... as string)`` writes it.

    A time stamp is written in UTC with ``Z``, because readers do not know the time zone of the
    session that wrote it.
    """
    kind = column.type
    if pa.types.is_binary(kind):
        return column
    if pa.types.is_large_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_floating(kind):
        column = _floating(column)
    elif pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        column = _signed(column, name)
    elif pa.types.is_decimal(kind):
        column = _decimals(column)
    elif not any(is_kind(kind) for is_kind in _CAST_BY_ARROW):
        raise EncodeError(f"column {name} is {kind}, which has no text form: use to_json first")
    return column.cast(pa.string()).cast(pa.binary())


def _floating(column: pa.Array) -> pa.Array:
    """Java's spelling: always a point, an exponent below 0.001 and from ten millions on."""
    size = pc.abs(column)
    is_plain = pc.or_(
        pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)), pc.equal(size, 0.0)
    )
    odd = pc.invert(pc.fill_null(is_plain, fill_value=True))
    text = column.cast(pa.string())
    pointed = pc.binary_join_element_wise(text, ".0", "")
    plain = pc.if_else(pc.match_substring(text, "."), text, pointed)
    spelled = [_java(each) for each in text.filter(odd).to_pylist()]
    return pc.replace_with_mask(plain, odd, pa.array(spelled, pa.string()))


def _java(text: str) -> str:
    """A number in Arrow's shortest spelling, in Java's with exponent."""
    named = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text)
    if named is not None:
        return named
    mantissa, _, power = f"{Decimal(text).normalize():E}".partition("E")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}E{int(power)}"


def _signed(column: pa.Array, name: str) -> pa.Array:
    """Years above 9999 have a sign. Arrow has no text, or a wrong one, for years of more bits."""
    is_date = pa.types.is_date32(column.type)
    if is_date:
        days = column.cast(pa.int32())
    else:
        moments = column.cast(pa.timestamp("us", column.type.tz))
        days = pc.divide(moments.cast(pa.int64()), _DAY_US)
    if pc.any(pc.greater(pc.abs(days), _DAYS_MAX)).as_py():
        raise EncodeError(
            f"column {name} has a time before the year -28000 or after 32000, which cannot be "
            "written: cast it to string first"
        )
    text = column.cast(pa.string()) if is_date else _moments(column)
    return pc.replace_substring_regex(text, r"^([0-9]{5,}-)", r"+\1")


def _moments(column: pa.Array) -> pa.Array:
    zone = column.type.tz
    text = pc.cast(column.cast(pa.timestamp("us", zone and "UTC")), pa.string())
    text = pc.utf8_rtrim(pc.utf8_rtrim(pc.utf8_rtrim(text, "Z"), "0"), ".")
    if not zone:
        return text
    return pc.binary_join_element_wise(text, pa.scalar("Z"), pa.scalar(""))


def _decimals(column: pa.Array) -> pa.Array:
    text = column.cast(pa.string())
    if not pc.any(pc.match_substring(text, "E")).as_py():
        return text
    return pa.array(
        [None if each is None else format(each, "f") for each in column.to_pylist()], pa.string()
    )
