"""A picture of consumer groups' lag over time, by matplotlib."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from anabranch.spark.jobs.lag import Sample

__all__ = ["SUFFIXES", "PlotError", "check_plot", "draw_lag"]

SUFFIXES: Final = (".svg", ".png", ".pdf")


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


def draw_lag(samples: Sequence[Sample], path: Path) -> None:
    """Two panels over the same time: entries not delivered, and entries not acknowledged.

    A lag that the server does not know leaves a gap in its line. Raises `PlotError`.
    """
    check_plot(path)
    import matplotlib as mpl  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    begin = min((each.at_ms for each in samples), default=0)
    lines: defaultdict[str, list[Sample]] = defaultdict(list)
    for each in samples:
        lines[each.name].append(each)
    # The same samples give the same bytes.
    with mpl.rc_context({"svg.hashsalt": "anabranch"}):
        figure = Figure(figsize=(9, 6), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        for name, some in sorted(lines.items()):
            seconds = [(each.at_ms - begin) / 1000 for each in some]
            lags = [float("nan") if each.lag is None else each.lag for each in some]
            upper.plot(seconds, lags, marker=".", label=name)
            lower.plot(seconds, [each.pending for each in some], marker=".", label=name)
        _label(upper, "not delivered")
        _label(lower, "delivered, not acknowledged")
        lower.set_xlabel("seconds")
        if lines:
            upper.legend(loc="best", fontsize="small")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _label(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left")
    axes.set_ylabel("entries")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
