"""``anabranch spark compact``: the files of a lake into larger ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.spark.record import Check, Job, Record, Words
from anabranch.cli.spark.shared import counted, names_option, run_on_lake, session_options

if TYPE_CHECKING:
    from anabranch.spark.jobs.compact import Compacted

__all__ = ["compact"]


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
@click.argument("lake", type=click.Path(path_type=Path))
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
    run_on_lake(record, lake, master, compacted, _in_words)


def _in_words(done: Compacted) -> Words:
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
