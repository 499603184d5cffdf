"""Small files of a lake into larger ones, beside whoever reads and writes it.

Executors write the new files, which nobody sees; a manifest then puts them in the place of the old
ones in one step. The old ones stay for as long as somebody may read them who looked before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.spark.jobs.rounds import in_rounds
from anabranch.spark.lake import Lake, LakeError, LakeFile, neighbours
from anabranch.spark.lake_files import merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Compacted", "compact", "plan", "sweep"]

TARGET_BYTES: Final = 128 << 20
GRACE_S: Final = 3600.0
_ROUND: Final = 16  # new files in one manifest: what a run that dies has to do again


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done, or would be."""

    merged: int
    """Files that were replaced."""
    made: int
    """Files that took their place."""
    nbytes_before: int
    nbytes_after: int
    """Of the files made; in a dry run not known, and 0."""
    removed: int
    """Files removed: replaced by this run or earlier ones, longer ago than the grace time, and
    beginnings of files whose tasks died."""
    problems: tuple[str, ...]
    """Files that are not what they were when they were published, and were left alone."""
    dry_run: bool


def plan(files: Iterable[LakeFile], target_bytes: int) -> list[tuple[LakeFile, ...]]:
    """Which files to merge: neighbours in one directory, up to the target together.

    Files of at least half the target stay as they are, so that no entry is rewritten again and
    again as its stream grows. Files with a gap between them are not merged: a gap stays visible.
    """
    found: list[list[LakeFile]] = []
    size = 0
    ordered = list(files)
    follows = {
        each.path: before
        for before, each in neighbours(ordered)
        if each.first == before.last + 1 and _directory(before) == _directory(each)
    }
    for each in ordered:
        if each.nbytes * 2 >= target_bytes:
            continue
        before = follows.get(each.path)
        if found and before is found[-1][-1] and size + each.nbytes <= target_bytes:
            found[-1].append(each)
            size += each.nbytes
        else:
            found.append([each])
            size = each.nbytes
    return [tuple(each) for each in found if len(each) > 1]


def compact(
    spark: SparkSession,
    lake: str | Path,
    *,
    target_bytes: int = TARGET_BYTES,
    grace_s: float = GRACE_S,
    streams: Sequence[str] | None = None,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Compacted:
    """Merge neighbouring files up to `target_bytes`, and remove those replaced `grace_s` ago.

    It may be killed at any moment and run again, and run beside readers that take less than
    `grace_s` seconds, beside `archive` and beside itself. `progress` gets how many files were made
    so far, and how many there will be. Raises `LakeError` and what Spark raises.
    """
    root = Path(lake).absolute()
    found = Lake(root)
    if not (files := found.files()):
        raise LakeError(f"{root} has no published file: is this a lake?")
    groups = plan((each for each in files if not streams or each.stream in streams), target_bytes)
    if dry_run:
        return Compacted(
            merged=sum(map(len, groups)),
            made=len(groups),
            nbytes_before=sum(each.nbytes for group in groups for each in group),
            nbytes_after=0,
            removed=len(_outdated(found, grace_s)),
            problems=(),
            dry_run=True,
        )

    def work(group: tuple[LakeFile, ...]) -> dict[str, Any]:
        try:
            return asdict(merge(root, group))
        except LakeError as problem:
            return {"problem": str(problem)}

    problems: list[str] = []
    done: list[tuple[Sequence[LakeFile], LakeFile]] = []
    for number, results in enumerate(in_rounds(spark, groups, work, _ROUND)):
        pairs = zip(groups[number * _ROUND :], results, strict=False)
        problems += [said["problem"] for said in results if "problem" in said]
        done += found.replace(
            [(old, LakeFile(**new)) for old, new in pairs if "problem" not in new]
        )
        if progress is not None:
            progress(number * _ROUND + len(results), len(groups))
    return Compacted(
        merged=sum(len(old) for old, _ in done),
        made=len(done),
        nbytes_before=sum(each.nbytes for old, _ in done for each in old),
        nbytes_after=sum(new.nbytes for _, new in done),
        removed=sweep(found, grace_s),
        problems=tuple(problems),
        dry_run=False,
    )


def sweep(lake: Lake, grace_s: float) -> int:
    """Remove what nobody reads or writes any more; how many files that were."""
    outdated = _outdated(lake, grace_s)
    for path in outdated:
        path.unlink(missing_ok=True)
    return len(outdated)


def _outdated(lake: Lake, grace_s: float) -> list[Path]:
    before_ms = int((time.time() - grace_s) * 1000)
    return lake.superseded(before_ms) + lake.drafts(before_ms)


def _directory(file: LakeFile) -> Path:
    return Path(file.path).parent
