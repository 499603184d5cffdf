"""Merges small files of a lake into larger ones, while others read and write it.

The library merges and removes files: one commit replaces the merged files, and these stay on disk
for readers of older versions, for the retention time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.spark.lake.files import examine, has_own_name
from anabranch.spark.lake.table import Lake, LakeError, LakeFile
from anabranch.spark.runtime.rounds import in_rounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET_BYTES: Final = 128 << 20
RETAIN_HOURS: Final = 168
_UNCOMMITTED_HOURS: Final = 168  # what no version has may belong to a batch that is repeated


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result, or in a dry run the expected one."""

    merged: int
    """Files that were replaced."""
    made: int
    """Files that took their place; in a dry run at least so many."""
    nbytes_before: int
    nbytes_after: int
    """Of the lake; in a dry run not known, and 0."""
    removed: int
    """Files that no version within the retention time has."""
    problems: tuple[str, ...]
    """Files that have changed since they were committed: the files of their day are not merged."""
    dry_run: bool


def compact(
    spark: SparkSession | None,
    lake: str | Path,
    *,
    target_bytes: int = TARGET_BYTES,
    retain_hours: int = RETAIN_HOURS,
    streams: Sequence[str] | None = None,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Compacted:
    """Merge the files of each stream and day up to `target_bytes`; remove files that are too old.

    It may be killed at any moment and run again, and run beside `archive`, beside itself and beside
    readers of versions not older than `retain_hours`. Files are examined before they are merged,
    by `spark` if it is given. `progress` gets how many days were merged so far, and how many there
    are. Raises `LakeError` and what Spark raises.
    """
    root = Path(lake).absolute()
    found = Lake(root)
    found.table()
    files = found.files(streams)
    # The library gives each stream a directory of its name, which may be too long for one.
    small = [each for each in files if each.nbytes < target_bytes and has_own_name(each.stream)]
    counts = Counter((each.stream, each.date) for each in small)
    small = [each for each in small if counts[each.stream, each.date] > 1]
    days = dict.fromkeys((each.stream, each.date) for each in small)
    nbytes = sum(each.nbytes for each in files)
    if dry_run:
        removed = len(_vacuumed(found, retain_hours, dry_run=True))
        return Compacted(len(small), len(days), nbytes, 0, removed, (), dry_run=True)

    def work(file: LakeFile) -> list[str]:
        return [f"{file.path}: {what}" for _, what in examine(root, file).problems]

    problems: list[str] = []
    wrong: set[tuple[str, str | None]] = set()
    for file, said in zip(small, in_rounds(spark, small, work), strict=True):
        if said:
            problems += said
            wrong.add((file.stream, file.date))
    places = [each for each in days if each not in wrong]
    merged = made = 0
    for number, place in enumerate(places, 1):
        gone, came = _merged(found, place, target_bytes)
        merged += gone
        made += came
        if progress is not None:
            progress(number, len(places))
    return Compacted(
        merged=merged,
        made=made,
        nbytes_before=nbytes,
        nbytes_after=sum(each.nbytes for each in found.files(streams)),
        removed=len(_vacuumed(found, retain_hours, dry_run=False)),
        problems=tuple(problems),
        dry_run=False,
    )


def _merged(lake: Lake, place: tuple[str, str | None], target_bytes: int) -> tuple[int, int]:
    from deltalake import WriterProperties  # noqa: PLC0415 - an extra
    from deltalake.exceptions import CommitFailedError, DeltaError  # noqa: PLC0415

    stream, date = place
    of_stream: tuple[str, str, str | list[str]] = ("stream", "=", stream)
    if not stream:  # is NULL in the log, which no value equals
        of_stream = ("stream", "not in", sorted({file.stream for file in lake.files()} - {""}))
    try:
        with lake.alone():
            said = lake.table().optimize.compact(
                partition_filters=[of_stream, ("date", "=", date or "")],
                target_size=target_bytes,
                writer_properties=WriterProperties(compression="ZSTD"),
            )
    except CommitFailedError:
        return 0, 0  # another one merged the same meanwhile
    except DeltaError as problem:
        raise LakeError(f"{lake.root}: {problem}") from None
    return said["numFilesRemoved"], said["numFilesAdded"]


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
