"""``anabranch spark migrate-lake``: a lake of an earlier version into a Delta table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.cli.spark.record import Job, Record, Words
from anabranch.cli.spark.shared import counted, run_alone

if TYPE_CHECKING:
    from anabranch.spark.jobs.migrate import Migrated

__all__ = ["migrate_lake"]


@click.command(
    name="migrate-lake",
    cls=Job,
    help="""Turn a LAKE of an earlier version, with manifests, into a Delta table in its place.

Nothing else may write at the same time. It can be interrupted and run again. 'archive' and 'replay'
then continue where they were.
""",
)
@click.argument("lake", type=click.Path(path_type=Path))
def migrate_lake(record: Record, lake: Path) -> None:
    """A lake of an earlier version into a Delta table."""
    from anabranch.spark.jobs.migrate import migrate  # noqa: PLC0415 - an extra

    def progress(read: int, files: int) -> None:
        record.step(f"{read} of {files} files rewritten", total=read)

    record.unit = "files"
    run_alone(record, lambda: migrate(lake, progress=progress), _in_words)


def _in_words(done: Migrated) -> Words:
    entries = counted(done.entries, "entry", "entries")
    before = counted(done.files_before, "file")
    return Words(f"{before} of manifests became {done.files:,} of a table, with {entries}")
