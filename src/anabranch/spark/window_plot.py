"""A picture of what `windows` has written to a directory: one line for each key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds

from anabranch.spark.lag_plot import check_plot, colours_of, label_axes

__all__ = ["draw_windows"]

_KEYS_MAX: Final = 7


def draw_windows(directory: Path, path: Path, size: str) -> None:
    """Entries of each window by its beginning, and below the sums of values if there are any.

    Only the seven keys with most entries have a line. `size`: of a window, for the title. Raises
    `PlotError`.
    """
    check_plot(path)
    import matplotlib as mpl  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    files = sorted(map(str, directory.glob("*.parquet")))
    rows = ds.dataset(files).to_table().sort_by("window_start").to_pylist() if files else []
    totals: dict[str, int] = {}
    for row in rows:
        name = _name(row)
        totals[name] = totals.get(name, 0) + row["count"]
    keys = sorted(totals, key=lambda name: (-totals[name], name))[:_KEYS_MAX]
    colours = colours_of(keys)
    panels = [("count", "Entries", "entries")]
    if any(row.get("sum") is not None for row in rows):
        panels.append(("sum", "Sum of the values", "sum"))
    with mpl.rc_context({"svg.hashsalt": "anabranch", "font.size": 10}):
        figure = Figure(figsize=(10, 2.4 + 2 * len(panels)), layout="constrained")
        handles = []
        for axes, (column, title, unit) in zip(
            figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0], panels, strict=True
        ):
            lines = []
            for name in sorted(keys):
                mine = [row for row in rows if _name(row) == name]
                times: list[Any] = [row["window_start"] for row in mine]
                values = [float(row[column] or 0) for row in mine]
                marker = "o" if len(mine) <= 60 else ""
                lines += axes.plot(
                    times, values, label=name, color=colours[name], marker=marker, markersize=3.5
                )
            label_axes(axes, title, unit)
            handles = lines
        said = f"Windows of {size}"
        if rows:
            first, last = rows[0]["window_start"], max(row["window_end"] for row in rows)
            said += f", {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"
        if len(totals) > len(keys):
            said += f" ({len(keys)} of {len(totals)} keys)"
        figure.suptitle(said, fontsize=13, fontweight="bold", x=0.01, ha="left")
        if len(handles) > 1:
            figure.legend(
                handles=handles,
                loc="outside lower left",
                ncols=min(len(handles), 4),
                frameon=False,
                fontsize="small",
            )
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def _name(row: dict[str, Any]) -> str:
    key = row.get("key")
    return "all" if key is None else str(key)
