"""Counts, sums and percentiles for each window of time and each key, written once per window.

A window is closed, and written, when the watermarks of all regions have passed its end. The
watermark of a region is the latest time of its entries, less a delay. So a disconnected region
delays results, and its late entries are counted. The row of a window does not depend on the order
in which entries came or tasks ended: sums are of decimal or whole numbers, percentiles are exact.
So a batch that is repeated after a crash is equal, and the sink recognises it.

A run that ends (`once`) leaves windows open whose end no watermark has passed: they are in the
checkpoint, and a later run continues with them. Between runs Spark keeps only the least of the
regions' watermarks: in each run windows close when every region has delivered a new entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Observation
from pyspark.sql import functions as f

from anabranch.errors import AnabranchError
from anabranch.spark.lake.files import draft_in
from anabranch.spark.lake.sinks import PartsSink
from anabranch.spark.options import ReadOptions, for_batch_reads
from anabranch.spark.reading.by_region import read_by_region, regions_of
from anabranch.spark.reading.checkpoint import facts_of_batch, newest_batch
from anabranch.spark.runtime.progress import QueryWatch
from anabranch.spark.runtime.supervise import run_query

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_DEFINITION: Final = "windows.json"
_ENTRIES_MAX: Final = 1_000_000  # of each region in a batch: what is in one batch is in memory
_RESERVED: Final = {"ts": "timestamp", "seq": "bigint", "position": "bigint"}
_EXACT: Final = re.compile(r"(tiny|small|big)?int|integer|long|decimal(\(\d+(, *\d+)?\))?", re.I)


class WindowsError(AnabranchError):
    """These windows are not possible; the text gives the reason and a remedy."""


@dataclass(frozen=True, slots=True)
class Windowing:
    """The definition of the windows. It is the same for all runs with one checkpoint."""

    size: str = "1 minute"
    slide: str | None = None
    """Windows begin so far apart, and overlap if that is less than their size."""
    delay: str = "10 seconds"
    """How far an entry may lie behind the latest time of its own region."""
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

    def __post_init__(self) -> None:
        """Raises `WindowsError`."""
        if not _EXACT.fullmatch(self.kind.strip()):
            raise WindowsError(
                f"values cannot be {self.kind}: a sum must not depend on the order of its parts, "
                "or a batch that is repeated after a crash would differ; take bigint or decimal"
            )
        if not all(0 <= each <= 1 for each in self.percentiles):
            raise WindowsError("percentiles are given as parts of 1, such as 0.99")

    @property
    def schema(self) -> str:
        """The columns to read, as Spark writes them."""
        columns = {self.time: "timestamp"}
        if self.value is not None:
            columns.setdefault(self.value, self.kind)
        for name in (self.key, self.unique):
            if name is not None:
                columns.setdefault(name, _RESERVED.get(name, "string"))
        return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns.items())


@dataclass(frozen=True, slots=True)
class WindowsProgress:
    """One batch, for reports of progress."""

    batch: int
    entries: int
    windows: int


@dataclass(frozen=True, slots=True)
class Windowed:
    """The result of a run."""

    entries: int
    """Entries read."""
    untimed: int
    """Of these, entries without a time."""
    windows: int
    """Rows written: one for each closed window and key."""
    late: int
    """More than 0 if entries, or repetitions of entries, came too late for their window. Spark
    counts the late entries of one task, window and key as one."""
    open: int | None
    """Windows and keys that the checkpoint keeps for the next run; None if nothing was read."""
    watermark_ms: int | None
    """All windows that end here or before are written; None while a region has no entry."""
    regions: tuple[str, ...]
    starts: int
    """How often the query had to be started."""
    dry_run: bool


def windows(
    spark: SparkSession,
    streams: str,
    windowing: Windowing,
    *,
    url: str,
    into: str | None = None,
    lake: str | Path | None = None,
    checkpoint: str | Path | None = None,
    regions: Iterable[str] | None = None,
    after_ms: int | None = None,
    once: bool = True,
    interval_s: float = 10.0,
    dry_run: bool = False,
    progress: Callable[[WindowsProgress], None] | None = None,
    options: Mapping[str, str] | None = None,
) -> Windowed:
    """Aggregate streams (keys, separated by commas) into stream `into`, or Parquet files in `lake`.

    Columns: ``window_start``, ``window_end``, ``key``, ``count``, and of the values ``sum``,
    ``without`` (entries that have none), ``p50`` ... Each row is written once, whatever dies.
    With `once` it ends when it has read all that there was; else it goes on, a batch every
    `interval_s` seconds, until the query is stopped, and starts again after failures. The
    checkpoint, a directory of this machine, is by default in the lake.

    The regions are those that the streams have at the first start, or `regions`. When one has
    joined, the next start is refused: begin with a new checkpoint, and with `after_ms` write only
    windows that end after this time, so that none is written twice. With `dry_run` nothing is
    written: all present entries are counted, as if all windows were closed. Raises `WindowsError`,
    what Spark raises, and `GaveUp`.
    """
    if (into is None) == (lake is None):
        raise WindowsError("give one of: a stream to write to, a directory to write to")
    if checkpoint is None and lake is None and not dry_run:
        raise WindowsError("a checkpoint directory is needed to write into a stream")
    given = {
        "url": url, "startingOffsets": "earliest", "maxEntriesPerTrigger": str(_ENTRIES_MAX),
        **(options or {}),
    }  # fmt: skip
    # With after_ms a new checkpoint continues where another one ended.
    change_allowed = given.pop("allowProducerChange", str(after_ms is not None))
    wanted = None if regions is None else tuple(sorted(set(regions)))
    if dry_run:
        names = wanted or _present(streams, given)
        return _dry_run(spark, streams, windowing, names, after_ms, given)
    place = Path(checkpoint) if checkpoint is not None else Path(str(lake)) / "_checkpoint"
    place = place.absolute()
    is_new = after_ms is None and not (place / _DEFINITION).exists()
    if lake is not None and is_new and any(Path(lake).glob("*.parquet")):
        raise WindowsError(
            f"{lake} has windows of another checkpoint than {place}, and they would be written "
            "again: go on with that checkpoint, write only windows that end after its watermark "
            "(after_ms), or take another directory"
        )
    names = _settled(place, streams, windowing, wanted, given)
    spark.dataSource.register(PartsSink)
    tally = _ProgressSum(progress)

    def writer() -> DataStreamWriter:
        table = read_by_region(
            spark,
            streams,
            watermark=windowing.delay,
            event_time=windowing.time,
            regions=names,
            schema=windowing.schema,
            **given,
        )
        rows = _results(_observed(table, windowing, "read"), windowing, after_ms, streaming=True)
        if into is None:
            path = str(Path(str(lake)).absolute())
            return rows.writeStream.format("anabranch-parts").option("path", path)
        # The rows of a partition are the same in every attempt, their order is not.
        return rows.writeStream.format("anabranch").options(
            url=url, stream=into, deterministicOrder="sort", allowProducerChange=change_allowed
        )

    watch = QueryWatch("windows", tally.add)
    _, starts = run_query(spark, watch, writer, place, None if once else interval_s)
    newest = newest_batch(place, "commits")
    # 0 before the watermark has moved for the first time
    watermark_ms = 0 if newest is None else facts_of_batch(place, newest)["batchWatermarkMs"]
    return tally.result(names, starts, watermark_ms or None)


# ------------------------------------------------------------------------------------ the regions


def _present(streams: str, given: Mapping[str, str]) -> tuple[str, ...]:
    """The regions that the streams have now; raises `WindowsError` if there are none."""
    found = _selected(streams, given)
    if not found:
        raise WindowsError(
            f"{streams}: nothing was ever written there, so its regions are not known; name them"
        )
    return found


def _selected(streams: str, given: Mapping[str, str]) -> tuple[str, ...]:
    """The same, possibly empty."""
    return tuple(regions_of(ReadOptions.parse({"subscribe": streams, **given})))


def _settled(
    place: Path,
    streams: str,
    windowing: Windowing,
    wanted: tuple[str, ...] | None,
    given: Mapping[str, str],
) -> tuple[str, ...]:
    """The regions of this query, which the first start settles together with all else."""
    said: dict[str, Any] = {"streams": streams, **asdict(windowing)}
    said["percentiles"] = list(windowing.percentiles)
    path = place / _DEFINITION
    if not path.exists():
        names = wanted or _present(streams, given)
        with draft_in(place) as draft:
            draft.write_text(json.dumps({**said, "regions": names}, indent=1), "utf-8")
            draft.rename(path)
        return names
    kept = json.loads(path.read_text("utf-8"))
    names = tuple(kept["regions"])
    differing = [name for name, value in said.items() if kept.get(name) != value]
    if differing:
        changes = ", ".join(f"{name} {kept.get(name)!r} -> {said[name]!r}" for name in differing)
        raise WindowsError(f"{place} is of other windows ({changes}): take a new checkpoint")
    if wanted is not None:
        if wanted != names:
            raise WindowsError(f"{place} is of regions {_listed(names)}: take a new checkpoint")
    elif joined := sorted(
        {*_present(streams, given)} - {*_selected(streams, {**given, "regions": ",".join(names)})}
    ):
        raise WindowsError(
            f"{place} is of regions {_listed(names)}, and {_listed(joined)} joined since: run "
            "once more with the old regions by name; then take a new checkpoint, and with it write "
            "only windows that end after the watermark of that run"
        )
    return names


def _listed(names: Sequence[str]) -> str:
    return ", ".join(each or "(none)" for each in names)


# ---------------------------------------------------------------------------------------- the plan


def _observed(table: DataFrame, windowing: Windowing, name: str | Observation) -> DataFrame:
    untimed = f.count_if(_column(windowing.time).isNull())
    return table.observe(name, f.count(f.lit(1)).alias("entries"), untimed.alias("untimed"))


def _results(
    table: DataFrame, windowing: Windowing, after_ms: int | None, *, streaming: bool
) -> DataFrame:
    """The rows to write."""
    if windowing.unique is not None:
        drop = table.dropDuplicatesWithinWatermark if streaming else table.dropDuplicates
        table = drop([windowing.unique])
    window = f.window(_column(windowing.time), windowing.size, windowing.slide)
    groups = [window.alias("window")]
    if windowing.key is not None:
        groups.append(_column(windowing.key).alias("key"))
    figures = [f.count(f.lit(1)).alias("count")]
    if windowing.value is not None:
        value = _column(windowing.value)
        figures += [f.sum(value).alias("sum"), f.count_if(value.isNull()).alias("without")]
        # One list for all: each percentile by itself would keep all values once more.
        figures.append(f.percentile(value, list(windowing.percentiles)).alias("percentiles"))
    rows = table.groupBy(*groups).agg(*figures)
    names = [name for name in ("key", "count", "sum", "without") if name in rows.columns]
    rows = rows.select(
        f.col("window.start").alias("window_start"),
        f.col("window.end").alias("window_end"),
        *names,
        *(
            f.col("percentiles")[at].alias(f"p{100 * each:g}".replace(".", "_"))
            for at, each in enumerate(windowing.percentiles)
            if windowing.value is not None
        ),
    )
    if after_ms is not None:
        rows = rows.where(f.col("window_end") > f.timestamp_millis(f.lit(after_ms)))
    return rows.observe("written", f.count(f.lit(1)).alias("windows")) if streaming else rows


def _column(name: str) -> Column:
    return f.col(f"`{name.replace('`', '``')}`")


def _dry_run(
    spark: SparkSession,
    streams: str,
    windowing: Windowing,
    names: tuple[str, ...],
    after_ms: int | None,
    given: Mapping[str, str],
) -> Windowed:
    kept = for_batch_reads(given)
    reader = spark.read.format("anabranch").options(**kept).schema(windowing.schema)
    table = reader.options(subscribe=streams, regions=",".join(names)).load()
    read = Observation()
    table = _observed(table, windowing, read)
    count = _results(table, windowing, after_ms, streaming=False).count()
    found = read.get
    return Windowed(
        found["entries"], found["untimed"], count, 0, None, None, names, 1, dry_run=True
    )


# ---------------------------------------------------------------------------------------- progress


class _ProgressSum:
    """Adds up Spark's reports of all batches."""

    def __init__(self, report: Callable[[WindowsProgress], None] | None) -> None:
        self._report = report
        self._sums = dict.fromkeys(("entries", "untimed", "windows", "late"), 0)
        self._open: int | None = None

    def add(self, step: StreamingQueryProgress) -> None:
        figures: dict[str, int] = {"entries": 0, "untimed": 0, "windows": 0}
        for row in step.observedMetrics.values():
            figures.update(row.asDict())
        figures["late"] = sum(each.numRowsDroppedByWatermark for each in step.stateOperators)
        kept = [each for each in step.stateOperators if each.operatorName == "stateStoreSave"]
        self._open = sum(each.numRowsTotal for each in kept)
        for name, value in figures.items():
            self._sums[name] += value
        if self._report is not None:
            self._report(WindowsProgress(step.batchId, figures["entries"], figures["windows"]))

    def result(self, names: tuple[str, ...], starts: int, watermark_ms: int | None) -> Windowed:
        """What all batches did."""
        return Windowed(
            **self._sums,
            open=self._open,
            watermark_ms=watermark_ms,
            regions=names,
            starts=starts,
            dry_run=False,
        )
