"""Copies a lake back into streams, in the order of the IDs."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.errors import AnabranchError
from anabranch.spark.connection.client import connect, stream_key
from anabranch.spark.jobs.signatures import JobStep, ReplayJob, SessionNeeded, taking
from anabranch.spark.lake.files import LakeError, LakeFile
from anabranch.spark.lake.table import Lake
from anabranch.spark.options import ServerOptions, WriteOptions
from anabranch.spark.writing.layout import PACE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Replayed:
    """The entries that are, or would be, in the target; also those that it had before."""

    entries: int
    streams: tuple[str, ...]
    files: int
    """Files of the lake that are read."""
    first: str | None
    last: str | None
    """The lowest and the highest ID; None without entries."""
    dry_run: bool


_COLUMNS: Final = (
    "region string, id string, ts timestamp, seq bigint, position bigint, "
    "fields array<struct<field:binary,value:binary>>"
)


def table_of(
    spark: SparkSession, lake: str | Path, streams: Sequence[str] | None = None
) -> DataFrame:
    """The newest version of a lake as a table, with the columns of a read; raises `LakeError`.

    It is read from a plain list of files: Spark itself needs no jar of Delta for that.
    """
    root = Path(lake).absolute()
    return _table(spark, root, _files(root, streams))


def _files(root: Path, streams: Sequence[str] | None) -> list[LakeFile]:
    files = Lake(root).files(streams)
    if not files:
        raise LakeError(f"{root} has no file of {', '.join(streams or ['any stream'])}")
    return files


def _table(spark: SparkSession, root: Path, files: list[LakeFile]) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    read = spark.read.schema(_COLUMNS).parquet(*(str(root / each.path) for each in files))
    # Names of files are unique; partitions stand in the log alone.
    named = [(Path(each.path).name, each.stream) for each in files]
    streams = spark.createDataFrame(named, "file string, stream string")
    joined = read.withColumn("file", f.col("_metadata.file_name")).join(
        f.broadcast(streams), "file"
    )
    return joined.select("stream", "region", "id", "ts", "seq", "position", "fields")


@taking(ReplayJob)
def replay(spark: SparkSession | None, job: ReplayJob) -> Replayed:
    """Write entries of a lake to streams called `prefix` + their old name, by the order of IDs.

    With `keep_ids` entries have their old IDs, and those that are there already are left alone;
    otherwise they get new ones, in the old order, over all streams. A second run with the same
    arguments adds only entries that the lake has got since; a run that died is completed, at any
    speed. (With `keep_ids` it fails if an ID is lower than those that are there, such as the ID of
    a region that was late.) `since_ms` and `until_ms` (excluded) select by the time of the ID.
    `speed` 10 writes ten times as fast as the entries were added, without pauses for entries that
    are there already; without it, or with 0, entries are written as fast as possible.

    With new IDs, each target stream keeps a record for each region: how many entries of this lake,
    with this `prefix` and `since_ms`, it has. So a greater `until_ms` adds the entries in between.
    A smaller one fails, and so does a lake that got older entries since; nothing is written twice.
    A server drops records to which nothing was added for 30 days, Redis 8.6 after one day: the next
    replay then writes those entries again.

    `progress` gets by how many entries the target streams have grown: once before the first entry,
    and when they have grown. Raises what Spark raises, `LakeError`, and `OptionError`.
    """
    server = WriteOptions.parse(job.given).server
    root = Path(job.lake).absolute()
    Lake(root).table()
    files = _files(root, job.streams)
    if spark is None:
        raise SessionNeeded("to replay a lake, a Spark session is needed")
    table = _selected(_table(spark, root, files), job)
    result = _summary(table, len(files), job.dry_run)
    if job.dry_run or not result.streams:
        return result
    writer = _in_order(table, job, len(result.streams)).write.format("anabranch").mode("append")
    own = {"preserveIds": "true"}
    if not job.keep_ids:
        # One job for ever, whose batch grows: each region's entries behind those that it had.
        name = _name(Lake(root), job.prefix, job.since_ms)
        own = {"producerId": name, "batchId": "0", "laneColumn": "region"}

    def report(grown: int) -> None:
        text = f"{grown:,} entries added, of {result.entries:,} in the lake"
        job.progress(JobStep(text, grown))

    report(0)
    with growth_reported(server, result.streams, report):
        writer.options(**{**own, **job.given}).save()
    return result


def _selected(table: DataFrame, job: ReplayJob) -> DataFrame:
    """The entries to write, each with the halves of its ID and the new name of its stream."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    # An ID's halves are unsigned: decimals hold them, longs do not.
    halves = f.split(table["id"], "-")
    table = table.withColumns(
        {
            "ms": halves[0].cast("decimal(20,0)"),
            "number": halves[1].cast("decimal(20,0)"),
            "stream": f.concat(f.lit(job.prefix), "stream"),
            PACE: halves[0].cast("double"),
        }
    )
    if job.since_ms is not None:
        table = table.where(f.col("ms") >= job.since_ms)
    if job.until_ms is not None:
        table = table.where(f.col("ms") < job.until_ms)
    return table


def _summary(table: DataFrame, files: int, dry_run: bool) -> Replayed:
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    entry_id = f.struct("ms", "number")
    found = table.groupBy("stream").agg(
        f.count(f.lit(1)).alias("count"), f.min(entry_id).alias("min"), f.max(entry_id).alias("max")
    )
    counts = found.collect()
    names = tuple(sorted(row["stream"] for row in counts))
    entries = sum(row["count"] for row in counts)
    first = min((tuple(row["min"]) for row in counts), default=None)
    last = max((tuple(row["max"]) for row in counts), default=None)
    return Replayed(entries, names, files, _id(first), _id(last), dry_run)


def _in_order(table: DataFrame, job: ReplayJob, streams: int) -> DataFrame:
    """The columns to write, in the order and the partitions in which they are written."""
    from pyspark.sql import Window  # noqa: PLC0415 - heavy
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    order = ["ms", "number", "stream", "region", "position"]
    if not job.keep_ids:
        # What the lake gets later has to come behind what it has, and a region's positions only
        # grow. IDs do so too, unless the stream was made anew in between.
        so_far = Window.partitionBy("stream", "region").orderBy("position")
        reached = f.max(f.struct("ms", "number")).over(so_far)
        table = table.withColumn("reached", reached)
        table = table.withColumn(PACE, f.col("reached.ms").cast("double"))
        order = ["reached", "stream", "region", "position"]
    if job.keep_ids and not job.speed:
        table = table.repartition(streams, "stream").sortWithinPartitions("stream", *order)
    else:
        # Streams keep step in one task only. Rows with new IDs are recognised by
        # their task, so it has to be the same one at every speed.
        table = table.repartition(1).sortWithinPartitions(*order)
    columns = ["stream", "id", "fields"]
    columns += [*([] if job.keep_ids else ["region"]), *([PACE] if job.speed else [])]
    return table.select(*columns)


def _id(halves: tuple[object, ...] | None) -> str | None:
    return None if halves is None else "-".join(map(str, halves))


def _name(lake: Lake, prefix: str, since_ms: int | None) -> str:
    """Who replays: the same for as long as the lake grows, and wherever it is."""
    which = (str(lake.table().metadata().id), prefix, since_ms)
    return f"replay-{hashlib.sha256(repr(which).encode()).hexdigest()[:16]}"


# -------------------------------------------------------------------------------------- progress


@contextmanager
def growth_reported(
    options: ServerOptions,
    streams: Sequence[str],
    report: Callable[[int], None],
    interval_s: float = 2.0,
) -> Iterator[None]:
    """While the block runs, and once at its end, report by how much the streams have grown.

    `report` is called in a separate thread when the growth changes. If the server does not answer,
    nothing is reported. Entries of other writers count, too.
    """
    done = threading.Event()

    def watch(before: int) -> None:
        reported, over = 0, False
        while not over:
            over = done.wait(interval_s)
            now = _entries(options, streams)
            if now is not None and now - before > reported:
                reported = now - before
                report(reported)

    before = _entries(options, streams)
    if before is None:
        yield
        return
    watcher = threading.Thread(target=watch, args=(before,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _entries(options: ServerOptions, streams: Sequence[str]) -> int | None:
    try:
        with connect(replace(options, retries=0)) as client:
            counts: list[int] = client.ask([("XLEN", stream_key(each)) for each in streams])
    except AnabranchError:
        return None
    return sum(counts)
