"""Converts entries into the columns of a schema, and handles values that do not fit.

Seven names are reserved and made from the entry itself; every other column holds the value of the
field of that name (or of the one `fieldMapping` gives it), cast from its text. A cast that fails
follows `mode`, with the meanings that Spark's CSV and JSON readers gave the three words. A column
that is not requested costs nothing: the parser skips it.

The schemas are those of Arrow. This module uses neither Spark nor sockets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import AnabranchError
from anabranch.spark.decoding.casting import can_cast, cast
from anabranch.spark.decoding.pages import Entries
from anabranch.spark.options import ReadOptions
from anabranch.spark.reading.holes import INSERT, Removal, Spans
from anabranch.spark.writing.layout import RESERVED, mistakable

DEFAULT_SCHEMA: Final = (
    "stream string, region string, id string, ts timestamp, seq bigint, position bigint, "
    "fields array<struct<field:binary,value:binary>>"
)
"""The schema of a read without a given schema, in the notation of Spark."""

CHANGE: Final = "_change_type"
"""The column of a read with ``changes`` that says what happened, as in Delta's change feed."""

CORRUPT: Final = "_corrupt_record"
"""Holds corrupt records without an option, as in Spark's JSON and CSV readers."""


def default_schema(options: Mapping[str, str]) -> str:
    """The schema of a read with these options that names no column."""
    given = {name.lower(): value.strip().lower() for name, value in options.items()}
    return DEFAULT_SCHEMA + (f", {CHANGE} string" if given.get("changes") == "true" else "")


Names: TypeAlias = "str | pa.Array"
"""The stream or the region of all entries, or of each."""

_SIGNED_MAX: Final = 2**63 - 1  # what Spark has for microseconds, and for the halves of an ID


class ColumnError(AnabranchError):
    """A column, or with FAILFAST a value, that cannot be converted; the text names it."""


@dataclass(frozen=True)
class Projection:
    """The columns of a read, checked once, then applied to every run of entries."""

    schema: pa.Schema
    mode: str = "PERMISSIVE"
    corrupt_column: str | None = None
    field_mapping: Mapping[str, str] = field(default_factory=dict)
    changes: bool = False
    """Whether there is a column `CHANGE`, and rows of removed entries."""

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
            elif self.changes and column.name == CHANGE:
                if not pa.types.is_string(column.type):
                    raise ColumnError(f"column {CHANGE} says what happened: make it string")
            elif not can_cast(column.type):
                raise ColumnError(
                    f"column {column.name} cannot be of type {column.type}: read it as string and "
                    "convert it in Spark (from_json, cast)"
                )
        self._check_names()
        if self.changes:
            self._check_removals()

    def _check_names(self) -> None:
        names = self.schema.names
        if not names:
            raise ColumnError("the schema has no column: name one, such as seq bigint")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ColumnError(f"the schema has two columns {twice[0]}: give one another name")
        if unknown := set(self.field_mapping) - {each.name for each in self.payload}:
            raise ColumnError(
                f"fieldMapping names column {min(unknown)}, which the schema lacks, or which no "
                "field fills: add a column of another name for that field"
            )
        chosen = [*self.field_mapping, self.corrupt_column or ""]
        if problem := mistakable(names, (*RESERVED, CHANGE, CORRUPT), chosen):
            raise ColumnError(problem)

    @classmethod
    def of(cls, schema: pa.Schema, options: ReadOptions) -> Self:
        """The columns of a schema, by the options of a read."""
        corrupt, mapping = options.corrupt_column, options.field_mapping
        if corrupt is None and CORRUPT in schema.names and CORRUPT not in mapping:
            corrupt = CORRUPT
        return cls(schema, options.mode, corrupt, mapping, options.changes)

    @property
    def payload(self) -> list[pa.Field]:
        """The columns that come from fields."""
        return [
            each
            for each in self.schema
            if each.name not in RESERVED
            and each.name != self.corrupt_column
            and not (self.changes and each.name == CHANGE)
        ]

    def batches(
        self, entries: Entries, stream: Names, region: Names, bytes_max: int, removed: Spans = ()
    ) -> Iterator[pa.RecordBatch]:
        """All entries, but those at positions in `removed`, as batches of about `bytes_max` bytes.

        Raises `ColumnError`.
        """
        whole = self.batch(entries, stream, region, removed)
        count = whole.num_rows
        rows = max(count * bytes_max // max(whole.nbytes, 1), 1)
        for first in range(0, count, rows):
            yield whole.slice(first, rows)

    def batch(
        self, entries: Entries, stream: Names, region: Names, removed: Spans = ()
    ) -> pa.RecordBatch:
        """All entries, but those at positions in `removed`, as one batch."""
        payload = self.payload
        names = [self.field_mapping.get(each.name, each.name).encode() for each in payload]
        columns: dict[str, pa.Array] = {}
        bad = np.zeros(len(entries), np.bool_)
        for column, values in zip(payload, entries.values(names) if names else [], strict=True):
            columns[column.name], wrong = cast(values, column.type)
            if wrong is not None:
                if self.mode == "FAILFAST":
                    raise ColumnError(_complaint(entries, int(wrong.argmax()), column, values))
                bad |= wrong
        for name in self.schema.names:
            if name == self.corrupt_column:
                columns[name] = _corrupt(entries, bad)
            elif self.changes and name == CHANGE:
                columns[name] = pa.repeat(pa.scalar(INSERT), len(entries))
            elif name in RESERVED:
                columns[name] = _reserved(
                    name, self.schema.field(name).type, entries, stream, region
                )
        kept = ~bad if self.mode == "DROPMALFORMED" else np.ones(len(entries), np.bool_)
        if removed:
            kept &= outside(removed, entries.positions)
        for column in self.schema:
            if not column.nullable and columns[column.name].null_count:
                lacking = np.asarray(columns[column.name].is_null()) & kept
                if lacking.any():
                    raise ColumnError(
                        f"column {column.name} is declared NOT NULL, but entry "
                        f"{_id(entries, int(lacking.argmax()))} has no value for it"
                    )
        batch = pa.RecordBatch.from_arrays(
            [columns[name] for name in self.schema.names], schema=self.schema
        )
        return batch if kept.all() else batch.filter(pa.array(kept))

    def check_time_only(self) -> None:
        """Raise `ColumnError` if a row cannot have a time and nothing else."""
        if self._lacks(("id", "ts"), ("ts",)):
            raise ColumnError(
                "with frontierInterval there are rows that have a time and no entry: the schema "
                "needs the columns ts and id, and all others must allow NULL. Leave out such rows "
                'after withWatermark: where("id IS NOT NULL OR ts IS NULL")'
            )

    def _lacks(self, names: Sequence[str], filled: Sequence[str]) -> bool:
        """Whether one of these columns is missing, or one that is not filled is required."""
        required = {each.name for each in self.schema if not each.nullable}
        return not set(names).issubset(self.schema.names) or not required.issubset(filled)

    def time_only(self, ms: int) -> pa.RecordBatch:
        """One row with this time in column ``ts``, and NULL elsewhere."""
        return self._rows(1, {"ts": pa.array([ms * 1000])})

    def _rows(self, count: int, values: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """So many rows with these values, and NULL in all other columns."""
        columns = [
            values[each.name].cast(each.type) if each.name in values else pa.nulls(count, each.type)
            for each in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _check_removals(self) -> None:
        """Raise `ColumnError` if a row cannot be that of a removed entry."""
        if self._lacks((CHANGE, "position"), (CHANGE, *_OF_REMOVED)):
            raise ColumnError(
                "with changes=true there are rows of removed entries, which have stream, region, "
                f"position and {CHANGE}, and no more: the schema needs the columns position and "
                f"{CHANGE}, and all others must allow NULL"
            )

    def removed(self, removal: Removal) -> Iterator[pa.RecordBatch]:
        """A row for each position of removed entries."""
        for first in range(removal.first, removal.stop, _REMOVED_ROWS):
            positions = np.arange(first, min(first + _REMOVED_ROWS, removal.stop))
            same = {"stream": removal.stream, "region": removal.region, CHANGE: removal.kind}
            values = {name: pa.repeat(text, len(positions)) for name, text in same.items()}
            yield self._rows(len(positions), {"position": pa.array(positions), **values})


# ---------------------------------------------------------------------------------------- reserved

_OF_REMOVED: Final = ("stream", "region", "position")
_REMOVED_ROWS: Final = 1 << 16  # of one batch

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


def _reserved(
    name: str, kind: pa.DataType, entries: Entries, stream: Names, region: Names
) -> pa.Array:
    match name:
        case "stream" | "region":
            place = stream if name == "stream" else region
            return pa.repeat(pa.scalar(place), len(entries)) if isinstance(place, str) else place
        case "id":
            halves = [pa.array(half).cast(pa.string()) for half in entries.ids]
            return pc.binary_join_element_wise(*halves, "-")
        case "ts" | "seq":
            half = entries.ids[name == "seq"]
            unit = 1000 if name == "ts" else 1
            far = half > _SIGNED_MAX // unit
            if far.any():
                return pa.array(np.where(far, 0, half).view(np.int64) * unit, kind, mask=far)
            return pa.array(half.view(np.int64) * unit).cast(kind)
        case "position":
            if entries.positions is None:
                return pa.nulls(len(entries), pa.int64())
            return pa.array(entries.positions)
    offsets, names, values = entries.fields()
    inner = kind.value_type
    pairs = pa.StructArray.from_arrays([names, values], fields=[inner.field(0), inner.field(1)])
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pairs, type=kind)


def outside(spans: Spans, positions: Any) -> Any:
    """Which positions are in none of these spans."""
    ends = np.array(spans, np.int64).ravel()
    return np.searchsorted(ends, positions, "right") % 2 == 0


# ------------------------------------------------------------------------------------------ faults


def _id(entries: Entries, row: int) -> str:
    return "-".join(str(half[row]) for half in entries.ids)


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
