"""A picture of the results of `windows`: one line for each key."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds

from anabranch.spark.plotting import Line, Panel, colours_of, draw, span

__all__ = ["draw_windows"]

_KEYS_MAX: Final = 7


def draw_windows(directory: Path, path: Path, size: str) -> None:
    """Entries of each window by its beginning, and below the sums of values if there are any.

    Only the seven keys with most entries have a line. `size`: of a window, for the title. Raises
    `PlotError`.
    """
    files = sorted(map(str, directory.glob("*.parquet")))
    rows = ds.dataset(files).to_table().sort_by("window_start").to_pylist() if files else []
    totals: Counter[str] = Counter()
    for row in rows:
        row["name"] = _name(row)
        totals[row["name"]] += row["count"]
    names = sorted(totals, key=lambda name: (-totals[name], name))[:_KEYS_MAX]
    panels = [("count", "Entries", "entries")]
    if any(row.get("sum") is not None for row in rows):
        panels.append(("sum", "Sum of the values", "sum"))
    title = f"Windows of {size}"
    if rows:
        title += f", {span(rows[0]['window_start'], max(row['window_end'] for row in rows))}"
    if len(totals) > len(names):
        title += f" ({len(names)} of {len(totals)} keys)"
    made = [Panel(name, unit, _lines(rows, sorted(names), column)) for column, name, unit in panels]
    draw(path, title, made)


def _name(row: dict[str, Any]) -> str:
    if "key" not in row:
        return ""
    return "(none)" if row["key"] is None else str(row["key"])


def _lines(rows: list[dict[str, Any]], names: list[str], column: str) -> list[Line]:
    colours = colours_of(names)
    lines = []
    for name in names:
        mine = [row for row in rows if row["name"] == name]
        values = [float(row[column] or 0) for row in mine]
        lines.append(Line(name, [row["window_start"] for row in mine], values, colours[name]))
    return lines
