"""Which column of a table plays which part in entries.

The driver decides it, and tasks go by it. Arrow is not imported here: Spark has a write planned and
committed in processes of their own, which see no rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from anabranch.errors import AnabranchError

__all__ = ["RESERVED", "EncodeError", "Layout"]

RESERVED: Final = ("stream", "region", "id", "ts", "seq", "position", "fields")
"""Columns that a read makes; beside ``fields`` they are no payload."""


class EncodeError(AnabranchError):
    """A column or a row that cannot become an entry; the text says which and what to do."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which column plays which part."""

    payload: tuple[tuple[str, bytes], ...]
    """Column and field name, in order; empty if the fields come from column ``fields``."""
    has_stream: bool
    has_id: bool
    token: str | None
    """The column that identifies a row, if there is one."""
    null_value: bytes | None
    """What stands for NULL; None leaves the field out."""
    lane: str | None = None
    """The column by whose values rows of a stream are counted apart, if there is one."""

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        *,
        mapping: Mapping[str, str],
        token: str | None,
        null_value: str | None,
        keep_ids: bool,
        lane: str | None = None,
    ) -> Self:
        """The layout of a table with these columns; raises `EncodeError`."""
        if token is not None and token not in columns:
            raise EncodeError(
                f"option idempotenceColumn names {token!r}; the columns are {_listed(columns)}"
            )
        if keep_ids and "id" not in columns:
            raise EncodeError(
                f"preserveIds=true takes the IDs from column id; the columns are {_listed(columns)}"
            )
        if unknown := [each for each in mapping if each not in columns]:
            raise EncodeError(f"option fieldMapping names {_listed(unknown)}, no columns of these")
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
            token=token,
            null_value=None if null_value is None else null_value.encode(),
            lane=lane,
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
