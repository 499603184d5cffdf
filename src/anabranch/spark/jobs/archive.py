"""Copies streams into a lake, exactly once; see `anabranch.spark.lake.table`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import astuple, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from anabranch.spark.connection.client import connect
from anabranch.spark.decoding.columns import CHANGE, Projection
from anabranch.spark.jobs.signatures import ArchiveJob, taking
from anabranch.spark.lake.files import SCHEMA, LakeError, LakeFile, Run
from anabranch.spark.lake.table import Gap, Lake, drafts_of, entries_of, places_of
from anabranch.spark.options import ReadOptions
from anabranch.spark.reading.by_region import committed_offsets
from anabranch.spark.reading.checkpoint import ends_of_batch, newest_batch
from anabranch.spark.reading.executor import read_partition
from anabranch.spark.reading.holes import DELETE
from anabranch.spark.reading.micro_batches import MicroBatch, MicroBatches, query_of
from anabranch.spark.reading.offsets import Range, Vector, place_of
from anabranch.spark.reading.partitions import Partition
from anabranch.spark.reading.planner import Planner
from anabranch.spark.reading.server_logs import ServerLogs
from anabranch.spark.runtime.rounds import in_rounds
from anabranch.spark.runtime.supervise import supervise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    This process plans and commits the batches. Executors copy the entries, or without a session
    this process does; a later run may be of the other kind. With `once` it ends when it has all
    that there was. Else it goes on, a batch every `interval_s` seconds, until `stop` is set, and
    begins again after a failure. With `dry_run` no entry is read. Raises what Spark raises,
    `LakeError`, `OptionError`, and what `MicroBatches` raises; without `once` `GaveUp`.
    """
    lake = Lake(Path(job.lake).absolute())
    place = Path(job.checkpoint).absolute() if job.checkpoint else lake.root / "_checkpoint"
    options = job.read
    _require_new(lake, place, options)
    if job.dry_run:
        ranges, erased = _planned(place, options)
        parts = tuple(
            Part(each.stream, each.region, len(each), each.first, each.stop - 1) for each in ranges
        )
        return replace(_archived(lake, parts, len(parts), 0, dry_run=True), erased=erased)
    known = lake.version()
    before = {each.path for each in lake.files()}
    start = partial(_Copying, spark, lake, place, job)
    if job.once:
        start().awaitTermination()
    else:
        supervise(start, sleep=job.stop.wait)
    query = query_of(place)
    # Others may have committed meanwhile.
    ours = [each for each in lake.history(known) if each.get("query") == query]
    places = places_of(part for each in ours for part in each.get("parts", ()))
    parts = tuple(Part(*each, *figures) for each, figures in sorted(places.items()))
    added = [each for each in lake.files() if each.path not in before]
    nbytes = sum(each.nbytes for each in added)
    found = _archived(lake, parts, len(added), nbytes, dry_run=False)
    return replace(found, erased=sum(each.get("erasedEntries", 0) for each in ours))


def _archived(
    lake: Lake, parts: tuple[Part, ...], files: int, nbytes: int, *, dry_run: bool
) -> Archived:
    return Archived(
        entries=sum(each.entries for each in parts),
        files=files,
        nbytes=nbytes,
        total=sum(each.rows for each in lake.files()),
        gaps=tuple(lake.gaps(sorted({each.stream for each in parts}))) if parts else (),
        parts=parts,
        dry_run=dry_run,
    )


class _Copying:
    """One run of the query of an archive, as `supervise` runs queries."""

    def __init__(
        self, spark: SparkSession | None, lake: Lake, place: Path, job: ArchiveJob
    ) -> None:
        """Connects."""
        self._spark = spark
        self._lake = lake
        self._job = job
        self._options = job.read
        self._batches = MicroBatches(self._options, place, once=job.once)
        self.lastProgress: dict[str, Any] | None = None

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        """Copy batch by batch, until all is copied, or the job is stopped."""
        job = self._job
        with closing(self._batches) as batches:
            while not job.stop.is_set():
                batch = batches.next()
                if batch is not None:
                    entries = self._write(batch)
                    batches.commit()
                    job.progress(f"batch {batch.number}: {entries:,} entries, {batch.left:,} left")
                    self.lastProgress = {"batchId": batch.number}
                elif job.once:
                    return
                if not job.once and (batch is None or not batch.left):
                    job.stop.wait(job.interval_s)

    def _write(self, batch: MicroBatch) -> int:
        """Copy a batch; how many entries it has."""
        lake, options = self._lake, self._options
        columns = _COLUMNS.append(pa.field(CHANGE, pa.string())) if options.changes else _COLUMNS
        projection = Projection.of(columns, options)

        def work(partition: Partition) -> list[Any]:
            runs: list[tuple[str, Run]] = []
            rows = read_partition(partition, options, projection)
            drafts, parts = drafts_of(lake, entries_of(rows, runs))
            return [[astuple(each)[:-1] for each in drafts], parts, runs]

        if self._spark is None:
            results = [work(tuple(chain(*batch.partitions)))]
        else:
            count = len(batch.partitions)
            results = [*in_rounds(self._spark, batch.partitions, work, max(count, 1))]
        drafts = [LakeFile(*facts) for made, *_ in results for facts in made]
        parts = [tuple(part) for _, some, _ in results for part in some]
        erased = [(stream, tuple(run)) for *_, runs in results for stream, run in runs]
        # First: it may be done twice, and a batch that is committed is not repeated.
        lake.erase(self._batches.query, erased)
        lake.commit(self._batches.query, batch.number, drafts, parts)
        return sum(part[2] for part in parts)


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
        is_new = newest_batch(checkpoint, "commits") is None
        start = planner.initial() if is_new else committed_offsets(checkpoint)
        end = planner.next(start, None) or start
    finally:
        planner.close()
    ranges = end.ranges(start)
    if any(each.by_id for each in ranges):
        raise LakeError("the server has no positions, and a lake needs them")
    gone = (each for each in end.removals(start) if each.kind == DELETE)
    return ranges, sum(each.stop - each.first for each in gone)
