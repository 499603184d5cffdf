"""Draw the costs against the sizes, a panel for each command."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

COLUMNS = 4
PANEL_INCHES = (2.9, 2.1)
HEADROOM = 1.1
"""The top of a panel, as a multiple of its highest point."""
STYLES = {"anabranch": ("#0072B2", "o", "-"), "redis": ("#E69F00", "s", "--")}
"""Colour, marker and line, so that colour alone tells nothing."""


def draw(source: Path, image: Path) -> None:
    """Read a result from `source` (JSON) and write the chart to `image` (PNG)."""
    result = json.loads(source.read_text())
    figures = [
        verdict["figure"]
        for part in result["parts"]
        for verdict in part["verdicts"]
        if verdict["figure"]["points"]
    ]
    if not figures:
        return
    mpl.rcParams["font.size"] = 8
    rows = -(-len(figures) // COLUMNS)
    width, height = PANEL_INCHES
    sheet = Figure(figsize=(COLUMNS * width, rows * height + 0.7), layout="constrained")
    axes = sheet.subplots(rows, COLUMNS, squeeze=False).flatten()
    for axis, figure in zip(axes, figures, strict=False):
        points = figure["points"]
        for name, values in points["values"].items():
            colour, marker, line = STYLES[name]
            axis.plot(points["sizes"], values, line, color=colour, marker=marker, label=name)
        command, _, sizes = figure["name"].partition(", ")
        axis.set_title(command, loc="left", weight="bold")
        axis.set_xlabel(sizes.partition(" to ")[2].partition(" ")[2])
        axis.set_xscale("log")
        axis.set_ylim(0, HEADROOM * max(map(max, points["values"].values())))
        axis.grid(color="#dddddd", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[len(figures) :]:
        axis.set_visible(False)
    sheet.supylabel("server CPU per command, µs")
    handles, labels = max(
        (axis.get_legend_handles_labels() for axis in axes), key=lambda h: len(h[0])
    )
    sheet.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False)
    machine = result["machine"]
    sheet.supxlabel(
        f"anabranch {result['version']}, {machine['python']}, {machine['cpu']}, "
        f"{machine['cores']} cores; {result['made_at']}",
        fontsize=7,
    )
    sheet.savefig(image, dpi=100, metadata={"Software": None})
