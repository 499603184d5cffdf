"""Samples the lag and the pending entries of consumer groups, and estimates their trend."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import StatisticsError, linear_regression
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.spark.connection.client import (
    ServerClient,
    connect,
    facts_of,
    now_ms,
    stream_key,
    text_of,
)
from anabranch.spark.jobs.signatures import JobStep, LagJob, taking
from anabranch.spark.lake.files import draft_in
from anabranch.spark.plots.pictures import Sample, draw_lag
from anabranch.spark.plots.plotting import check_plot
from anabranch.spark.reading.offsets import parse_id
from anabranch.spark.reading.server_logs import ServerLogs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA: Final = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        *((name, pa.string()) for name in ("region", "stream", "group")),
        *((name, pa.int64()) for name in ("lag", "pending", "pending_age_ms", "pending_idle_ms")),
    ]
)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The result for one group."""

    region: str
    stream: str
    group: str
    last: int | None
    max: int | None
    slope: float | None
    """Entries a second by which the lag grows: the straight line through all samples."""
    catches_up_s: float | None
    """When it will have caught up at this rate; 0 if it has. None: never, or not known."""
    never: bool
    """It lags, and does not catch up at this rate."""
    pending: int
    pending_max: int
    pending_age_ms: int | None
    pending_idle_ms: int | None

    def __str__(self) -> str:
        """For people."""
        words = f"{self.stream} {self.group}" + (f" at {self.region}" if self.region else "")
        words += (
            ": lag not known" if self.last is None else f": lag {self.last} (at most {self.max})"
        )
        if self.slope is not None:
            words += f", {self.slope:+.1f} entries/s"
        if self.never:
            words += ", NEVER catches up at this rate"
        elif self.catches_up_s:
            words += f", catches up in {self.catches_up_s:.0f} s"
        words += f"; {self.pending} pending (at most {self.pending_max})"
        if self.pending_age_ms is not None and self.pending_idle_ms is not None:
            age, idle = self.pending_age_ms / 1000, self.pending_idle_ms / 1000
            words += f", the oldest {age:.1f} s old and delivered {idle:.1f} s ago"
        return words


@dataclass(frozen=True, slots=True)
class Lagged:
    """All groups that were seen."""

    samples: int
    """Of all groups together; in a dry run so many would be taken."""
    seconds: float
    """From the first sample to the last."""
    groups: tuple[GroupLag, ...]
    dry_run: bool
    taken: tuple[Sample, ...] = field(default=(), repr=False, compare=False)
    """What the picture shows."""

    @property
    def findings(self) -> tuple[GroupLag, ...]:
        """The groups that do not catch up at this rate."""
        return tuple(each for each in self.groups if each.never)

    def draw(self, path: Path) -> None:
        """Draw the lag of all groups over time. Raises `PlotError`."""
        draw_lag(self.taken, path)


@taking(LagJob)
def lag(_spark: SparkSession | None, job: LagJob) -> Lagged:
    """Take `samples` samples, one every `interval_s` seconds, and estimate the trend of each group.

    Each region delivers for itself, so `region_urls` may name several servers. With `dry_run` it
    takes one sample, and writes neither table nor picture. An interrupt ends the sampling early. No
    session is needed. Raises `ServerUnreachable`, `ServerRefused`, `OptionError`, `PlotError`.
    """
    if job.plot is not None:
        check_plot(Path(job.plot))
    found: list[Sample] = []
    try:
        for some in _sampled(job, 1 if job.dry_run else job.samples):
            found += some
            lags = [f"{each.name}: {'?' if each.lag is None else each.lag}" for each in some]
            job.progress(JobStep(", ".join(lags) or "no consumer group"))
    except KeyboardInterrupt:
        if not found:
            raise
    by_group: dict[tuple[str, str, str], list[Sample]] = {}
    for each in found:
        by_group.setdefault((each.region, each.stream, each.group), []).append(each)
    judged = tuple(_judged(by_group[place]) for place in sorted(by_group))
    if job.dry_run:
        samples, seconds = job.samples * len(found), (job.samples - 1) * job.interval_s
        return Lagged(samples, seconds, judged, dry_run=True, taken=tuple(found))
    if job.table is not None:
        with draft_in(Path(job.table)) as draft:
            pq.write_table(table_of(found), draft)
            draft.rename(Path(job.table, f"{uuid.uuid4().hex}.parquet"))
    if job.plot is not None:
        draw_lag(found, Path(job.plot))
    times = {each.at_ms for each in found}
    seconds = (max(times) - min(times)) / 1000 if times else 0.0
    return Lagged(len(found), seconds, judged, dry_run=False, taken=tuple(found))


def table_of(samples: Sequence[Sample]) -> pa.Table:
    """Samples as a table, ``at`` being the time of each."""
    rows = [asdict(each) for each in samples]
    for row in rows:
        row["at"] = datetime.fromtimestamp(row.pop("at_ms") / 1000, UTC)
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


# --------------------------------------------------------------------------------------- sampling


def _sampled(job: LagJob, samples: int) -> Iterator[list[Sample]]:
    """The samples of all servers, round by round."""
    read = job.read
    with ExitStack() as stack:
        sources = []
        for region, url in job.urls.items():
            server = replace(read.server, url=url)
            client = stack.enter_context(connect(server))
            sources.append((region, client, ServerLogs(replace(read, server=server), client)))
        begin = time.monotonic()
        for number in range(samples):
            time.sleep(max(begin + number * job.interval_s - time.monotonic(), 0))
            yield [
                each
                for region, client, source in sources
                for each in _look(region, client, source.streams(), job.groups)
            ]


def _look(
    region: str, client: ServerClient, streams: Sequence[str], groups: Sequence[str]
) -> Iterator[Sample]:
    keys = [stream_key(each) for each in streams]
    replies = client.ask([("XINFO", "GROUPS", key) for key in keys])
    now = now_ms(client)
    exact = _exact_lags(client, keys)
    rows = [
        (stream, key, facts, text_of(facts["name"]))
        for stream, key, reply in zip(streams, keys, replies, strict=True)
        for facts in map(facts_of, reply or ())
        if not groups or text_of(facts["name"]) in groups
    ]
    oldest = client.ask(
        [("XPENDING", key, facts["name"], "-", "+", 1) for _, key, facts, _ in rows]
    )
    for (stream, key, facts, group), pending in zip(rows, oldest, strict=True):
        age_ms = idle_ms = None
        if pending:
            entry_id, _, idle_ms, _ = pending[0]
            age_ms = max(now - parse_id(entry_id.decode())[0], 0)
        yield Sample(
            *(now, region, stream, group),
            exact.get((key, facts["name"]), facts.get("lag")),
            *(facts["pending"], age_ms, idle_ms),
        )


def _exact_lags(client: ServerClient, keys: Sequence[bytes]) -> dict[tuple[bytes, bytes], int]:
    """Lags by AB.LAG, which an Anabranch server always knows; none of other servers."""
    if not client.has_bulk:
        return {}
    replies = client.ask([("AB.LAG", key) for key in keys])
    return {
        (key, facts["name"]): facts["lag"]
        for key, reply in zip(keys, replies, strict=True)
        for facts in map(facts_of, reply or ())
    }


# ---------------------------------------------------------------------------------------- judging


def _judged(samples: Sequence[Sample]) -> GroupLag:
    newest = samples[-1]
    known = [(each.at_ms / 1000, each.lag) for each in samples if each.lag is not None]
    slope = _slope(known)
    catches_up_s: float | None = None
    if newest.lag == 0:
        catches_up_s = 0.0
    elif newest.lag is not None and slope is not None and slope < 0:
        catches_up_s = newest.lag / -slope
    return GroupLag(
        *(newest.region, newest.stream, newest.group),
        last=newest.lag,
        max=max((count for _, count in known), default=None),
        slope=slope,
        catches_up_s=catches_up_s,
        never=bool(newest.lag) and slope is not None and slope >= 0,
        pending=newest.pending,
        pending_max=max(each.pending for each in samples),
        pending_age_ms=newest.pending_age_ms,
        pending_idle_ms=newest.pending_idle_ms,
    )


def _slope(points: Sequence[tuple[float, int]]) -> float | None:
    """By least squares; None without two different times."""
    try:
        return linear_regression(*zip(*points, strict=True)).slope if points else None
    except StatisticsError:
        return None
