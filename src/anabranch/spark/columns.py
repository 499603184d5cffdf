"""Converts entries into the columns of a schema, and handles values that do not fit.

Seven names are reserved and made from the entry itself; every other column holds the value of the
field of that name (or of the one `fieldMapping` gives it), cast from its text. A cast that fails
follows `mode`, with the meanings that Spark's CSV and JSON readers gave the three words. A column
that is not requested costs nothing: the parser skips it.

The schemas are those of Arrow. This module uses neither Spark nor sockets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import AnabranchError
from anabranch.spark.entries import Entries
from anabranch.spark.layout import RESERVED
from anabranch.spark.options import ReadOptions

DEFAULT_SCHEMA: Final = (
    "stream string, region string, id string, ts timestamp, seq bigint, position bigint, "
    "fields array<struct<field:binary,value:binary>>"
)
"""The schema of a read without a given schema, in the notation of Spark."""

CORRUPT: Final = "_corrupt_record"
"""Holds corrupt records without an option, as in Spark's JSON and CSV readers."""

_TS_MAX: Final = (2**63 - 1) // 1000  # the last millisecond that fits into Spark's microseconds
_ZONE: Final = r"[T ].*(Z|[+-]\d{2}(:?\d{2})?)$"
_WITH_POWER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]{1,9}")
_DIGITS_MAX: Final = 38  # of a decimal
_FAR_YEAR: Final = r"^([+-][0-9]{4,6}|[0-9]{5,6})-"
_CYCLE_DAYS: Final = 146_097
_DAY_US: Final = 86_400_000_000


class ColumnError(AnabranchError):
    """A column, or with FAILFAST a value, that cannot be converted; the text names it."""


@dataclass(frozen=True)
class Projection:
    """The columns of a read, checked once, then applied to every run of entries."""

    schema: pa.Schema
    mode: str = "PERMISSIVE"
    corrupt_column: str | None = None
    field_mapping: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises `ColumnError` for a schema that no stream can fill."""
        for column in self.schema:
            if column.name == self.corrupt_column:
                if not pa.types.is_string(column.type):
                    raise ColumnError(f"column {column.name} holds corrupt records: make it string")
            elif column.name in RESERVED:
                if not _RESERVED_TYPES[column.name](column.type):
                    raise ColumnError(
                        f"column {column.name} is reserved; leave it out or give it the type of "
                        f"the default schema ({DEFAULT_SCHEMA}). A field of that name is read with "
                        f'fieldMapping={{"another_name": "{column.name}"}}'
                    )
            elif _caster(column.type) is None:
                raise ColumnError(
                    f"column {column.name} cannot be of type {column.type}: read it as string and "
                    "convert it in Spark (from_json, cast)"
                )
        unknown = set(self.field_mapping) - {each.name for each in self.schema}
        if unknown:
            raise ColumnError(f"fieldMapping names columns that the schema lacks: {unknown}")

    @classmethod
    def of(cls, schema: pa.Schema, options: ReadOptions) -> Self:
        """The columns of a schema, by the options of a read."""
        corrupt, mapping = options.corrupt_column, options.field_mapping
        if corrupt is None and CORRUPT in schema.names and CORRUPT not in mapping:
            corrupt = CORRUPT
        return cls(schema, options.mode, corrupt, mapping)

    @property
    def payload(self) -> list[pa.Field]:
        """The columns that come from fields."""
        return [
            each
            for each in self.schema
            if each.name not in RESERVED and each.name != self.corrupt_column
        ]

    def batches(
        self, entries: Entries, stream: str, region: str, bytes_max: int
    ) -> Iterator[pa.RecordBatch]:
        """All entries as batches of at most about `bytes_max` bytes; raises `ColumnError`."""
        whole = self.batch(entries, stream, region)
        count = whole.num_rows
        rows = max(count * bytes_max // max(whole.nbytes, 1), 1)
        for first in range(0, count, rows):
            yield whole.slice(first, rows)

    def batch(self, entries: Entries, stream: str, region: str) -> pa.RecordBatch:
        """All entries as one batch."""
        payload = self.payload
        names = [self.field_mapping.get(each.name, each.name).encode() for each in payload]
        columns: dict[str, pa.Array] = {}
        bad = np.zeros(len(entries), np.bool_)
        for column, values in zip(payload, entries.values(names) if names else [], strict=True):
            cast = _caster(column.type)
            assert cast is not None
            columns[column.name], wrong = _cast(values, column.type, cast)
            if wrong is not None:
                if self.mode == "FAILFAST":
                    raise ColumnError(_complaint(entries, int(wrong.argmax()), column, values))
                bad |= wrong
        for name in self.schema.names:
            if name == self.corrupt_column:
                columns[name] = _corrupt(entries, bad)
            elif name in RESERVED:
                columns[name] = _reserved(
                    name, self.schema.field(name).type, entries, stream, region
                )
        for column in self.schema:
            if not column.nullable and columns[column.name].null_count:
                row = int(np.asarray(columns[column.name].is_null()).argmax())
                raise ColumnError(
                    f"column {column.name} is declared NOT NULL, but entry {_id(entries, row)} "
                    "has no value for it"
                )
        batch = pa.RecordBatch.from_arrays(
            [columns[name] for name in self.schema.names], schema=self.schema
        )
        if self.mode == "DROPMALFORMED" and bad.any():
            return batch.filter(pa.array(~bad))
        return batch


# ---------------------------------------------------------------------------------------- reserved

_RESERVED_TYPES: Final[dict[str, Callable[[pa.DataType], bool]]] = {
    "stream": pa.types.is_string,
    "region": pa.types.is_string,
    "id": pa.types.is_string,
    "ts": pa.types.is_timestamp,
    "seq": pa.types.is_int64,
    "position": pa.types.is_int64,
    "fields": lambda kind: (
        pa.types.is_list(kind)
        and pa.types.is_struct(kind.value_type)
        and [(each.name, each.type) for each in kind.value_type]
        == [("field", pa.binary()), ("value", pa.binary())]
    ),
}


def _reserved(name: str, kind: pa.DataType, entries: Entries, stream: str, region: str) -> pa.Array:
    match name:
        case "stream":
            return pa.repeat(pa.scalar(stream), len(entries))
        case "region":
            return pa.repeat(pa.scalar(region), len(entries))
        case "id":
            ms = pa.array(entries.ms).cast(pa.string())
            return pc.binary_join_element_wise(ms, pa.array(entries.seq).cast(pa.string()), "-")
        case "ts":
            far = entries.ms > _TS_MAX
            return pa.array(np.where(far, 0, entries.ms).view(np.int64) * 1000, kind, mask=far)
        case "seq":
            return pa.array(entries.seq.view(np.int64))
        case "position":
            if entries.positions is None:
                return pa.nulls(len(entries), pa.int64())
            return pa.array(entries.positions)
    offsets, names, values = entries.fields()
    inner = kind.value_type
    pairs = pa.StructArray.from_arrays([names, values], fields=[inner.field(0), inner.field(1)])
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pairs, type=kind)


# ----------------------------------------------------------------------------------------- casting

_Cast = Callable[[pa.Array, pa.DataType], pa.Array]


def _of_text(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values.cast(pa.string()).cast(kind)


def _of_integer_text(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """With a plus sign or without; Arrow takes 0x10 for a number, and Spark does not."""
    text = values.cast(pa.string())
    if any(pc.any(pc.starts_with(text, sign)).as_py() for sign in ("0x", "0X")):
        raise pa.ArrowInvalid("hexadecimal digits")
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        return pc.replace_substring_regex(text, r"^\+([0-9]+)$", r"\1").cast(kind)


def _of_decimal_text(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Digits beyond the scale are rounded, halves away from zero, as Spark does.

    Arrow returns wrong numbers for some values that are too large, so it gets only smaller ones.
    """
    text = values.cast(pa.string())
    powers = pc.match_substring_regex(text, "[eE]")
    if pc.any(powers).as_py():
        plain = [_without_power(each) for each in text.filter(powers).to_pylist()]
        text = pc.replace_with_mask(text, powers.fill_null(False), pa.array(plain, pa.string()))
    elif (pc.max(pc.binary_length(text)).as_py() or 0) + kind.scale < _DIGITS_MAX:
        with suppress(pa.ArrowInvalid):
            return text.cast(kind)
    text = pc.replace_substring_regex(text, "^([+-]?)0+([0-9])", r"\1\2")
    whole = max(kind.precision - kind.scale, 1)
    if pc.any(pc.match_substring_regex(text, rf"^[+-]?[0-9]{{{whole + 1}}}")).as_py():
        raise pa.ArrowInvalid("too large")
    # The first digit beyond the scale decides; further digits do not matter.
    cut = rf"^([+-]?[0-9]*\.[0-9]{{{kind.scale + 1}}})[0-9]+$"
    wide = pc.replace_substring_regex(text, cut, r"\1").cast(pa.decimal256(76, kind.scale + 1))
    return pc.round(wide, kind.scale, "half_towards_infinity").cast(kind)


def _without_power(text: str) -> str:
    """The number without exponent; no number if it has more digits than any column."""
    if _WITH_POWER.fullmatch(text) is None:
        return ""
    number = Decimal(text)
    if number.is_zero() or number.adjusted() < -_DIGITS_MAX:
        return "0"
    return "" if number.adjusted() > _DIGITS_MAX else format(number, "f")


def _of_timestamp_text(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """ISO 8601; without a zone it is UTC."""
    text = values.cast(pa.string())
    if kind.tz is None:
        return text.cast(kind)
    zoned = pc.match_substring_regex(text, _ZONE)
    bare = pc.if_else(zoned, pa.scalar(None, pa.string()), text)
    plain = bare.cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    return pc.coalesce(pc.if_else(zoned, text, pa.scalar(None, pa.string())).cast(kind), plain)


def _of_any_year(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Times, and years with a sign or more digits than Arrow reads.

    The calendar repeats after 400 years, so such a year is read as one from 2000 to 2399.
    """
    is_date = pa.types.is_date32(kind)
    read = _of_text if is_date else _of_timestamp_text
    text = values.cast(pa.string())
    if not pc.any(pc.match_substring_regex(text, _FAR_YEAR)).as_py():
        return read(text, kind)
    near: list[str | None] = []
    cycles: list[int] = []
    for each in text.to_pylist():
        found = re.match(_FAR_YEAR, each or "")
        cycle, year = divmod(int(found[1]), 400) if found else (5, 0)
        near.append(f"{2000 + year}{each[found.end(1) :]}" if found else each)
        cycles.append(cycle - 5)
    number, size = (pa.int32(), 1) if is_date else (pa.int64(), _DAY_US)
    further = pc.multiply_checked(pa.array(cycles, number), pa.scalar(_CYCLE_DAYS * size, number))
    return pc.add_checked(read(pa.array(near, pa.string()), kind).cast(number), further).cast(kind)


_POWER: Final = "[eE][+-]?[0-9]+"
_NUMBER: Final = rf"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)({_POWER})?$"
_DATE: Final = "^[+-]?[0-9]{4,6}-[0-9]{2}-[0-9]{2}"


def _shape(kind: pa.DataType) -> str:
    """What any value of a type looks like; nearly all that cannot be cast look otherwise."""
    if pa.types.is_integer(kind):
        return rf"^[+-]?0*[0-9]{{1,{19 if pa.types.is_int64(kind) else 10}}}$"
    if pa.types.is_decimal(kind):
        return rf"^[+-]?(0*[0-9]{{0,{kind.precision - kind.scale}}}(\.[0-9]*)?|[0-9.]+{_POWER})$"
    if pa.types.is_floating(kind):
        return rf"(?i){_NUMBER}|^[+-]?(inf|infinity|nan)$"
    if pa.types.is_boolean(kind):
        return "(?i)^(true|false|0|1)$"
    if pa.types.is_date32(kind):
        return f"{_DATE}$"
    return _DATE if pa.types.is_timestamp(kind) else ""


def _caster(kind: pa.DataType) -> _Cast | None:
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return lambda values, kind: values.cast(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return _of_any_year
    if pa.types.is_integer(kind):
        return _of_integer_text
    if pa.types.is_decimal(kind):
        return _of_decimal_text
    if pa.types.is_boolean(kind) or pa.types.is_floating(kind):
        return _of_text
    return None


def _cast(values: pa.Array, kind: pa.DataType, cast: _Cast) -> tuple[pa.Array, Any]:
    """The cast values, and which of them could not be cast (None: all could)."""
    try:
        return cast(values, kind), None
    except pa.ArrowInvalid:
        # To find a value that does not fit costs as much as to cast a thousand others.
        coded = values.dictionary_encode()
        words = coded.dictionary
        if shape := _shape(kind):
            fits = pc.match_substring_regex(words, shape)
            words = pc.if_else(fits, words, pa.scalar(None, words.type))
        result = pa.concat_arrays(_cast_what_can_be(words, kind, cast)).take(coded.indices)
        return result, np.asarray(result.is_null()) & ~np.asarray(values.is_null())


def _cast_what_can_be(values: pa.Array, kind: pa.DataType, cast: _Cast) -> list[pa.Array]:
    """Halve until single values are left that do not fit; these become null."""
    try:
        return [cast(values, kind)]
    except pa.ArrowInvalid:
        if len(values) == 1:
            return [pa.nulls(1, kind)]
        half = len(values) // 2
        return [
            *_cast_what_can_be(values[:half], kind, cast),
            *_cast_what_can_be(values[half:], kind, cast),
        ]


def _id(entries: Entries, row: int) -> str:
    return f"{int(entries.ms[row])}-{int(entries.seq[row])}"


def _complaint(entries: Entries, row: int, column: pa.Field, values: pa.Array) -> str:
    text = values[row].as_py()[:80].decode("utf-8", "backslashreplace")
    return (
        f"entry {_id(entries, row)}: {text!r} in column {column.name} is no {column.type} "
        "(mode=PERMISSIVE makes such values null, DROPMALFORMED leaves the entries out)"
    )


def _corrupt(entries: Entries, bad: Any) -> pa.Array:
    """For entries with values that did not fit, all fields as a JSON array of pairs."""
    texts: list[str | None] = [None] * len(entries)
    if bad.any():
        offsets, names, values = entries.fields()
        for row in np.flatnonzero(bad).tolist():
            own = slice(int(offsets[row]), int(offsets[row + 1]))
            pairs = [
                [part.decode("utf-8", "backslashreplace") for part in pair]
                for pair in zip(names[own].to_pylist(), values[own].to_pylist(), strict=True)
            ]
            texts[row] = json.dumps(pairs, ensure_ascii=False)
    return pa.array(texts, pa.string())
