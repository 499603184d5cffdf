"""A lake back into streams, in the order of the IDs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.spark.lake import Lake, LakeError
from anabranch.spark.pacing import PACE, PacedSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Replayed", "replay", "table_of"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was written, or would be."""

    entries: int
    streams: tuple[str, ...]
    dry_run: bool


def table_of(spark: SparkSession, lake: str | Path, streams: list[str] | None = None) -> DataFrame:
    """The published files as a table, with the columns of a read; raises `LakeError`."""
    root = Path(lake).absolute()
    files = [each for each in Lake(root).files() if not streams or each.stream in streams]
    if not files:
        raise LakeError(f"{root} has no file of {', '.join(streams or ['any stream'])}")
    return spark.read.parquet(*(str(root / each.path) for each in files))


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
    options: Mapping[str, str] | None = None,
) -> Replayed:
    """Write entries of a lake to streams called `prefix` + their old name, by the order of IDs.

    With `keep_ids` entries have their old IDs, and those that are there already are left alone;
    otherwise they get new ones, in the old order, over all streams. Either way a second run with
    the same arguments adds nothing, and one that died is completed, at whatever speed. `since_ms`
    and `until_ms` (excluded) select by the time of the ID. `speed` 10 writes ten times as fast as
    the times of the IDs went by, without pausing for what is there already; without it, or with 0,
    entries are written as fast as possible. Raises what Spark raises, `LakeError`, and `ValueError`
    for a speed that is none.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    if speed is not None and not 0 <= speed < math.inf:
        raise ValueError(f"a speed is a number from 0 on, not {speed}")
    table = table_of(spark, lake, streams)
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
    # The entries themselves, and not the files they are in: those may be merged between two runs.
    which = f.bit_xor(f.xxhash64("region", "position", "id")).alias("which")
    counts = table.groupBy("stream").agg(f.count(f.lit(1)).alias("count"), which).collect()
    found = sorted((row["stream"], row["count"], row["which"]) for row in counts)
    names = tuple(name for name, _, _ in found)
    result = Replayed(sum(count for _, count, _ in found), names, dry_run)
    if dry_run or not found:
        return result
    order = ("ms", "number", "stream", "region", "position")
    if keep_ids and not speed:
        in_order = table.repartition(len(found), "stream").sortWithinPartitions("stream", *order)
    else:
        # Streams keep step in one task only. New IDs are told apart by the task that brought them:
        # it has to be the same one at every speed.
        in_order = table.repartition(1).sortWithinPartitions(*order)
    columns = ["stream", "id", "fields"]
    if speed:
        spark.dataSource.register(PacedSink)
        writer = in_order.select(*columns, PACE).write.format("anabranch-paced")
        writer = writer.option("speed", speed)
    else:
        writer = in_order.select(*columns).write.format("anabranch")
    writer = writer.mode("append").option("url", url)
    if keep_ids:
        writer = writer.option("preserveIds", "true")
    else:
        # The same entries are the same job, whoever writes them again.
        name = hashlib.sha256(repr(found).encode()).hexdigest()[:16]
        writer = writer.option("producerId", f"replay-{name}").option("batchId", "0")
    writer.options(**(options or {})).save()
    return result
