"""Draws lines over time with matplotlib, in one style for all pictures of this package."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES: Final = (".svg", ".png", ".pdf")

# Distinguishable with colour blindness (Okabe and Ito), without the yellow.
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
_MARKED_MAX: Final = 60  # lines with more points have no markers
_WIDTH: Final = 1.8  # of a line, in points
_BESIDE: Final = 3.0  # how much wider it is for each line that would hide it
_BESIDE_MAX: Final = 12.0
_COLUMNS: Final = 3  # of the legend
_SPAN_MIN_S: Final = 5.0  # whole seconds apart


class PlotError(AnabranchError):
    """No picture can be drawn; the text names what is missing."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Values over time."""

    label: str
    """For the legend; empty: the line is not named there."""
    times: Sequence[datetime]
    values: Sequence[float | None]
    """None leaves a gap."""
    colour: str
    style: str = "-"


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over one axis. Panels of a picture have the same clock."""

    title: str
    unit: str
    lines: Sequence[Curve]


def check_plot(path: Path) -> None:
    """Raise `PlotError` if no picture could be drawn there: before samples are taken for hours."""
    if path.suffix not in SUFFIXES:
        raise PlotError(f"{path}: the name of a plot ends in one of {', '.join(SUFFIXES)}")
    check_matplotlib()


def check_matplotlib() -> None:
    """Raise `PlotError` without matplotlib."""
    try:
        import matplotlib  # noqa: F401, PLC0415 - an extra
    except ImportError:
        raise PlotError(
            'plots are drawn by matplotlib, which is an extra: pip install "anabranch[plot]"'
        ) from None


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name: the same in every picture, unless another name has it there."""
    found: dict[str, int] = {}
    count = len(_COLOURS)
    for name in sorted(set(names)):
        # Regions that have no name are numbers from 1 on.
        first = int(name) - 1 if name.isdecimal() else zlib.crc32(f"region {name}".encode())
        free = [at for at in range(first, first + count) if at % count not in found.values()]
        found[name] = (free or [first])[0] % count
    return {name: _COLOURS[at] for name, at in found.items()}


def span(first: datetime, last: datetime) -> str:
    """From one moment to another, both in UTC; the day once if it is the same."""
    end = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M:%S}"
    return f"{first:%Y-%m-%d %H:%M:%S} to {end} UTC"


def draw(path: Path, title: str, panels: Sequence[Panel]) -> None:
    """Draw panels below each other; the same lines give the same bytes. Raises `PlotError`.

    The legend below all names the lines of the first.
    """
    check_plot(path)
    import matplotlib as mpl  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    named = sum(bool(each.label) for each in panels[0].lines)
    height = 1.8 + 2.2 * len(panels) + 0.2 * (named // _COLUMNS)
    # Names of keys may look like formulas.
    look: dict[Any, Any] = {"svg.hashsalt": "anabranch", "font.size": 10, "text.parse_math": False}
    with mpl.rc_context(look):
        figure = Figure(figsize=(10, height), layout="constrained")
        rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        handles = []
        for axes, panel in zip(rows, panels, strict=True):
            for each, width in zip(panel.lines, _widths(panel.lines), strict=True):
                times: list[Any] = list(each.times)
                (handle,) = axes.plot(
                    times,
                    [float("nan") if value is None else value for value in each.values],
                    color=each.colour,
                    linestyle=each.style,
                    linewidth=width,
                    marker="o",
                    markersize=1.7 + width,
                    markevery=_marked(each.values),
                    clip_on=False,  # markers on the axis are whole
                )
                if panel is panels[0] and each.label:
                    handles.append(handle)
            _label(axes, panel)
        figure.suptitle(title, fontsize=13, fontweight="bold", x=0.01, ha="left")
        if handles:
            # Matplotlib leaves out names that begin with an underscore.
            labels = [each.label for each in panels[0].lines if each.label]
            figure.legend(
                handles,
                [f"\N{ZERO WIDTH SPACE}{each}" if each[0] == "_" else each for each in labels],
                loc="outside lower left",
                ncols=min(len(handles), _COLUMNS),
                handlelength=3.5,
                frameon=False,
                fontsize="small",
            )
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def _widths(lines: Sequence[Curve]) -> list[float]:
    """The width of each line: a line below others at the same place is seen beside them.

    The clocks of servers differ a little, so times are equal in a grid of two hundred places.
    """
    times = [time.timestamp() for each in lines for time in each.times]
    first, size = min(times, default=0.0), (max(times, default=0.0) - min(times, default=0.0)) / 200
    pieces = []
    for each in lines:
        places = [(time.timestamp() - first) / (size or 1.0) for time in each.times]
        grids = [[int(place + shift) for place in places] for shift in (0.0, 0.5)]
        pieces.append(
            {
                (shift, *piece)
                for shift, grid in enumerate(grids)
                for piece in pairwise(zip(grid, each.values, strict=True))
            }
        )
    above = [
        sum(not own.isdisjoint(other) for other in pieces[at:]) for at, own in enumerate(pieces, 1)
    ]
    step = min(_BESIDE, _BESIDE_MAX / max([*above, 1]))
    return [_WIDTH + step * count for count in above]


def _marked(values: Sequence[float | None]) -> list[int]:
    """The points with markers: all if they are few, otherwise those that are no part of a line."""
    padded = [None, *values, None]
    return [
        at
        for at in range(len(values))
        if len(values) <= _MARKED_MAX or (padded[at] is None and padded[at + 2] is None)
    ]


def _label(axes: Axes, panel: Panel) -> None:
    """A title, whole numbers from 0 on, and a clock (UTC)."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415 - an extra
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter  # noqa: PLC0415 - an extra

    axes.set_title(panel.title, loc="left", fontsize=11)
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylabel(panel.unit)
    low, high = axes.get_ylim()
    axes.set_ylim(min(0.0, low if axes.dataLim.y0 < 0 else 0.0), max(high, 1.0))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if not any(each.times for each in panel.lines):
        axes.set_xticks([])
        return
    first, last = axes.get_xlim()
    missing = _SPAN_MIN_S / 86_400 - (last - first)  # the unit of the axis is a day
    if missing > 0:
        axes.set_xlim(first - missing / 2, last + missing / 2)
    locator: Any = AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    days = ["%Y", "%Y-%m", "%m-%d"]
    clock: Any = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        locator,
        tz=UTC,
        formats=[*days, "%H:%M", "%H:%M", "%H:%M:%S"],
        zero_formats=["", *days, "%H:%M", "%H:%M:%S"],
        offset_formats=["", "%Y", "%Y-%m", *["%Y-%m-%d"] * 3],
    )
    axes.xaxis.set_major_formatter(clock)
