"""Reads every file of a lake again and compares it with the log of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.spark.jobs.signatures import Progress, VerifyJob, taking
from anabranch.spark.lake.files import LakeError, LakeFile, Run, examine
from anabranch.spark.lake.table import Gap, Lake, Places, gaps, neighbours, places_of
from anabranch.spark.runtime.rounds import ROUND, in_rounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a lake."""

    kind: str
    """``log``, ``missing``, ``altered``, ``unreadable``, ``count``, ``place``, ``overlap`` or
    ``gap``."""
    where: str
    """A file's path, relative to the lake; the lake itself; or stream and region."""
    what: str

    def __str__(self) -> str:
        """For people."""
        return f"{self.kind} {self.where}: {self.what}"


@dataclass(frozen=True, slots=True)
class Verified:
    """What was read, and the faults that were found."""

    files: int
    entries: int
    """As promised."""
    nbytes: int
    undigested: int
    """Files that another tool has written: their names have no digest, and a value altered on disk
    may stay unseen."""
    gaps: tuple[Gap, ...]
    """Positions that no entry has: deleted, or trimmed before they were read."""
    findings: tuple[Finding, ...]


@taking(VerifyJob)
def verify(spark: SparkSession | None, job: VerifyJob) -> Verified:
    """Read all files of the newest version, and compare them with the log and with each other.

    Gaps are findings unless they are allowed. Safe beside `archive` and `compact`. Files are read
    here, by Arrow, or by `spark`. Raises what Spark raises.
    """
    root = Path(job.lake).absolute()
    lake = Lake(root)
    try:
        odd = lake.has_other_columns()
        files = lake.files()
        promised = lake.promised()
        erased = lake.erased()
    except LakeError as problem:
        return Verified(0, 0, 0, 0, (), (Finding("log", str(root), str(problem)),))
    findings = []
    if odd:
        findings.append(Finding("log", str(root), "the log names other columns than a lake has"))
    problems, runs = _examined(spark, root, files, job.progress)
    # What was replaced meanwhile may have been removed as well.
    still = {each.path for each in lake.files()}
    findings += [each for each in problems if each.where in still]
    findings += _overlaps(runs)
    runs += erased
    findings += _broken_promises(promised, runs)
    missing = tuple(gaps(runs))
    if not job.allow_gaps:
        findings += [
            Finding("gap", _name(each.stream, each.region), f"no entry has positions {span}")
            for each in missing
            for span in [f"{each.after + 1} to {each.before - 1}"]
        ]
    return Verified(
        files=len(files),
        entries=sum(each.rows for each in files),
        nbytes=sum(each.nbytes for each in files),
        undigested=sum(not each.digest for each in files),
        gaps=missing,
        findings=tuple(findings),
    )


def _examined(
    spark: SparkSession | None, root: Path, files: Sequence[LakeFile], progress: Progress
) -> tuple[list[Finding], list[tuple[str, Run]]]:
    """Read all files: their problems, and the positions that they have."""

    def work(file: LakeFile) -> list[Any]:
        seen = examine(root, file)
        return [seen.problems, seen.runs]

    findings: list[Finding] = []
    runs: list[tuple[str, Run]] = []
    results = in_rounds(spark, files, work)
    for read, (file, (problems, some)) in enumerate(zip(files, results, strict=True), 1):
        findings += [Finding(kind, file.path, what) for kind, what in problems]
        runs += [(file.stream, (str(region), first, last)) for region, first, last in some]
        if not read % ROUND or read == len(files):
            progress(f"{read} of {len(files)} files read")
    return findings, runs


def _name(stream: str, region: str) -> str:
    return f"{stream} {region}".rstrip()


def _overlaps(runs: Sequence[tuple[str, Run]]) -> Iterator[Finding]:
    """Positions that several files have."""
    for stream, region, furthest, first, last in neighbours(runs):
        if first <= furthest:
            what = f"two files hold positions {first} to {min(last, furthest)}"
            yield Finding("overlap", _name(stream, region), what)


def _broken_promises(promised: Places, runs: Sequence[tuple[str, Run]]) -> Iterator[Finding]:
    """Entries that were committed at the beginning or the end, and that no file has any more."""
    held = places_of((stream, region, 0, first, last) for stream, (region, first, last) in runs)
    for (stream, region), (_, first, last) in promised.items():
        _, low, high = held.get((stream, region), (0, last + 1, first - 1))
        if low > first or high < last:
            what = f"positions {first} to {last} were committed, and files hold {low} to {high}"
            if low > high:
                what = f"positions {first} to {last} were committed, and no file holds any"
            yield Finding("missing", _name(stream, region), what)
