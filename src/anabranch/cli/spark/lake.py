"""``anabranch spark compact``, ``verify`` and ``migrate-lake``: commands on a lake alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from anabranch.cli.spark.record import Check, Job, Record, Words
from anabranch.cli.spark.shared import (
    counted,
    names_option,
    run_alone,
    run_on_lake,
    session_options,
)

if TYPE_CHECKING:
    from anabranch.spark.jobs.compact import Compacted
    from anabranch.spark.jobs.migrate import Migrated
    from anabranch.spark.jobs.verify import Verified

__all__ = ["compact", "migrate_lake", "verify"]

_lake = click.argument("lake", type=click.Path(path_type=Path))


@click.command(
    cls=Job,
    help="""Merge the small files of a LAKE by stream and day, and remove those merged long ago.

Readers and 'archive' may run at the same time. It can be interrupted at any moment and run again.
It exits with 1 if files have changed since they were written; the files of such a day are not
merged. Spark is started for lakes above 1 GiB only.

\b
Example:
  anabranch spark compact lake/ --target-mib 256 --retain-hours 24
""",
)
@_lake
@names_option("--streams")
@click.option(
    "--target-mib",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    help="Largest size of a merged file.",
)
@click.option(
    "--retain-hours",
    type=click.IntRange(min=0),
    default=168,
    show_default=True,
    help="How long merged files stay for readers of older versions.",
)
@click.option("--dry-run", is_flag=True, help="Count only.")
@session_options
def compact(record: Record, master: str, lake: Path, target_mib: int, **more: Any) -> None:
    """The files of a lake into larger ones."""
    from anabranch.spark.jobs.compact import compact as job  # noqa: PLC0415 - an extra

    def compacted(spark: Any) -> Compacted:
        return job(spark, lake, target_bytes=target_mib << 20, progress=progress, **more)

    def progress(made: int, planned: int) -> None:
        record.step(f"{made} of {planned} days merged", total=made)

    record.unit = "days"
    run_on_lake(record, lake, master, compacted, _compacted)


def _compacted(done: Compacted) -> Words:
    altered = [f"altered: {each}; its day was left alone" for each in done.problems]
    removed = counted(done.removed, "file")
    if done.dry_run:
        made = counted(done.made, "file")
        last = f"{counted(done.merged, 'file')} would become {made} or more, {removed} removed"
    else:
        last = (
            f"{counted(done.merged, 'file')} merged into {done.made:,}, {removed} removed: "
            f"{done.nbytes_before:,} bytes before, {done.nbytes_after:,} now"
        )
    return Words(last, checks=[Check("files are as they were written", altered)])


@click.command(
    cls=Job,
    help="""Read all files of a LAKE again and compare them with the table's log.

It checks digests, counts and days, and looks for missing files, for positions without an entry and
for positions with two entries. It exits with 1 if there is a finding. Spark is started for lakes
above 1 GiB only.

\b
Example:
  anabranch spark verify lake/ --allow-gaps
""",
)
@_lake
@click.option("--allow-gaps", is_flag=True, help="Missing positions are no finding.")
@session_options
def verify(record: Record, master: str, lake: Path, allow_gaps: bool) -> None:
    """Are the files of a lake intact?"""
    from anabranch.spark.jobs.verify import verify as job  # noqa: PLC0415 - an extra

    def verified(spark: Any) -> Verified:
        return job(spark, lake, allow_gaps=allow_gaps, progress=progress)

    def progress(read: int, files: int) -> None:
        record.step(f"{read} of {files} files read", total=read)

    record.unit = "files"
    in_words = partial(_verified, allow_gaps=allow_gaps)
    run_on_lake(record, lake, master, verified, in_words)


_HOLDS: Final = {
    "log": "the table's log can be read",
    "missing": "every file of the log is there",
    "unreadable": "every file can be read",
    "altered": "files have the digests of their names",
    "count": "files have as many entries as the log says",
    "place": "entries are in the files of their stream and day",
    "overlap": "no position is in two files",
    "gap": "no position is missing",
}


def _verified(done: Verified, *, allow_gaps: bool) -> Words:
    checks = [
        Check(
            what,
            [f"{kind} {each.where}: {each.what}" for each in done.findings if each.kind == kind],
        )
        for kind, what in _HOLDS.items()
        if kind != "gap" or not allow_gaps
    ]
    lines = []
    if done.undigested:
        lines.append(f"{counted(done.undigested, 'merged file')} without a digest")
    last = (
        f"{counted(done.files, 'file')}, {counted(done.entries, 'entry', 'entries')}, "
        f"{counted(done.nbytes, 'byte')} read: {counted(len(done.findings), 'finding')}, "
        f"{counted(len(done.gaps), 'gap')}"
    )
    return Words(last, lines, checks)


@click.command(
    name="migrate-lake",
    cls=Job,
    help="""Turn a LAKE of an earlier version, with manifests, into a Delta table in its place.

Nothing else may write at the same time. It can be interrupted and run again. 'archive' and 'replay'
then continue where they were.
""",
)
@_lake
def migrate_lake(record: Record, lake: Path) -> None:
    """A lake of an earlier version into a Delta table."""
    from anabranch.spark.jobs.migrate import migrate  # noqa: PLC0415 - an extra

    def progress(read: int, files: int) -> None:
        record.step(f"{read} of {files} files rewritten", total=read)

    record.unit = "files"
    run_alone(record, lambda: migrate(lake, progress=progress), _migrated)


def _migrated(done: Migrated) -> Words:
    entries = counted(done.entries, "entry", "entries")
    before = counted(done.files_before, "file")
    return Words(f"{before} of manifests became {done.files:,} of a table, with {entries}")
