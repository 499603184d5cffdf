"""Merges small files of a lake into larger ones, while others read and write it.

A merged file has a digest in its name, as every other one. One commit replaces the merged files,
and these stay on disk for readers of older versions, for the retention time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.spark.jobs.signatures import CompactJob, Progress, taking
from anabranch.spark.lake.files import LakeFile, merge
from anabranch.spark.lake.table import Lake, Merge
from anabranch.spark.runtime.rounds import ROUND, in_rounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNCOMMITTED_HOURS: Final = 168  # what no version has may belong to a batch that is repeated


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result, or in a dry run the expected one."""

    merged: int
    """Files that were replaced."""
    made: int
    """Files that took their place."""
    nbytes_before: int
    nbytes_after: int
    """Of the lake; in a dry run not known, and 0."""
    removed: int
    """Files that no version within the retention time has."""
    findings: tuple[str, ...]
    """Files that have changed since they were committed: they are not merged, and neither are those
    that were to be merged with them."""
    dry_run: bool


@taking(CompactJob)
def compact(spark: SparkSession | None, job: CompactJob) -> Compacted:
    """Merge the files of each stream and day up to `target_mib`; remove files that are too old.

    It may be killed at any moment and run again, and run beside `archive`, beside itself and beside
    readers of versions not older than `retain_hours`. Files are examined as they are merged, by
    `spark` if it is given. Raises `LakeError` and what Spark raises.
    """
    lake = Lake(Path(job.lake).absolute())
    lake.table()
    target_bytes = job.target_mib << 20
    with lake.alone():
        files = lake.files(job.streams)
        bins = _bins([each for each in files if each.nbytes < target_bytes], target_bytes)
        nbytes = sum(each.nbytes for each in files)
        if job.dry_run:
            removed = len(_vacuumed(lake, job.retain_hours, dry_run=True))
            parts = sum(map(len, bins))
            return Compacted(parts, len(bins), nbytes, 0, removed, (), dry_run=True)
        put, problems = _merged(lake, spark, bins, job.progress)
        return Compacted(
            merged=sum(len(parts) for parts, _ in put),
            made=len(put),
            nbytes_before=nbytes,
            nbytes_after=sum(each.nbytes for each in lake.files(job.streams)),
            removed=len(_vacuumed(lake, job.retain_hours, dry_run=False)),
            findings=tuple(problems),
            dry_run=False,
        )


def _merged(
    lake: Lake, spark: SparkSession | None, bins: Sequence[list[LakeFile]], progress: Progress
) -> tuple[list[Merge], list[str]]:
    """Merge the files of each bin; which merges were committed, and the problems of files."""
    root = lake.root

    def work(files: list[LakeFile]) -> list[Any]:
        draft, problems = merge(root, files)
        return [draft and astuple(draft)[:-1], problems]

    put: list[Merge] = []
    problems: list[str] = []
    for at in range(0, len(bins), ROUND):
        some = bins[at : at + ROUND]
        merges: list[Merge] = []
        for files, (draft, said) in zip(some, in_rounds(spark, some, work), strict=True):
            problems += said
            if draft is not None:
                merges.append((files, LakeFile(*draft)))
        put += lake.replace(merges)
        progress(f"{at + len(some)} of {len(bins)} days merged")
    return put, problems


def _bins(files: Iterable[LakeFile], target_bytes: int) -> list[list[LakeFile]]:
    """Files of the same stream and day to be merged, up to a size; those come in this order."""
    found: list[list[LakeFile]] = []
    size = 0
    for file in files:
        size += file.nbytes
        before = found[-1][-1] if found else None
        if (
            before is None
            or (before.stream, before.date) != (file.stream, file.date)
            or size > target_bytes
        ):
            found.append([])
            size = file.nbytes
        found[-1].append(file)
    return [each for each in found if len(each) > 1]


def _vacuumed(lake: Lake, retain_hours: int, *, dry_run: bool) -> list[str]:
    """Remove replaced files, and those of commits that never came; which ones they are."""
    gone: list[str] = []
    for hours, full in ((retain_hours, False), (max(retain_hours, _UNCOMMITTED_HOURS), True)):
        vacuum = partial(lake.table().vacuum, hours, enforce_retention_duration=False, full=full)
        # What is gone already is listed as well, and a vacuum without work is still two commits.
        some = [each for each in vacuum(dry_run=True) if (lake.root / each).exists()]
        if some and not dry_run:
            vacuum(dry_run=False)
        gone += [each for each in some if each not in gone]
    return gone
