"""The roles of a table's columns in entries.

The driver decides the roles, the tasks use them. This module does not import Arrow, because Spark
plans and commits a write in separate processes, which get no rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from anabranch.errors import AnabranchError
from anabranch.spark.options import WriteOptions

RESERVED: Final = ("stream", "region", "id", "ts", "seq", "position", "fields")
"""Columns that a read makes; with a column ``fields`` they are no payload."""

ROLES: Final = ("stream", "fields")
"""Of these, the ones that a write takes for no field."""


class EncodeError(AnabranchError):
    """A column or a row that cannot become an entry; the text names it and a remedy."""


def mistakable(names: Iterable[str], own: Collection[str], chosen: Collection[str]) -> str:
    """The problem of a name that differs from one of `own` in case only; empty if there is none.

    Names in `chosen` are meant as they are.
    """
    for name in names:
        if name.lower() in own and name not in own and name not in chosen:
            return (
                f"column {name} is not {name.lower()}, to which Spark's queries would take it: "
                f'write it in lower case, or with fieldMapping={{"{name}": "{name}"}} if '
                "you want the field of that name"
            )
    return ""


@dataclass(frozen=True, slots=True)
class Layout:
    """The role of each column."""

    payload: tuple[tuple[str, bytes], ...]
    """Column and field name, in order; empty if the fields come from column ``fields``."""
    has_stream: bool
    has_id: bool
    null_value: bytes | None
    """The text for NULL; None leaves the field out."""
    lane: str | None = None
    """The column of lanes: rows of each value are counted separately."""

    @classmethod
    def of(cls, columns: Sequence[str], options: WriteOptions) -> Self:
        """The layout of a table with these columns; raises `EncodeError`."""
        mapping = options.field_mapping
        keep_ids, null_value = options.preserve_ids, options.null_value
        if options.lane_column is not None and options.lane_column not in columns:
            raise EncodeError(
                f"option laneColumn names {options.lane_column!r}; the columns are "
                f"{_listed(columns)}"
            )
        if keep_ids and "id" not in columns:
            raise EncodeError(
                f"preserveIds=true takes the IDs from column id; the columns are {_listed(columns)}"
            )
        if unknown := [each for each in mapping if each not in columns]:
            raise EncodeError(f"option fieldMapping names {_listed(unknown)}, no columns of these")
        if problem := mistakable(columns, ROLES, mapping):
            raise EncodeError(problem)
        if "fields" in columns and "fields" not in mapping:
            payload = [each for each in columns if each in mapping or each not in RESERVED]
            if payload:
                raise EncodeError(
                    f"column fields holds the whole entry, so {_listed(payload)} has no place: "
                    "drop the one or the other"
                )
        else:
            roles = {"stream", "id"} if keep_ids else {"stream"}
            payload = [each for each in columns if each in mapping or each not in roles]
            if not payload:
                raise EncodeError(f"there is no column to write among {_listed(columns)}")
        return cls(
            payload=tuple((each, mapping.get(each, each).encode()) for each in payload),
            has_stream="stream" in columns and "stream" not in mapping,
            has_id=keep_ids,
            null_value=None if null_value is None else null_value.encode(),
            lane=options.lane_column,
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
