"""Pictures of what jobs find: the lag of consumer groups, and windows, over time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds

from anabranch.spark.plots.plotting import Curve, Panel, colours_of, draw, span

_LINES_MAX: Final = 21
_STYLES: Final = ("-", "--", ":", "-.")
_KEYS_MAX: Final = 7


@dataclass(frozen=True, slots=True)
class Sample:
    """One group at one moment."""

    at_ms: int
    """By the server's clock."""
    region: str
    """The name of the server; empty without one."""
    stream: str
    group: str
    lag: int | None
    """Entries that were not delivered yet. None: the server does not know (Redis, after XDEL)."""
    pending: int
    """Entries that were delivered and not acknowledged."""
    pending_age_ms: int | None
    """Since the time in the lowest pending ID; None if nothing is pending."""
    pending_idle_ms: int | None
    """Since that entry was last delivered."""

    @property
    def name(self) -> str:
        """Stream, group and region."""
        return f"{self.stream} {self.group}" + (f" at {self.region}" if self.region else "")


def draw_lag(samples: Sequence[Sample], path: Path) -> None:
    """Two panels over the same time: entries not delivered, and entries not acknowledged.

    A region has one colour in all its lines, or each group has one if there is one region. A lag
    that the server does not know leaves a gap in its line. Only the groups that lag most have a
    line if there are many. Raises `PlotError`.
    """
    groups: defaultdict[str, list[Sample]] = defaultdict(list)
    for each in samples:
        groups[each.name].append(each)
    worst = {name: max(each.lag or 0 for each in some) for name, some in groups.items()}
    names = sorted(sorted(groups, key=lambda name: (-worst[name], name))[:_LINES_MAX])
    regions = {each.region for each in samples}
    keys = {name: groups[name][0].region if len(regions) > 1 else name for name in names}
    colours = colours_of(regions if len(regions) > 1 else names)
    drawn: Counter[str] = Counter()
    lags, pending = [], []
    for name in names:
        some, key = groups[name], keys[name]
        times = [datetime.fromtimestamp(each.at_ms / 1000, UTC) for each in some]
        look = (colours[key], _STYLES[drawn[key] % len(_STYLES)])
        drawn[key] += 1
        lags.append(Curve(name, times, [each.lag for each in some], *look))
        pending.append(Curve(name, times, [each.pending for each in some], *look))
    moments = [datetime.fromtimestamp(each.at_ms / 1000, UTC) for each in samples]
    of = (len(names), len(groups), "groups")
    title = _title("Lag of consumer groups", moments, "none was seen", of)
    panels = [
        Panel("Waiting to be delivered", "entries", lags),
        Panel("Delivered, not yet acknowledged", "entries", pending),
    ]
    draw(path, title, panels)


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
    moments = [row[name] for row in rows for name in ("window_start", "window_end")]
    of = (len(names), len(totals), "keys")
    title = _title(f"Windows of {size}", moments, "none is closed yet", of)
    made = [Panel(name, unit, _lines(rows, sorted(names), column)) for column, name, unit in panels]
    draw(path, title, made)


def _title(what: str, moments: Sequence[datetime], without: str, of: tuple[int, int, str]) -> str:
    shown, present, kind = of
    when = f", {span(min(moments), max(moments))}" if moments else f": {without}"
    return what + when + (f" ({shown} of {present} {kind})" if shown < present else "")


def _name(row: dict[str, Any]) -> str:
    if "key" not in row:
        return ""
    return "(none)" if row["key"] is None else str(row["key"])


def _lines(rows: list[dict[str, Any]], names: list[str], column: str) -> list[Curve]:
    colours = colours_of(names)
    lines = []
    for name in names:
        times: list[datetime] = []
        values: list[float | None] = []
        end = None
        for row in rows:
            if row["name"] != name:
                continue
            if end is not None and row["window_start"] > end:  # windows without entries
                times.append(end)
                values.append(None)
            times.append(row["window_start"])
            values.append(float(row[column] or 0))
            end = row["window_end"]
        lines.append(Curve(name, times, values, colours[name]))
    return lines
