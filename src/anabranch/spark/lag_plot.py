"""A picture of consumer groups' lag over time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.spark.plotting import Line, Panel, colours_of, draw, span

if TYPE_CHECKING:
    from anabranch.spark.lag_sample import Sample

__all__ = ["draw_lag"]

_LINES_MAX: Final = 21
_STYLES: Final = ("-", "--", ":", "-.")


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
        lags.append(Line(name, times, [each.lag for each in some], *look))
        pending.append(Line(name, times, [each.pending for each in some], *look))
    title = "Lag of consumer groups"
    if samples:
        moments = [datetime.fromtimestamp(each.at_ms / 1000, UTC) for each in samples]
        title += f", {span(min(moments), max(moments))}"
    else:
        title += ": none was seen"
    if len(groups) > len(names):
        title += f" ({len(names)} of {len(groups)} groups)"
    panels = [
        Panel("Waiting to be delivered", "entries", lags),
        Panel("Delivered, not yet acknowledged", "entries", pending),
    ]
    draw(path, title, panels)
