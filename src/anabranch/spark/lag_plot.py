"""A picture of consumer groups' lag over time, by matplotlib."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from anabranch.spark.lag_sample import Sample

__all__ = ["SUFFIXES", "PlotError", "check_plot", "colours_of", "draw_lag", "label_axes"]

SUFFIXES: Final = (".svg", ".png", ".pdf")

# Told apart by people who see few colours, too (Okabe and Ito), without the yellow.
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
_STYLES: Final = ("-", "--", ":", "-.")


class PlotError(AnabranchError):
    """No picture can be drawn; the text says what is needed."""


def check_plot(path: Path) -> None:
    """Raise `PlotError` if no picture could be drawn there: before samples are taken for hours."""
    if path.suffix not in SUFFIXES:
        raise PlotError(f"{path}: the name of a plot ends in one of {', '.join(SUFFIXES)}")
    try:
        import matplotlib  # noqa: F401, PLC0415 - an extra
    except ImportError:
        raise PlotError(
            'plots are drawn by matplotlib, which is an extra: pip install "anabranch[plot]"'
        ) from None


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, the same whatever order they come in."""
    ordered = sorted(set(names))
    return {name: _COLOURS[at % len(_COLOURS)] for at, name in enumerate(ordered)}


def draw_lag(samples: Sequence[Sample], path: Path) -> None:
    """Two panels over the same time: entries not delivered, and entries not acknowledged.

    A region has one colour in all its lines, or each group has one if there is one region. A lag
    that the server does not know leaves a gap in its line. Raises `PlotError`.
    """
    check_plot(path)
    import matplotlib as mpl  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    lines: defaultdict[str, list[Sample]] = defaultdict(list)
    for each in samples:
        lines[each.name].append(each)
    by_region = len({each.region for each in samples}) > 1
    keys = {name: some[0].region if by_region else name for name, some in lines.items()}
    colours = colours_of(list(keys.values()))
    drawn: defaultdict[str, int] = defaultdict(int)
    # The same samples give the same bytes.
    with mpl.rc_context({"svg.hashsalt": "anabranch", "font.size": 10}):
        figure = Figure(figsize=(10, 6.2), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        handles = []
        for name, some in sorted(lines.items()):
            key = keys[name]
            look = {
                "color": colours[key],
                "linestyle": _STYLES[drawn[key] % len(_STYLES)],
                "linewidth": 1.8,
                "marker": "o" if len(some) <= 60 else "",
                "markersize": 3.5,
            }
            drawn[key] += 1
            times: list[Any] = [datetime.fromtimestamp(each.at_ms / 1000, UTC) for each in some]
            lags: list[Any] = [float("nan") if each.lag is None else each.lag for each in some]
            handles += upper.plot(times, lags, label=name, **look)
            lower.plot(times, [each.pending for each in some], **look)
        label_axes(upper, "Waiting to be delivered", "entries")
        label_axes(lower, "Delivered, not yet acknowledged", "entries")
        figure.suptitle(_title(samples), fontsize=13, fontweight="bold", x=0.01, ha="left")
        if handles:
            figure.legend(
                handles=handles,
                loc="outside lower left",
                ncols=min(len(handles), 3),
                handlelength=3.5,
                frameon=False,
                fontsize="small",
            )
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def _title(samples: Sequence[Sample]) -> str:
    if not samples:
        return "Lag of consumer groups: none was seen"
    first, last = (
        datetime.fromtimestamp(of(each.at_ms for each in samples) / 1000, UTC) for of in (min, max)
    )
    end = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M:%S}"
    return f"Lag of consumer groups, {first:%Y-%m-%d %H:%M:%S} to {end} UTC"


def label_axes(axes: Axes, text: str, unit: str) -> None:
    """A title, whole numbers from 0 on, and a clock (UTC)."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415 - an extra
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter  # noqa: PLC0415 - an extra

    axes.set_title(text, loc="left", fontsize=11)
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=min(0.0, float(axes.dataLim.y0)))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    locator: Any = AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    clock: Any = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(clock)
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
