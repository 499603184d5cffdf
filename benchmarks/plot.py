"""Draw the result of `benchmarks.versus_redis` as a bar chart of ratios.

Run `python -m benchmarks.plot` to redraw `results/latest.png` from `results/latest.json`.
Blue bars are cheaper than Redis, orange ones dearer (a pair that colour-blind readers can tell
apart, and the line at 1.0 says the same). The scale is logarithmic, so twice and half are equally
far from the line; the whiskers are the lowest and the highest of the rounds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESULTS = Path(__file__).resolve().parent / "results"
CHEAPER, DEARER, TARGET = "#0072B2", "#E69F00", "#000000"
BAR_INCHES = 0.24


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, the ratio, the extremes, and the goal if there is one."""

    label: str
    ratio: float
    low: float
    high: float
    target: float | None = None


def draw(source: Path, image: Path) -> None:
    """Read a result from `source` (JSON) and write the chart to `image` (PNG)."""
    result = json.loads(source.read_text())
    panels = [
        ("Server CPU per operation", _cpu_bars(result)),
        ("Bytes per entry", _memory_bars(result)),
    ]
    panels = [(title, bars) for title, bars in panels if bars]
    if not panels:
        return
    mpl.rcParams["font.size"] = 9
    mpl.rcParams["svg.hashsalt"] = "anabranch"
    heights = [len(bars) + 2 for _, bars in panels]
    figure = Figure(figsize=(10, BAR_INCHES * sum(heights) + 1.2), layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    ours, theirs = result["subject"], result["baseline"]
    for axis, (title, bars) in zip(axes, panels, strict=True):
        _draw_panel(axis, bars)
        axis.set_title(f"{title}, {ours['name']} / {theirs['name']}", loc="left", weight="bold")
    machine = result["machine"]
    figure.supxlabel(
        f"ratio, log scale: left of 1.0 is cheaper than {theirs['name']}; ◆ target; "
        f"whiskers: lowest and highest of {result['rounds']} rounds; * see the notes in the table\n"
        f"{ours['name']} {ours['version']}, {theirs['name']} {theirs['version']}, "
        f"{machine['python']}, {machine['cpu']}, {machine['cores']} cores; {result['made_at']}",
        fontsize=8,
    )
    figure.savefig(image, dpi=110, metadata={"Software": None})


def _cpu_bars(result: dict[str, Any]) -> list[Bar]:
    targets = {one["workload"]: one["at_most"] for one in result["targets"]}
    bars = []
    for row in result["workloads"]:
        if row["outcome"]:
            ratio = row["outcome"]["cpu_ratio"]
            label = f"{row['name']} *" if row["note"] else row["name"]
            target = targets.get(row["name"])
            bars.append(Bar(label, ratio["median"], ratio["low"], ratio["high"], target))
    return bars


_WEIGHTS = {
    "RSS while added": "highest_ratio",
    "RSS": "rss_ratio",
    "MEMORY USAGE": "usage_ratio",
}


def _memory_bars(result: dict[str, Any]) -> list[Bar]:
    bars = []
    for row in result["memory"]:
        for what, name in _WEIGHTS.items():
            ratio = row.get(name)
            if ratio and ratio > 0:
                bars.append(Bar(f"{row['name']}, {what}", ratio, ratio, ratio))
    return bars


def _draw_panel(axis: Axes, bars: list[Bar]) -> None:
    """Draw bars from the line at 1.0 outwards, the cheapest on top."""
    ordered = sorted(bars, key=lambda bar: bar.ratio, reverse=True)
    for place, bar in enumerate(ordered):
        colour = CHEAPER if bar.ratio < 1 else DEARER
        axis.barh(place, bar.ratio - 1, left=1, height=0.72, color=colour)
        axis.plot([bar.low, bar.high], [place, place], color="#444444", linewidth=1)
        if bar.target is not None:
            axis.plot(bar.target, place, marker="D", markersize=4, color=TARGET)
        # The label goes to the free side of the line at 1.0.
        left = bar.ratio >= 1
        axis.annotate(
            f"{bar.ratio:.2f}",
            (min(1, bar.low) if left else max(1, bar.high), place),
            xytext=(-4 if left else 4, 0),
            textcoords="offset points",
            va="center",
            ha="right" if left else "left",
            fontsize=8,
        )
    axis.set_xscale("log")
    ticks = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    lowest = min(min(bar.low, bar.target or bar.low) for bar in bars)
    highest = max(max(bar.high, bar.target or bar.high) for bar in bars)
    axis.set_xlim(min(0.5, lowest / 1.5), max(2.0, highest * 1.5))
    axis.minorticks_off()
    axis.set_yticks(range(len(ordered)), [bar.label for bar in ordered])
    axis.set_ylim(-0.7, len(ordered) - 0.3)
    axis.axvline(1, color="#000000", linewidth=1.2)
    axis.grid(axis="x", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)


@click.command()
@click.argument(
    "source", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.argument("image", type=click.Path(dir_okay=False, path_type=Path), required=False)
def main(source: Path | None, image: Path | None) -> None:
    """Draw SOURCE (default: the committed result) to IMAGE (default: beside it)."""
    source = source or RESULTS / "latest.json"
    draw(source, image or source.with_suffix(".png"))


if __name__ == "__main__":
    main()
