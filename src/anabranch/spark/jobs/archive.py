"""Streams into a lake, exactly once; see `anabranch.spark.lake`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.spark.client import connect
from anabranch.spark.heads import Survey
from anabranch.spark.lake import Gap, Lake, LakeError
from anabranch.spark.lake_sink import LakeSink, PlacePart
from anabranch.spark.losses import ADVICE, DataLossError, losses
from anabranch.spark.offsets import OffsetError, Vector
from anabranch.spark.options import OptionError, ReadOptions
from anabranch.spark.progress import lags
from anabranch.spark.regions import committed_offsets
from anabranch.spark.supervise import supervise
from anabranch.spark.watching import QueryWatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Archived", "Part", "Step", "archive"]


@dataclass(frozen=True, slots=True)
class Part:
    """What was added of one region of a stream, or would be."""

    stream: str
    region: str
    entries: int
    """In a dry run at most: entries that were deleted have positions, too."""
    first: int
    last: int
    """Positions of the first and the last entry."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What the lake holds now, and what this run added, or would add."""

    entries: int
    """Entries added; in a dry run at most so many."""
    files: int
    """Files added; in a dry run so many at least: each day has its own, and each batch."""
    nbytes: int
    """Bytes added; in a dry run not known, and 0."""
    total: int
    """Entries in the lake."""
    starts: int
    """How often the query had to be started."""
    gaps: tuple[Gap, ...]
    """Positions that no entry of these streams has: deleted, or trimmed before they were read."""
    parts: tuple[Part, ...]
    """The entries added, by stream and region."""
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One batch, for whoever watches."""

    batch: int
    entries: int
    left: int
    """Entries that the server had when the batch was planned, and that are still to come."""


def archive(
    spark: SparkSession | None,
    lake: str | Path,
    *,
    once: bool = True,
    checkpoint: str | Path | None = None,
    interval_s: float = 10.0,
    dry_run: bool = False,
    progress: Callable[[Step], None] | None = None,
    options: Mapping[str, str] | None = None,
) -> Archived:
    """Copy streams to a lake, from where the last run ended.

    `options` are those of a read: url, subscribe, maxEntriesPerTrigger ... With `once` it ends when
    it has all that there was; else it goes on, a batch every `interval_s` seconds, until the query
    is stopped. The checkpoint is kept in the lake, unless a directory is given. With `dry_run`
    nothing is read or written but what the server and the lake say of themselves, and no session is
    needed. `progress` gets each batch. Raises what Spark raises, `GaveUp`, `LakeError`, and
    `OptionError`.
    """
    root = Path(lake).absolute()
    place = Path(checkpoint).absolute() if checkpoint is not None else root / "_checkpoint"
    given = dict(options or {})
    if not {"startingoffsets", "startingtimestamp"} & {name.lower() for name in given}:
        given["startingOffsets"] = "earliest"
    if dry_run:
        return _planned(Lake(root), place, ReadOptions.parse(given))
    if spark is None:
        raise OptionError("archiving needs a Spark session, but for a dry run")
    session = spark
    session.dataSource.register(LakeSink)
    known = Lake(root).version()
    before = {each.path for each in Lake(root).files()}
    watch = None if progress is None else QueryWatch("archive", _steps(progress))
    query = ""

    def start() -> StreamingQuery:
        nonlocal query
        table = session.readStream.format("anabranch").options(**given).load()
        writer = table.writeStream.format("anabranch-lake").option("path", str(root))
        writer = writer.option("checkpointLocation", str(place))
        if watch is not None:
            writer = writer.queryName(watch.name)
        interval = {"availableNow": True} if once else {"processingTime": f"{interval_s} seconds"}
        started = writer.trigger(**interval).start()
        query = str(started.id)  # of the checkpoint, so the same in every start
        return started

    failures = 0 if once else 10
    if watch is None:
        run = supervise(start, failures_max=failures)
    else:
        run = watch.during(session, lambda: supervise(start, failures_max=failures))
    found = Lake(root)
    files = found.files()
    # Others may have committed meanwhile.
    ours = [each for each in found.history(known) if each.get("query") == query]
    parts = _parts(tuple(part) for each in ours for part in each["parts"])
    added = [each for each in files if each.path not in before]
    return Archived(
        entries=sum(each.entries for each in parts),
        files=len(added),
        nbytes=sum(each.nbytes for each in added),
        total=sum(each.rows for each in files),
        starts=run.starts,
        gaps=tuple(found.gaps(sorted({each.stream for each in parts}))) if parts else (),
        parts=parts,
        dry_run=False,
    )


def _parts(found: Iterable[PlacePart]) -> tuple[Part, ...]:
    places: dict[tuple[str, str], list[PlacePart]] = {}
    for each in found:
        places.setdefault(each[:2], []).append(each)
    return tuple(
        Part(
            *place,
            sum(each[2] for each in some),
            min(each[3] for each in some),
            max(each[4] for each in some),
        )
        for place, some in sorted(places.items())
    )


def _steps(progress: Callable[[Step], None]) -> Callable[[StreamingQueryProgress], None]:
    def report(told: StreamingQueryProgress) -> None:
        (source,) = told.sources
        left = sum(
            each.entries for each in lags("", told.batchId, source.endOffset, source.latestOffset)
        )
        progress(Step(told.batchId, told.numInputRows, left))

    return report


# ---------------------------------------------------------------------------------------- dry runs


def _planned(lake: Lake, checkpoint: Path, options: ReadOptions) -> Archived:
    """What a run would add, by what the server says of its streams."""
    with connect(options.server) as client:
        survey = Survey(options, client)
        if survey.by_id:
            raise LakeError(
                f"the server at {client.address} has no positions, and a lake needs them"
            )
        heads = survey.heads()
        survey.check_regions()
        try:
            start = committed_offsets(checkpoint)
        except OffsetError:
            start = survey.place(
                heads, options.starting_offsets, options.starting_timestamp, "earliest"
            )
        lost = losses(start, heads, survey)
    if lost and options.fail_on_data_loss:
        raise DataLossError(f"{'; '.join(lost)}. {ADVICE}")
    end = Vector(
        {
            stream: {region: head.end for region, head in regions.items()}
            for stream, regions in heads.items()
        }
    )
    parts = tuple(
        Part(each.stream, each.region, len(each), each.first, each.stop - 1)
        for each in end.ranges(start)
    )
    return Archived(
        entries=sum(each.entries for each in parts),
        files=len(parts),
        nbytes=0,
        total=sum(each.rows for each in lake.files()),
        starts=0,
        gaps=tuple(lake.gaps(sorted({each.stream for each in parts}))) if parts else (),
        parts=parts,
        dry_run=True,
    )
