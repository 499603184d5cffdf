"""Derives from filters which streams, IDs and positions must be read.

Spark applies every filter itself, so a range may contain more than a filter accepts, but never
less. Entries are in the order of their IDs within a region: filters on `ts`, `seq` and
`id` become the least and the greatest ID that can match.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from anabranch.spark.offsets import parse_id

__all__ = ["Stretch"]

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SEQ_MAX: Final = (1 << 64) - 1
_NAMES: Final = ("stream", "region")
_NUMBERS: Final = ("ts", "seq", "position")

Id = tuple[int, int]


class Stretch:
    """The names and ranges that can match all filters."""

    def __init__(self) -> None:
        """Without filters everything can match."""
        self._names: dict[str, set[Any]] = {}
        self._least: dict[str, int] = {}  # by column, the least accepted value
        self._most: dict[str, int] = {}
        self._ids: set[Id] | None = None

    def add(self, column: str, given: Filter) -> None:
        """Add a filter on one of the columns that a read makes, if it can be used."""
        values = _values(given)
        if column in _NAMES:
            if isinstance(given, EqualTo | In):
                self._names[column] = self._names.get(column, set(values)) & set(values)
        elif column == "id":
            if isinstance(given, EqualTo | In):
                found = {parse_id(each) for each in values if _is_id(each)}
                self._ids = found if self._ids is None else self._ids & found
        elif column in _NUMBERS:
            self._add_numbers(column, given, [_number(each) for each in values])

    def _add_numbers(self, column: str, given: Filter, values: list[int | None]) -> None:
        numbers = [each for each in values if each is not None]
        if not numbers or len(numbers) < len(values):
            return
        least, most = min(numbers), max(numbers)
        if isinstance(given, GreaterThan | GreaterThanOrEqual | EqualTo | In):
            self._least[column] = max(self._least.get(column, least), least)
        if isinstance(given, LessThan | LessThanOrEqual | EqualTo | In):
            self._most[column] = min(self._most.get(column, most), most)

    def has(self, column: str, name: str) -> bool:
        """Whether entries of that stream or region can match."""
        return column not in self._names or name in self._names[column]

    @property
    def is_empty(self) -> bool:
        """Nothing can match."""
        low, high = self.least_id, self.greatest_id
        return self._ids == set() or (high is not None and high < (low or (0, 0)))

    @property
    def least_id(self) -> Id | None:
        """The least ID that can match; None if any can."""
        bounds = [min(self._ids)] if self._ids else []
        if "ts" in self._least and self._least["ts"] >= 0:
            bounds.append((self._least["ts"], max(self._least.get("seq", 0), 0)))
        return max(bounds, default=None)

    @property
    def greatest_id(self) -> Id | None:
        """The greatest ID that can match; None if any can."""
        bounds = [max(self._ids)] if self._ids else []
        if "ts" in self._most:
            # Sequence numbers of 2**63 and above are negative in the column: without a least one
            # they are below any greatest.
            bounded = "seq" in self._most and self._least.get("seq", -1) >= 0
            seq = max(self._most["seq"], 0) if bounded else _SEQ_MAX
            bounds.append((self._most["ts"], seq))
        return min(bounds, default=None)

    def positions(self, low: int, high: int) -> tuple[int, int]:
        """The positions from `low` to below `high` that can match."""
        low = max(low, self._least.get("position", low))
        return low, min(high, self._most.get("position", high) + 1)


def _values(given: Filter) -> tuple[Any, ...]:
    if isinstance(given, In):
        return tuple(given.value)
    return (getattr(given, "value", None),)


def _is_id(value: object) -> bool:
    """Whether a text is an ID in the form of the column; other texts cannot match."""
    if not isinstance(value, str):
        return False
    ms, _, seq = value.partition("-")
    return all(each.isascii() and each.isdigit() and each == str(int(each)) for each in (ms, seq))


def _number(value: object) -> int | None:
    """A filter's literal: whole milliseconds of a time (rounded down), or the number itself."""
    if isinstance(value, dt.datetime):
        zoned = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return (zoned - _EPOCH) // dt.timedelta(milliseconds=1)
    return value if isinstance(value, int) else None
