"""The picture of what `lag` finds: the lag of consumer groups over time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from anabranch.spark.plots.plotting import Curve, Panel, colours_of, draw, span

_LINES_MAX: Final = 21
_STYLES: Final = ("-", "--", ":", "-.")


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
    title = "Lag of consumer groups"
    title += f", {span(min(moments), max(moments))}" if moments else ": none was seen"
    if len(names) < len(groups):
        title += f" ({len(names)} of {len(groups)} groups)"
    panels = [
        Panel("Waiting to be delivered", "entries", lags),
        Panel("Delivered, not yet acknowledged", "entries", pending),
    ]
    draw(path, title, panels)
