"""Copies a lake back into streams, in the order of the IDs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.spark.lake.table import Lake, LakeError, LakeFile
from anabranch.spark.options import WriteOptions
from anabranch.spark.writing.growth import growth_reported
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


def table_of(spark: SparkSession, lake: str | Path, streams: list[str] | None = None) -> DataFrame:
    """The newest version of a lake as a table, with the columns of a read; raises `LakeError`.

    It is read from a plain list of files: Spark itself needs no jar of Delta for that.
    """
    root = Path(lake).absolute()
    return _table(spark, root, _files(root, streams))


def _files(root: Path, streams: list[str] | None) -> list[LakeFile]:
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


def replay(
    spark: SparkSession,
    lake: str | Path,
    *,
    url: str,
    streams: list[str] | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
    prefix: str = "",
    keep_ids: bool = True,
    speed: float | None = None,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
    options: Mapping[str, str] | None = None,
) -> Replayed:
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

    `progress` gets by how many entries the target streams have grown so far, and how many there are
    to write or to find there: once before the first entry, and when they have grown.

    Raises what Spark raises, `LakeError`, and `OptionError`.
    """
    from pyspark.sql import Window  # noqa: PLC0415 - heavy
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    given = {"url": url, "speed": str(speed or 0), **(options or {})}
    server = WriteOptions.parse(given).server
    root = Path(lake).absolute()
    files = _files(root, streams)
    table = _table(spark, root, files)
    # An ID's halves are unsigned: decimals hold them, longs do not.
    halves = f.split(table["id"], "-")
    table = table.withColumns(
        {
            "ms": halves[0].cast("decimal(20,0)"),
            "number": halves[1].cast("decimal(20,0)"),
            "stream": f.concat(f.lit(prefix), "stream"),
            PACE: halves[0].cast("double"),
        }
    )
    if since_ms is not None:
        table = table.where(f.col("ms") >= since_ms)
    if until_ms is not None:
        table = table.where(f.col("ms") < until_ms)
    entry_id = f.struct("ms", "number")
    found = table.groupBy("stream").agg(
        f.count(f.lit(1)).alias("count"), f.min(entry_id).alias("min"), f.max(entry_id).alias("max")
    )
    counts = found.collect()
    names = tuple(sorted(row["stream"] for row in counts))
    entries = sum(row["count"] for row in counts)
    first = min((tuple(row["min"]) for row in counts), default=None)
    last = max((tuple(row["max"]) for row in counts), default=None)
    result = Replayed(entries, names, len(files), _id(first), _id(last), dry_run)
    if dry_run or not names:
        return result
    order = ["ms", "number", "stream", "region", "position"]
    if not keep_ids:
        # What the lake gets later has to come behind what it has, and a region's positions only
        # grow. IDs do so too, unless the stream was made anew in between.
        so_far = Window.partitionBy("stream", "region").orderBy("position")
        reached = f.max(f.struct("ms", "number")).over(so_far)
        table = table.withColumn("reached", reached)
        table = table.withColumn(PACE, f.col("reached.ms").cast("double"))
        order = ["reached", "stream", "region", "position"]
    if keep_ids and not speed:
        in_order = table.repartition(len(names), "stream").sortWithinPartitions("stream", *order)
    else:
        # Streams keep step in one task only. Rows with new IDs are recognised by
        # their task, so it has to be the same one at every speed.
        in_order = table.repartition(1).sortWithinPartitions(*order)
    if keep_ids:
        given = {"preserveIds": "true", **given}
    else:
        # One job for ever, whose batch grows: each region's entries behind those that it had.
        name = _name(Lake(root), prefix, since_ms)
        given = {"producerId": name, "batchId": "0", "laneColumn": "region", **given}
    columns = ["stream", "id", "fields"]
    columns += [*([] if keep_ids else ["region"]), *([PACE] if speed else [])]
    writer = in_order.select(*columns).write.format("anabranch").mode("append").options(**given)
    watching: AbstractContextManager[None] = nullcontext()
    if progress is not None:
        report = progress
        report(0, entries)
        watching = growth_reported(server, names, lambda grown: report(grown, entries))
    with watching:
        writer.save()
    return result


def _id(halves: tuple[object, ...] | None) -> str | None:
    return None if halves is None else "-".join(map(str, halves))


def _name(lake: Lake, prefix: str, since_ms: int | None) -> str:
    """Who replays: the same for as long as the lake grows, and wherever it is."""
    about = lake.table().metadata()
    # A migrated lake goes on under the name that it had.
    first = json.loads(about.description) if about.description else [str(about.id)]
    which = (*first, prefix, since_ms)
    return f"replay-{hashlib.sha256(repr(which).encode()).hexdigest()[:16]}"
