"""Streams into a lake of Parquet files, exactly once; see `anabranch.spark.lake`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.spark.lake import Gap, Lake, LakeSink
from anabranch.spark.supervise import supervise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Archived", "archive"]


@dataclass(frozen=True, slots=True)
class Archived:
    """What the lake holds now, and what this run added."""

    entries: int
    """Entries added."""
    files: int
    """Files added."""
    nbytes: int
    """Bytes added."""
    total: int
    """Entries in the lake."""
    starts: int
    """How often the query had to be started."""
    gaps: tuple[Gap, ...]
    """Positions missing between files: entries that were deleted, or trimmed before they were
    read."""


def archive(
    spark: SparkSession,
    lake: str | Path,
    *,
    once: bool = True,
    checkpoint: str | Path | None = None,
    interval_s: float = 10.0,
    options: Mapping[str, str] | None = None,
) -> Archived:
    """Copy streams to a lake, from where the last run ended.

    `options` are those of a read: url, subscribe, maxEntriesPerTrigger ... With `once` it ends when
    it has all that there was; else it goes on, a batch every `interval_s` seconds, until the query
    is stopped. The checkpoint is kept in the lake, unless a directory is given. Raises what Spark
    raises, and `GaveUp`.
    """
    root = Path(lake).absolute()
    place = str(checkpoint or root / "_checkpoint")
    spark.dataSource.register(LakeSink)
    known = len(Lake(root).manifests())
    query = ""

    def start() -> StreamingQuery:
        nonlocal query
        reader = spark.readStream.format("anabranch").options(
            **{"startingOffsets": "earliest", **(options or {})}
        )
        writer = reader.load().writeStream.format("anabranch-lake").option("path", str(root))
        writer = writer.option("checkpointLocation", place)
        interval = {"availableNow": True} if once else {"processingTime": f"{interval_s} seconds"}
        started = writer.trigger(**interval).start()
        query = str(started.id)  # of the checkpoint, so the same in every start
        return started

    run = supervise(start, failures_max=0 if once else 10)
    found = Lake(root)
    files = found.files()
    # Others may have published meanwhile, and `compact` may have replaced what this run added.
    ours = (each for each in found.manifests()[known:] if each.query == query)
    added = [each for manifest in ours for each in manifest.files]
    return Archived(
        entries=sum(each.rows for each in added),
        files=len(added),
        nbytes=sum(each.nbytes for each in added),
        total=sum(each.rows for each in files),
        starts=run.starts,
        gaps=tuple(found.gaps()),
    )
