"""Counts, sums and percentiles of streams for each window of time and each key, each written once.

    python windows.py orders --size '1 hour' --key city --value amount --lake hours/

A window is written when the watermarks of all regions have passed its end. The watermark of a
region is the latest time of its entries, less a delay: so a disconnected region delays results, and
its late entries are counted. A run that ends leaves windows open whose end no watermark has passed:
the checkpoint keeps them, and a later run continues with them.

The row of a window does not depend on the order in which entries came: sums are of decimal or whole
numbers, percentiles are exact. So a batch that is repeated after a crash has the same rows, and the
sink recognises them. When a region joins, Spark refuses the checkpoint: begin with a new one, and
with `after_ms` write only windows that end after the watermark that was reached.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from anabranch.spark import read_by_region, session, supervise

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_RESERVED = {"ts": "timestamp", "seq": "bigint", "position": "bigint"}


@dataclass(frozen=True)
class Windowing:
    """The definition of the windows. It must be the same for all runs with one checkpoint."""

    size: str = "1 minute"
    slide: str | None = None
    """Windows begin so far apart, and overlap if that is less than their size."""
    delay: str = "10 seconds"
    """How far an entry may be behind the latest time of its own region."""
    time: str = "ts"
    """``ts``, the time in the ID, or a field (ISO 8601). Entries without one are in no window."""
    key: str | None = None
    """A field, ``stream`` or ``region``."""
    value: str | None = None
    """A field with numbers: what is summed."""
    kind: str = "decimal(18,6)"
    """Type of the values: decimal or whole numbers. Others are no values, and counted as such."""
    percentiles: tuple[float, ...] = (0.5, 0.95, 0.99)
    unique: str | None = None
    """A field that identifies an event: entries with the same value count as one."""

    @property
    def schema(self) -> str:
        """The columns to read, as Spark writes them."""
        columns = {self.time: "timestamp"}
        if self.value is not None:
            columns.setdefault(self.value, self.kind)
        for name in filter(None, (self.key, self.unique)):
            columns.setdefault(name, _RESERVED.get(name, "string"))
        return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


@dataclass(frozen=True)
class Run:
    """Where to read and to write: into a stream, or into a directory of Parquet files."""

    url: str = "redis://127.0.0.1:6379"
    into: str | None = None
    lake: Path | None = None
    checkpoint: Path | None = None
    """A directory for the progress; by default it is in the lake."""
    regions: Sequence[str] | None = None
    """Those that the streams have now, unless they are named."""
    after_ms: int | None = None
    """Only windows that end after this time are written."""
    once: bool = True
    """End when all present entries are read; otherwise go on until the query is stopped."""
    options: dict[str, str] = field(default_factory=dict)
    """More options of the read."""


@dataclass(frozen=True)
class Windowed:
    """What all batches of a run did."""

    entries: int
    untimed: int
    """Entries without a time."""
    windows: int
    """Rows written: one for each closed window and key."""
    late: int
    """More than 0 if entries came too late for their window."""
    watermark_ms: int | None
    """Windows that end here or before are written; None if nothing was read."""


def windows(spark: SparkSession, streams: str, windowing: Windowing, run: Run) -> Windowed:
    """Aggregate streams (keys, separated by commas).

    Columns: ``window_start``, ``window_end``, ``key``, ``count``, and of the values ``sum``,
    ``without`` (entries that have none), ``p50`` ...
    """
    # Other tools than Spark read such times as times.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    started: list[StreamingQuery] = []

    def start() -> StreamingQuery:
        given = {"url": run.url, "startingOffsets": "earliest", **run.options}
        table = read_by_region(
            spark, streams, watermark=windowing.delay, event_time=windowing.time,
            regions=run.regions, schema=windowing.schema, **given,
        )  # fmt: skip
        started.append(_started(results(table, windowing, run.after_ms), run))
        return started[-1]

    supervise(start, failures_max=0 if run.once else 10)
    steps = [step for query in started for step in query.recentProgress]
    sums: Counter[str] = Counter()
    for step in steps:
        for row in step.observedMetrics.values():
            sums.update(row.asDict())
        sums["late"] += sum(each.numRowsDroppedByWatermark for each in step.stateOperators)
    watermark = steps[-1].eventTime.get("watermark") if steps else None
    reached = watermark and round(datetime.fromisoformat(watermark).timestamp() * 1000)
    return Windowed(
        sums["entries"], sums["untimed"], sums["windows"], sums["late"], reached or None
    )


def results(table: DataFrame, windowing: Windowing, after_ms: int | None = None) -> DataFrame:
    """The rows to write. This is all that the windows are: the rest is where they come and go."""
    untimed = f.count_if(_column(windowing.time).isNull()).alias("untimed")
    table = table.observe("read", f.count(f.lit(1)).alias("entries"), untimed)
    if windowing.unique is not None:
        table = table.dropDuplicatesWithinWatermark([windowing.unique])
    groups = [f.window(_column(windowing.time), windowing.size, windowing.slide).alias("window")]
    if windowing.key is not None:
        groups.append(_column(windowing.key).alias("key"))
    figures = [f.count(f.lit(1)).alias("count")]
    if windowing.value is not None:
        value = _column(windowing.value)
        figures += [f.sum(value).alias("sum"), f.count_if(value.isNull()).alias("without")]
        # One list for all: each percentile by itself would keep all values once more.
        figures.append(f.percentile(value, list(windowing.percentiles)).alias("percentiles"))
    rows = table.groupBy(*groups).agg(*figures)
    ranks = [
        f.col("percentiles")[at].alias(f"p{100 * each:g}".replace(".", "_"))
        for at, each in enumerate(windowing.percentiles)
        if windowing.value is not None
    ]
    rows = rows.select(
        f.col("window.start").alias("window_start"),
        f.col("window.end").alias("window_end"),
        *(name for name in ("key", "count", "sum", "without") if name in rows.columns),
        *ranks,
    )
    if after_ms is not None:
        rows = rows.where(f.col("window_end") > f.timestamp_millis(f.lit(after_ms)))
    return rows.observe("written", f.count(f.lit(1)).alias("windows"))


def _column(name: str) -> Column:
    return f.col(f"`{name}`")


def _started(rows: DataFrame, run: Run) -> StreamingQuery:
    if run.into is not None:
        # The rows of a partition are the same in every attempt, their order is not.
        writer = rows.writeStream.format("anabranch").option("deterministicOrder", "sort")
        writer = writer.option("url", run.url).option("stream", run.into)
        if run.after_ms is not None:  # a new checkpoint continues where another one ended
            writer = writer.option("allowProducerChange", "true")
    else:
        writer = rows.writeStream.format("parquet").option("path", str(run.lake))
    place = run.checkpoint or Path(str(run.lake), "_checkpoint")
    writer = writer.option("checkpointLocation", str(place))
    if run.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime="10 seconds").start()


def main() -> None:
    """Aggregate by the words of the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("streams", help="keys, separated by commas")
    parser.add_argument("--into", help="stream to write to")
    parser.add_argument("--lake", type=Path, help="directory to write to")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--url", default=Run.url)
    parser.add_argument("--follow", action="store_true", help="go on until it is interrupted")
    parser.add_argument("--after-ms", type=int, help="only windows that end after this time")
    parser.add_argument("--percentiles", default="50,95,99")
    for name in ("size", "slide", "delay", "time", "key", "value", "kind", "unique"):
        parser.add_argument(f"--{name}", default=getattr(Windowing, name))
    given = vars(parser.parse_args())
    own = {name: given.pop(name) for name in ("into", "lake", "checkpoint", "url", "after_ms")}
    if (own["into"] is None) == (own["lake"] is None) or not (own["lake"] or own["checkpoint"]):
        parser.error("give --lake, or --into and --checkpoint")
    run = Run(once=not given.pop("follow"), **own)
    parts = tuple(float(each) / 100 for each in given.pop("percentiles").split(",") if each)
    done = windows(
        session("windows"), given.pop("streams"), Windowing(percentiles=parts, **given), run
    )
    print(f"{done.entries:,} entries read, {done.windows:,} windows by key closed")
    if done.late or done.untimed:
        print(f"{done.late:,} came too late, {done.untimed:,} have no time")


if __name__ == "__main__":
    main()
