"""``anabranch spark generate``: made-up events into a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.spark.record import Job, Record, Words
from anabranch.cli.spark.shared import counted, run_alone

if TYPE_CHECKING:
    from anabranch.spark.jobs.generate import Generated

__all__ = ["generate"]


@click.command(
    cls=Job,
    help="""Make events up and write them to FILE (.parquet or .jsonl), the same for a seed.

Few keys have most events, nights are quiet, keys burst, clocks are off, events arrive out of order
and one in a hundred twice.

\b
Example:
  anabranch spark generate events.parquet --rows 1000000 --seed 7
  anabranch spark ingest events.parquet --stream events
""",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--rows", type=int, default=1_000_000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--keys", type=int, default=1_000, show_default=True)
@click.option("--days", type=int, default=1, show_default=True)
@click.option("--split", is_flag=True, help="A file for each site: FILE-eu, FILE-us, FILE-ap.")
@click.option("--dry-run", is_flag=True, help="Only count, and tell the SHA-256.")
def generate(record: Record, file: Path, split: bool, dry_run: bool, **shape: Any) -> None:
    """Made-up events into a file."""
    from anabranch.spark.jobs.generate import generate as job  # noqa: PLC0415 - an extra
    from anabranch.spark.samples import Shape  # noqa: PLC0415

    run_alone(record, lambda: job(file, Shape(**shape), split=split, dry_run=dry_run), _in_words)


def _in_words(done: Generated) -> Words:
    files = "nothing was written (dry run)" if done.dry_run else ", ".join(done.files)
    return Words(
        f"{counted(done.rows, 'row')}, of them {done.repeats:,} repeated, late by at most "
        f"{done.lateness_ms / 1000:g} s; SHA-256 {done.sha256}; {files}"
    )
