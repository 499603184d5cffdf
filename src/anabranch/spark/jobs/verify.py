"""Does a lake hold what its manifests promise? Every file is read again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.spark.jobs.rounds import in_rounds
from anabranch.spark.lake import (
    Gap,
    Lake,
    LakeError,
    LakeFile,
    Manifest,
    gaps,
    neighbours,
    visible,
)
from anabranch.spark.lake_files import examine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Finding", "Verified", "contradictions", "verify"]

_ROUND: Final = 64  # files between two words of progress


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    kind: str
    """``manifest``, ``missing``, ``altered``, ``unreadable``, ``count``, ``order``, ``place``,
    ``overlap``, ``gap`` or ``replacement``."""
    where: str
    """A file's path, relative to the lake; the lake itself; or, of gaps, stream and region."""
    what: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What was read, and what is wrong with it."""

    files: int
    entries: int
    """As promised."""
    nbytes: int
    undigested: int
    """Files of manifests that do not tell a digest: their values may have been altered unseen."""
    unlisted: int
    """Files that no manifest names, of batches under way or of tasks that died: never read."""
    gaps: tuple[Gap, ...]
    """Positions missing between files: entries that were deleted, or trimmed before they were
    read."""
    findings: tuple[Finding, ...]


def verify(
    spark: SparkSession,
    lake: str | Path,
    *,
    allow_gaps: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Verified:
    """Compare all published files with their manifests, and these with each other.

    Gaps are findings unless they are allowed. Safe beside `archive` and `compact`. `progress` gets
    how many files were read so far, and how many there are. Raises what Spark raises.
    """
    root = Path(lake).absolute()
    found = Lake(root)
    try:
        manifests = found.manifests()
    except LakeError as problem:
        return Verified(0, 0, 0, 0, 0, (), (Finding("manifest", str(root), str(problem)),))
    if not manifests:
        nothing = Finding("manifest", str(root), "there is no manifest: is this a lake?")
        return Verified(0, 0, 0, 0, 0, (), (nothing,))
    files = visible(manifests)

    def work(file: LakeFile) -> list[tuple[str, str]]:
        return list(examine(root, file))

    findings: list[Finding] = []
    read = 0
    for results in in_rounds(spark, files, work, _ROUND):
        for file, wrong in zip(files[read:], results, strict=False):
            findings += [Finding(kind, file.path, what) for kind, what in wrong]
        read += len(results)
        if progress is not None:
            progress(read, len(files))
    # What was replaced meanwhile may have been removed as well.
    still = {each.path for each in found.files()}
    findings = [each for each in findings if each.where in still]
    missing = tuple(gaps(files))
    findings += contradictions(manifests, files)
    if not allow_gaps:
        findings += [
            Finding(
                "gap",
                f"{each.stream} {each.region}".rstrip(),
                f"no file holds positions {each.after + 1} to {each.before - 1}",
            )
            for each in missing
        ]
    return Verified(
        files=len(files),
        entries=sum(each.rows for each in files),
        nbytes=sum(each.nbytes for each in files),
        undigested=sum(not each.digest for each in files),
        unlisted=len(found.unlisted()),
        gaps=missing,
        findings=tuple(findings),
    )


def contradictions(manifests: Iterable[Manifest], files: Iterable[LakeFile]) -> Iterator[Finding]:
    """What manifests say that cannot all be true, whatever is in the files."""
    for before, each in neighbours(files):
        if each.first <= before.last:
            what = f"holds positions from {each.first} on, and {before.path} up to {before.last}"
            yield Finding("overlap", each.path, what)
    known: dict[str, LakeFile] = {}
    for manifest in manifests:
        old = [known.get(path) for path in manifest.supersedes]
        if None in old:
            what = "replaces a file that was never published"
            yield Finding("replacement", f"_log/{manifest.number:010d}.json", what)
        elif manifest.supersedes:
            gone = sum(each.rows for each in old if each is not None)
            come = sum(each.rows for each in manifest.files)
            if gone != come:
                what = f"replaces {gone} entries by {come}"
                yield Finding("replacement", f"_log/{manifest.number:010d}.json", what)
        known.update((each.path, each) for each in manifest.files)
