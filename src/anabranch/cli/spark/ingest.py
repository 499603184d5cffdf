"""``anabranch spark ingest``: files into streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.spark.job import Job
from anabranch.cli.spark.record import Check, Record, Words
from anabranch.cli.spark.shared import common, counted, run

if TYPE_CHECKING:
    from anabranch.spark.jobs.ingest import Ingested
    from anabranch.spark.options import ServerOptions


@click.command(
    cls=Job,
    help="""Append the rows of CSV, JSON lines and Parquet files to a stream, each file once.

PATHS are files or directories. A second run adds nothing; a run that died is completed.

\b
Example:
  anabranch spark ingest orders.csv --stream orders --schema 'number int, city string'
""",
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--stream", required=True, help="Where to.")
@click.option("--key", help="Column; rows go to STREAM:VALUE.")
@click.option("--schema", help="Columns and their types, as in SQL.")
@click.option("--bad-stream", help="For lines that do not fit. [default: STREAM:bad]")
@click.option("--dry-run", is_flag=True, help="Read and count only.")
@common
def ingest(
    record: Record,
    url: str,
    master: str,
    paths: tuple[Path, ...],
    options: dict[str, str],
    **more: Any,
) -> None:
    """Files into streams."""
    from anabranch.spark.jobs.ingest import files_of  # noqa: PLC0415 - an extra
    from anabranch.spark.jobs.ingest import ingest as job  # noqa: PLC0415
    from anabranch.spark.options import WriteOptions  # noqa: PLC0415

    def check() -> ServerOptions:
        list(files_of(paths))
        return WriteOptions.parse({"url": url, **options}).server

    def progress(path: Path, rows: int) -> None:
        record.step(f"{path}: {counted(rows, 'row')}", more=rows)

    record.unit = "rows"
    bad = more["bad_stream"] or f"{more['stream']}:bad"
    run(
        record,
        master,
        lambda spark: job(spark, paths, url=url, progress=progress, options=options, **more),
        lambda done: _in_words(done, more["stream"], bad),
        check=check,
    )


def _in_words(done: Ingested, stream: str, bad: str) -> Words:
    total = done.rows + done.bad
    words = f"{counted(total, 'row')} in {counted(done.files, 'file')}"
    if done.new is not None:
        words += f" for {stream}: {done.new:,} new, {total - done.new:,} there already"
    elif not done.dry_run:
        words += f" are in {stream}"
    if done.dry_run:
        words += "; nothing was written (dry run)"
    unfit = [f"for {bad}, because they do not fit: {counted(done.bad, 'line')}"]
    fits = Check("every line fits", unfit if done.bad else (), fails=False)
    return Words(words, checks=[fits])
