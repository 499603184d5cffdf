"""Copies streams into a lake, exactly once; see `anabranch.spark.lake.table`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.spark.connection.client import connect
from anabranch.spark.decoding.columns import CHANGE
from anabranch.spark.jobs.signatures import ArchiveJob, JobStep, Progress, SessionNeeded, taking
from anabranch.spark.lake.files import SCHEMA, LakeError, Run
from anabranch.spark.lake.table import Gap, Lake, PlacePart, drafts_of, entries_of
from anabranch.spark.options import ReadOptions
from anabranch.spark.reading.by_region import committed_offsets
from anabranch.spark.reading.checkpoint import ends_of_batch, newest_batch
from anabranch.spark.reading.holes import DELETE
from anabranch.spark.reading.micro_batches import MicroBatch, read_all
from anabranch.spark.reading.offsets import OffsetError, Range, Vector, place_of
from anabranch.spark.reading.planner import Planner
from anabranch.spark.reading.server_logs import ServerLogs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ALONE_MAX: Final = 2_000_000
"""Up to so many entries are copied here, by Arrow; more of them by Spark."""

# Names that the lake makes itself are left out.
_COLUMNS: Final = pa.schema(
    [SCHEMA.field(name) for name in ("stream", "region", "id", "ts", "seq", "position", "fields")]
)


@dataclass(frozen=True, slots=True)
class Part:
    """The entries of one region of a stream that were, or would be, added."""

    stream: str
    region: str
    entries: int
    """In a dry run at most: entries that were deleted have positions, too."""
    first: int
    last: int
    """Positions of the first and the last entry."""

    def __str__(self) -> str:
        """For people."""
        place = f"{self.stream}/{self.region}" if self.region else self.stream
        return f"{place}: {self.entries:,} entries, positions {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Archived:
    """The size of the lake, and what this run has added, or in a dry run would add."""

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
    erased: int = 0
    """Entries that were deleted from the streams, and now from the lake; in a dry run at most."""


@taking(ArchiveJob)
def archive(spark: SparkSession | None, job: ArchiveJob) -> Archived:
    """Copy streams to a lake, from where the last run ended.

    With `once` it ends when it has all that there was, and needs no session: without one this
    process copies, and a later run may have one. Else it goes on, a batch every `interval_s`
    seconds, until the query is stopped. With `dry_run` no entry is read. Raises what Spark raises,
    `GaveUp`, `LakeError`, and `OptionError`.
    """
    lake = Lake(Path(job.lake).absolute())
    place = Path(job.checkpoint).absolute() if job.checkpoint else lake.root / "_checkpoint"
    options = ReadOptions.parse(job.given)
    _require_new(lake, place, options)
    if job.dry_run:
        ranges, erased = _planned(place, options)
        parts = tuple(
            Part(each.stream, each.region, len(each), each.first, each.stop - 1) for each in ranges
        )
        return replace(_archived(lake, parts, len(parts), 0, 0, dry_run=True), erased=erased)
    known = lake.version()
    before = {each.path for each in lake.files()}
    starts = 1
    if spark is not None:
        query, starts = _by_spark(spark, job, lake.root, place)
    else:
        large = not job.once or (
            job.limited and sum(map(len, _planned(place, options)[0])) > ALONE_MAX
        )
        job.require_session(needed=large)
        if not job.once:
            raise SessionNeeded("to go on, archiving needs a Spark session")
        query = _alone(lake, place, job.progress, options)
    # Others may have committed meanwhile.
    ours = [each for each in lake.history(known) if each.get("query") == query]
    parts = _parts(tuple(part) for each in ours for part in each.get("parts", ()))
    added = [each for each in lake.files() if each.path not in before]
    nbytes = sum(each.nbytes for each in added)
    found = _archived(lake, parts, len(added), nbytes, starts, dry_run=False)
    return replace(found, erased=sum(each.get("erasedEntries", 0) for each in ours))


def _archived(
    lake: Lake, parts: tuple[Part, ...], files: int, nbytes: int, starts: int, *, dry_run: bool
) -> Archived:
    return Archived(
        entries=sum(each.entries for each in parts),
        files=files,
        nbytes=nbytes,
        total=sum(each.rows for each in lake.files()),
        starts=starts,
        gaps=tuple(lake.gaps(sorted({each.stream for each in parts}))) if parts else (),
        parts=parts,
        dry_run=dry_run,
    )


def _alone(lake: Lake, place: Path, progress: Progress, options: ReadOptions) -> str:
    """Copy in this process; returns the ID of the query."""
    done = 0

    def write(batch: MicroBatch) -> None:
        nonlocal done
        erased: list[tuple[str, Run]] = []
        drafts, parts = drafts_of(lake, entries_of(batch.rows, erased))
        lake.erase(batch.query, erased)  # first: it may be done twice
        lake.commit(batch.query, batch.number, drafts, parts)
        entries = sum(each[2] for each in parts)
        done += entries
        progress(_step(batch.number, entries, batch.left, done))

    schema = _COLUMNS.append(pa.field(CHANGE, pa.string())) if options.changes else _COLUMNS
    return read_all(options, place, schema, write)


def _step(batch: int, entries: int, left: int, done: int) -> JobStep:
    """`left`: what the server had when the batch was planned, and is not copied yet."""
    return JobStep(f"batch {batch}: {entries:,} entries, {left:,} left", done)


def _by_spark(spark: SparkSession, job: ArchiveJob, root: Path, place: Path) -> tuple[str, int]:
    """Copy by a query; see `run_query`."""
    from anabranch.spark.lake.sinks import LakeSink  # noqa: PLC0415 - heavy
    from anabranch.spark.runtime.progress import QueryWatch, lags  # noqa: PLC0415 - heavy
    from anabranch.spark.runtime.supervise import run_query  # noqa: PLC0415 - heavy

    spark.dataSource.register(LakeSink)
    copied = 0

    def report(done: StreamingQueryProgress) -> None:
        nonlocal copied
        copied += done.numInputRows
        (source,) = done.sources
        behind = lags("", done.batchId, source.endOffset, source.latestOffset)
        left = sum(each.entries for each in behind)
        job.progress(_step(done.batchId, done.numInputRows, left, copied))

    def writer() -> DataStreamWriter:
        table = spark.readStream.format("anabranch").options(**job.given).load()
        return table.writeStream.format("anabranch-lake").option("path", str(root))

    interval_s = None if job.once else job.interval_s
    return run_query(spark, QueryWatch("archive", report), writer, place, interval_s)


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


def _require_new(lake: Lake, checkpoint: Path, options: ReadOptions) -> None:
    """Raise `LakeError` if a checkpoint would add entries that another one has added.

    The lake recognises repeated batches of a checkpoint itself. So only streams of the lake that
    the checkpoint has not read are examined: as a rule there are none.
    """
    newest = newest_batch(checkpoint, "offsets")
    ends = [] if newest is None else ends_of_batch(checkpoint, newest)
    foreign = {each.stream for each in lake.files()}.difference(*(each.cursors for each in ends))
    if not foreign:
        return
    with connect(options.server) as client:
        server = ServerLogs(options, client)
        logs = {each: some for each, some in server.logs().items() if each in foreign}
        if server.by_id or not logs:
            return
        where = options.starting_offsets, options.starting_timestamp, "earliest"
        start = Vector({}) if ends else server.place(logs, *where)
    for stream, (region, _, last) in lake.runs(sorted(logs)):
        log = logs[stream].get(region)
        begin = start.get(stream, region)
        if log is not None and last >= (log.first if begin is None else begin.position):
            raise LakeError(
                f"{lake.root} has entries of {place_of(stream, region)} up to position {last}, and "
                f"{checkpoint} has not read them: they would be added again. Archive with the "
                "checkpoint that has, begin behind them (startingOffsets), or take another lake"
            )


# ---------------------------------------------------------------------------------------- dry runs


def _planned(checkpoint: Path, options: ReadOptions) -> tuple[list[Range], int]:
    """What a run would copy, and how many entries it would erase from the lake, at most."""
    planner = Planner(replace(options, max_bytes=None))
    try:
        planner.freeze()
        try:
            start = committed_offsets(checkpoint)
        except OffsetError:
            start = planner.initial()
        end = planner.next(start, None) or start
    finally:
        planner.close()
    ranges = end.ranges(start)
    if any(each.by_id for each in ranges):
        raise LakeError("the server has no positions, and a lake needs them")
    gone = (each for each in end.removals(start) if each.kind == DELETE)
    return ranges, sum(each.stop - each.first for each in gone)
