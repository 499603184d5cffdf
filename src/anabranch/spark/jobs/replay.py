"""A lake back into streams, in the order of the IDs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.spark.lake import Lake, LakeError

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
    dry_run: bool = False,
    options: Mapping[str, str] | None = None,
) -> Replayed:
    """Write entries of a lake to streams called `prefix` + their old name.

    With `keep_ids` entries have their old IDs, and those that are there already are left alone;
    otherwise they get new ones, in the old order. Either way a second run with the same arguments
    adds nothing. `since_ms` and `until_ms` (excluded) select by the time of the ID. Raises what
    Spark raises, and `LakeError`.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - heavy

    table = table_of(spark, lake, streams)
    # An ID's halves are unsigned: decimals hold them, longs do not.
    halves = f.split(table["id"], "-")
    table = table.withColumns(
        {
            "ms": halves[0].cast("decimal(20,0)"),
            "number": halves[1].cast("decimal(20,0)"),
            "stream": f.concat(f.lit(prefix), "stream"),
        }
    )
    if since_ms is not None:
        table = table.where(f.col("ms") >= since_ms)
    if until_ms is not None:
        table = table.where(f.col("ms") < until_ms)
    counted = {row["stream"]: row["count"] for row in table.groupBy("stream").count().collect()}
    result = Replayed(sum(counted.values()), tuple(sorted(counted)), dry_run)
    if dry_run:
        return result
    in_order = table.repartition(len(counted) or 1, "stream").sortWithinPartitions(
        "stream", "ms", "number", "region"
    )
    writer = in_order.select("stream", "id", "fields").write.format("anabranch").mode("append")
    if keep_ids:
        writer = writer.option("preserveIds", "true")
    else:
        # The same selection of the same files is the same job, whoever runs it again.
        said = repr((Lake(lake).files(), sorted(counted), since_ms, until_ms, prefix))
        name = hashlib.sha256(said.encode()).hexdigest()[:16]
        writer = writer.option("producerId", f"replay-{name}").option("batchId", "0")
    writer.option("url", url).options(**(options or {})).save()
    return result
