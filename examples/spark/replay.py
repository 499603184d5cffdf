"""Copies a lake back into streams, in the order of the IDs: with the old IDs, or with new ones.

    python replay.py lake/ --url redis://other:6379
    python replay.py lake/ --prefix again: --new-ids
    python replay.py lake/ --prefix again: --since-ms 1718000000000 --speed 10

The lake is one of `anabranch spark archive`. Another run with the same arguments adds the entries
that the lake has got since; a run that died is completed. XLEN of the streams shows how far it is.

With the old IDs, entries that are there already are left alone, and a run fails if an ID is lower
than those that are there, such as the ID of a region that was late. With new IDs the target keeps a
record for each region: how many entries of this lake, with this prefix and start, it has. So a
later end adds the entries in between. An earlier one fails, and so does a lake that got older
entries since; nothing is written twice. A server drops records to which nothing was added for 30
days, Redis 8.6 after one day: the next run then writes those entries again.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa
import redis
from deltalake import DeltaTable
from pyspark.sql import Window
from pyspark.sql import functions as f

from anabranch.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_IN_FILES: Final = (
    "region string, id string, ts timestamp, seq bigint, position bigint, "
    "fields array<struct<field:binary,value:binary>>"
)


class ReplayError(Exception):
    """The lake cannot be replayed; the text says why."""


@dataclass(frozen=True)
class Selection:
    """Entries of a lake, and what their streams are called."""

    streams: Sequence[str] = ()
    """Keys; all of them by default."""
    since_ms: int | None = None
    """Only IDs from this time on."""
    until_ms: int | None = None
    """Only IDs before this time."""
    prefix: str = ""
    """Put before the names of streams."""


@dataclass(frozen=True)
class Target:
    """Where the entries go, and how."""

    url: str = "redis://127.0.0.1:6379"
    keep_ids: bool = True
    """Entries have their old IDs, or get new ones in the old order, over all streams."""
    speed: float | None = None
    """10: ten times as fast as they were written, with their IDs; None: as fast as possible."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the write."""


@dataclass(frozen=True)
class Replayed:
    """The entries that are, or would be, in the target; also those that it had before."""

    entries: int
    streams: tuple[str, ...]
    first: str | None
    last: str | None
    """The lowest and the highest ID; None without entries."""


def table_of(spark: SparkSession, lake: str | Path, streams: Sequence[str] = ()) -> DataFrame:
    """The newest version of a lake as a table, with the columns of a read; raises `ReplayError`.

    Spark needs no jar of Delta, because it reads the files that are in the log.
    """
    log = pa.table(DeltaTable(str(lake)).get_add_actions(flatten=True)).to_pydict()
    stream_of = {
        unquote(path): stream or ""
        for path, stream in zip(log["path"], log["partition.stream"], strict=True)
        if not streams or (stream or "") in streams
    }
    if not stream_of:
        raise ReplayError(f"{lake} has no file of {', '.join(streams) or 'any stream'}")
    files = spark.read.schema(_IN_FILES).parquet(*(f"{lake}/{path}" for path in stream_of))
    # The directory of a stream with a long name does not tell it; names of files are unique.
    named = [(Path(path).name, stream) for path, stream in stream_of.items()]
    names = f.broadcast(spark.createDataFrame(named, "file string, stream string"))
    joined = files.withColumn("file", f.col("_metadata.file_name")).join(names, "file")
    return joined.select("stream", "region", "id", "ts", "seq", "position", "fields")


def replay(
    spark: SparkSession,
    lake: str | Path,
    selection: Selection,
    target: Target,
    *,
    dry_run: bool = False,
) -> Replayed:
    """Write entries of a lake to streams; a dry run only counts them.

    Raises `ReplayError`, `redis.RedisError` and what Spark raises.
    """
    if target.speed is not None and (target.speed <= 0 or not target.keep_ids):
        raise ReplayError("a speed is above 0, and for entries that keep their IDs")
    table = selected(table_of(spark, lake, selection.streams), selection)
    found = summary(table)
    if dry_run or not found.streams:
        return found
    if target.speed is not None:
        add_at_speed(table.orderBy("ms", "number", "stream"), target.url, target.speed)
        return found
    if target.keep_ids:
        rows = table.repartition(len(found.streams), "stream")
        rows = rows.sortWithinPartitions("stream", "ms", "number").select("stream", "id", "fields")
        own = {"preserveIds": "true"}
    else:
        # One job for ever, whose batch grows: each region's entries behind those that it had.
        rows = in_order(table).select("stream", "region", "fields")
        own = {"producerId": name_of(lake, selection), "batchId": "0", "laneColumn": "region"}
    writer = rows.write.format("anabranch").mode("append").options(**own)
    writer.options(url=target.url, **target.options).save()
    return found


def selected(table: DataFrame, selection: Selection) -> DataFrame:
    """The entries to write, each with the halves of its ID and the new name of its stream."""
    # An ID's halves are unsigned: decimals hold them, longs do not.
    halves = f.split(table["id"], "-")
    table = table.withColumns(
        {
            "ms": halves[0].cast("decimal(20,0)"),
            "number": halves[1].cast("decimal(20,0)"),
            "stream": f.concat(f.lit(selection.prefix), "stream"),
        }
    )
    if selection.since_ms is not None:
        table = table.where(f.col("ms") >= selection.since_ms)
    if selection.until_ms is not None:
        table = table.where(f.col("ms") < selection.until_ms)
    return table


def summary(table: DataFrame) -> Replayed:
    """Count the entries of all streams."""
    place = f.struct("ms", "number")
    counts = table.groupBy("stream").agg(
        f.count(f.lit(1)).alias("count"), f.min(place).alias("min"), f.max(place).alias("max")
    )
    rows = counts.collect()
    first = min((tuple(row["min"]) for row in rows), default=None)
    last = max((tuple(row["max"]) for row in rows), default=None)
    ids = (None if each is None else "-".join(map(str, each)) for each in (first, last))
    names = tuple(sorted(row["stream"] for row in rows))
    return Replayed(sum(row["count"] for row in rows), names, *ids)


def in_order(table: DataFrame) -> DataFrame:
    """All rows in one partition, in the order in which they get new IDs.

    What the lake gets later has to come behind what it has, and a region's positions only grow. IDs
    do so too, unless the stream was made anew in between.
    """
    so_far = Window.partitionBy("stream", "region").orderBy("position")
    reached = f.max(f.struct("ms", "number")).over(so_far)
    table = table.withColumn("reached", reached).repartition(1)
    return table.sortWithinPartitions("reached", "stream", "region", "position")


def name_of(lake: str | Path, selection: Selection) -> str:
    """Who replays: the same for as long as the lake grows, and wherever it is."""
    table = str(DeltaTable(str(lake)).metadata().id)
    which = repr((table, selection.prefix, selection.since_ms))
    return f"replay-{hashlib.sha256(which.encode()).hexdigest()[:16]}"


def add_at_speed(rows: DataFrame, url: str, speed: float) -> None:
    """Add rows, which are in order, with their IDs, `speed` times as fast as they were written.

    Nobody waits for what is there: the clock starts at the first row that its stream lacks.
    """
    last: dict[str, tuple[int, int]] = {}
    start: tuple[float, int] | None = None
    with redis.Redis.from_url(url) as server:
        for row in rows.toLocalIterator(prefetchPartitions=True):
            if row.stream not in last:
                last[row.stream] = _last_id(server, row.stream)
            ms = int(row.ms)
            if (ms, int(row.number)) <= last[row.stream]:
                continue
            start = start or (time.monotonic(), ms)
            due = start[0] + (ms - start[1]) / 1000 / speed
            time.sleep(max(0.0, due - time.monotonic()))
            words = map(bytes, chain.from_iterable(row.fields))
            server.execute_command("XADD", row.stream, row.id, *words)


def _last_id(server: redis.Redis, stream: str) -> tuple[int, int]:
    try:
        ms, number = server.xinfo_stream(stream)["last-generated-id"].split(b"-")
    except redis.ResponseError as error:
        if "no such key" not in str(error):
            raise
        return 0, 0
    return int(ms), int(number)


def main() -> None:
    """Replay by the words of the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("lake", help="its directory")
    parser.add_argument("--url", default=Target.url)
    parser.add_argument("--streams", default="", help="keys, separated by commas; all by default")
    parser.add_argument("--since-ms", type=int, help="only IDs from this time on")
    parser.add_argument("--until-ms", type=int, help="only IDs before this time")
    parser.add_argument("--prefix", default="", help="put this before the names of streams")
    parser.add_argument("--new-ids", action="store_true", help="new IDs, in the old order")
    parser.add_argument("--speed", type=float, help="10: ten times as fast as they were written")
    parser.add_argument("--master", default="local[2,4]", help="where Spark runs")
    parser.add_argument("-o", action="append", default=[], help="option of the write: NAME=VALUE")
    parser.add_argument("--dry-run", action="store_true", help="count only")
    given = parser.parse_args()
    streams = tuple(filter(None, given.streams.split(",")))
    selection = Selection(streams, given.since_ms, given.until_ms, given.prefix)
    options = dict(each.split("=", 1) for each in given.o)
    target = Target(given.url, not given.new_ids, given.speed, options)
    spark = session("replay", given.master)
    try:
        done = replay(spark, given.lake, selection, target, dry_run=given.dry_run)
    except ReplayError as problem:
        sys.exit(f"replay: {problem}")
    verb = "would be" if given.dry_run else "are"
    print(f"{done.entries:,} entries {verb} in {', '.join(done.streams) or 'no stream'}")
    if done.entries:
        print(f"from {done.first} to {done.last}")


if __name__ == "__main__":
    main()
