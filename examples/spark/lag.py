"""How far consumer groups are behind: samples over time, where they tend, a table and a picture.

    python lag.py redis://127.0.0.1:6379 --streams orders --samples 60 --interval 10 --plot lag.svg
    python lag.py eu=redis://eu:6379 us=redis://us:6379 --table lags/

Each region delivers for itself, so several servers may be named. The slope of a straight line
through the samples says when a group will have caught up, or that it never will at this rate: then
the program exits with 1. A server of Redis does not know the lag after some XDEL; AB.LAG always
does.
"""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import StatisticsError, linear_regression
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import redis

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
"""Distinguishable with colour blindness (Okabe and Ito)."""
STYLES = ("-", "--", ":", "-.")
LINES_MAX = 21
"""Of the picture: those that lag most."""
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        *((name, pa.string()) for name in ("region", "stream", "group")),
        *((name, pa.int64()) for name in ("lag", "pending", "pending_age_ms", "pending_idle_ms")),
    ]
)


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Trend:
    """Where one group tends."""

    newest: Sample
    lag_max: int | None
    slope: float | None
    """Entries a second by which the lag grows: the straight line through all samples."""
    catches_up_s: float | None
    """When it will have caught up at this rate; 0 if it has. None: never, or not known."""
    never: bool
    """It lags, and does not catch up at this rate."""
    pending_max: int

    def __str__(self) -> str:
        """For people."""
        newest = self.newest
        words = f"{newest.name}: lag not known"
        if newest.lag is not None:
            words = f"{newest.name}: lag {newest.lag} (at most {self.lag_max})"
        if self.slope is not None:
            words += f", {self.slope:+.1f} entries/s"
        if self.never:
            words += ", NEVER catches up at this rate"
        elif self.catches_up_s:
            words += f", catches up in {self.catches_up_s:.0f} s"
        words += f"; {newest.pending} pending (at most {self.pending_max})"
        if newest.pending_age_ms is not None and newest.pending_idle_ms is not None:
            age, idle = newest.pending_age_ms / 1000, newest.pending_idle_ms / 1000
            words += f", the oldest {age:.1f} s old and delivered {idle:.1f} s ago"
        return words


# --------------------------------------------------------------------------------------- sampling


def sampled(
    urls: Mapping[str, str],
    streams: Sequence[str] = (),
    pattern: str = "*",
    groups: Sequence[str] = (),
    samples: int = 10,
    interval_s: float = 1.0,
) -> Iterator[list[Sample]]:
    """All groups of these streams on all servers (name to address), so many times.

    Without `streams` those that match `pattern` are looked for each time; without `groups` all
    count. Raises `redis.RedisError`.
    """
    clients = {name: redis.Redis.from_url(url, protocol=2) for name, url in urls.items()}
    begin = time.monotonic()
    try:
        for number in range(samples):
            time.sleep(max(begin + number * interval_s - time.monotonic(), 0))
            yield [
                each
                for name, client in clients.items()
                for each in _looked(name, client, streams, pattern, groups)
            ]
    finally:
        for client in clients.values():
            client.close()


def _looked(
    region: str,
    client: redis.Redis,
    streams: Sequence[str],
    pattern: str,
    groups: Sequence[str],
) -> Iterator[Sample]:
    found: Any = client.scan_iter(pattern, count=1000, _type="stream")
    keys = [each.encode() for each in streams] or sorted(found)
    seconds, us = client.time()
    now = seconds * 1000 + us // 1000
    for key in keys:
        pipeline = client.pipeline(transaction=False)
        pipeline.xinfo_groups(key)
        pipeline.execute_command("AB.LAG", key)
        infos, exact = _replies(pipeline)
        lags = {row[1]: row[3] for row in exact}  # "name", its value, "lag", its value ...
        for facts in infos:
            name = facts["name"]
            if groups and _text(name) not in groups:
                continue
            pipeline.xpending_range(key, name, "-", "+", 1)
            (oldest,) = _replies(pipeline)
            age_ms = idle_ms = None
            for pending in oldest:
                age_ms = max(now - int(pending["message_id"].partition(b"-")[0]), 0)
                idle_ms = pending["time_since_delivered"]
            yield Sample(
                *(now, region, _text(key), _text(name), lags.get(name, facts.get("lag"))),
                *(facts["pending"], age_ms, idle_ms),
            )


def _replies(pipeline: Any) -> list[Any]:
    """Execute a pipeline; a reply is empty where a key, a group or the command does not exist."""
    replies: list[Any] = pipeline.execute(raise_on_error=False)
    for at, reply in enumerate(replies):
        if isinstance(reply, redis.RedisError):
            if not any(text in str(reply) for text in ("no such key", "NOGROUP", "unknown comm")):
                raise reply
            replies[at] = []
    return [each or [] for each in replies]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


# ------------------------------------------------------------------------------- trend and table


def trends_of(samples: Sequence[Sample]) -> list[Trend]:
    """The trend of each group, by region, stream and group."""
    by_group: defaultdict[tuple[str, str, str], list[Sample]] = defaultdict(list)
    for each in samples:
        by_group[each.region, each.stream, each.group].append(each)
    return [_trend(by_group[place]) for place in sorted(by_group)]


def _trend(samples: Sequence[Sample]) -> Trend:
    newest = samples[-1]
    known = [(each.at_ms / 1000, each.lag) for each in samples if each.lag is not None]
    slope = None
    try:
        if known:
            slope = linear_regression(*zip(*known, strict=True)).slope
    except StatisticsError:  # there are no two different times
        pass
    catches_up_s: float | None = None
    if newest.lag == 0:
        catches_up_s = 0.0
    elif newest.lag is not None and slope is not None and slope < 0:
        catches_up_s = newest.lag / -slope
    return Trend(
        newest,
        max((lag for _, lag in known), default=None),
        slope,
        catches_up_s,
        never=bool(newest.lag) and slope is not None and slope >= 0,
        pending_max=max(each.pending for each in samples),
    )


def table_of(samples: Sequence[Sample]) -> pa.Table:
    """Samples as a table, ``at`` being the time of each."""
    rows = [asdict(each) for each in samples]
    for row in rows:
        row["at"] = datetime.fromtimestamp(row.pop("at_ms") / 1000, UTC)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


# ---------------------------------------------------------------------------------------- picture


def draw(samples: Sequence[Sample], path: Path) -> None:
    """Two panels over the same time: entries not delivered, and entries not acknowledged.

    A region has one colour in all its lines, or each group has one if there is one region. A lag
    that the server does not know leaves a gap in its line. A line is narrower than those below it,
    so that equal ones are seen beside each other.
    """
    import matplotlib as mpl  # noqa: PLC0415 - only for pictures
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    groups: defaultdict[str, list[Sample]] = defaultdict(list)
    for each in samples:
        groups[each.name].append(each)
    worst = {name: max(each.lag or 0 for each in some) for name, some in groups.items()}
    names = sorted(sorted(groups, key=lambda name: (-worst[name], name))[:LINES_MAX])
    regions = sorted({each.region for each in samples})
    title = "Lag of consumer groups"
    if len(names) < len(groups):
        title += f" ({len(names)} of {len(groups)})"
    # Names of keys may look like formulas.
    look: dict[Any, Any] = {"svg.hashsalt": "lag", "font.size": 10, "text.parse_math": False}
    with mpl.rc_context(look):
        figure = Figure(figsize=(10, 6.2 + 0.2 * (len(names) // 3)), layout="constrained")
        rows = figure.subplots(2, 1, sharex=True)
        handles = []
        panels = {"Waiting to be delivered": "lag", "Delivered, not yet acknowledged": "pending"}
        for axes, (heading, field) in zip(rows, panels.items(), strict=True):
            for number, name in enumerate(names):
                some = groups[name]
                many = len(regions) > 1
                colour = regions.index(some[0].region) if many else number
                (line,) = axes.plot(
                    [datetime.fromtimestamp(each.at_ms / 1000, UTC) for each in some],
                    [getattr(each, field) for each in some],
                    color=COLOURS[colour % len(COLOURS)],
                    linestyle=STYLES[number // (1 if many else len(COLOURS)) % len(STYLES)],
                    linewidth=1.8 + min(3, 12 / len(names)) * (len(names) - 1 - number),
                    marker="o" if len(some) <= 60 else ".",
                    clip_on=False,
                )
                handles.append(line)
            axes.set_title(heading, loc="left", fontsize=11)
            axes.set_ylabel("entries")
            axes.set_ylim(0, max(axes.get_ylim()[1], 1))
            axes.grid(visible=True, alpha=0.25)
        locator = AutoDateLocator()
        rows[-1].xaxis.set_major_locator(locator)
        rows[-1].xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
        figure.suptitle(f"{title}, UTC", fontsize=13, fontweight="bold", x=0.01, ha="left")
        if names:
            # Matplotlib leaves out names that begin with an underscore.
            labels = [f"\N{ZERO WIDTH SPACE}{each}" for each in names]
            figure.legend(handles[: len(names)], labels, loc="outside lower left", ncols=3)
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Sample by the words of the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("servers", nargs="+", help="an address, or NAME=ADDRESS of each region")
    parser.add_argument("--streams", default="", help="keys, separated by commas; all by default")
    parser.add_argument("--pattern", default="*", help="a glob of keys instead")
    parser.add_argument("--groups", default="", help="separated by commas; all by default")
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two samples")
    parser.add_argument("--table", type=Path, help="directory of Parquet files to add a file to")
    parser.add_argument("--plot", type=Path, help="a picture: .svg or .png (needs matplotlib)")
    given = parser.parse_args()
    urls = dict(
        each.split("=", 1) if "=" in each.partition(":")[0] else ("", each)
        for each in given.servers
    )
    found: list[Sample] = []
    try:
        for some in sampled(
            urls,
            given.streams.split(",") if given.streams else (),
            given.pattern,
            given.groups.split(",") if given.groups else (),
            given.samples,
            given.interval,
        ):
            found += some
            lags = [f"{each.name}: {'?' if each.lag is None else each.lag}" for each in some]
            print(", ".join(lags) or "no consumer group", file=sys.stderr)
    except KeyboardInterrupt:
        print("ended early", file=sys.stderr)
    if given.table is not None:
        given.table.mkdir(parents=True, exist_ok=True)
        pq.write_table(table_of(found), given.table / f"{uuid.uuid4().hex}.parquet")
    if given.plot is not None:
        draw(found, given.plot)
    trends = trends_of(found)
    print(*trends, sep="\n")
    sys.exit(any(each.never for each in trends))


if __name__ == "__main__":
    main()
