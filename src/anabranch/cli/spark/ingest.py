"""``anabranch spark ingest``: files into streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.spark.shared import Job, common, counted, report, run

if TYPE_CHECKING:
    from anabranch.spark.jobs.ingest import Ingested
    from anabranch.spark.options import ServerOptions

__all__ = ["ingest"]


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
    url: str,
    master: str,
    as_json: bool,
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

    bad = more["bad_stream"] or f"{more['stream']}:bad"
    run(
        master,
        lambda spark: job(spark, paths, url=url, progress=_told_of, options=options, **more),
        as_json=as_json,
        in_words=lambda done: _in_words(done, more["stream"], bad),
        check=check,
    )


def _told_of(path: Path, rows: int) -> None:
    report(f"{path}: {counted(rows, 'row')}")


def _in_words(done: Ingested, stream: str, bad: str) -> str:
    total = done.rows + done.bad
    words = f"{counted(total, 'row')} in {counted(done.files, 'file')}"
    if done.new is not None:
        words += f" for {stream}: {done.new:,} new, {total - done.new:,} there already"
    elif not done.dry_run:
        words += f" are in {stream}"
    if done.bad:
        words += f"; {done.bad:,} that do not fit the schema are for {bad}"
    return words + "; nothing was written (dry run)" * done.dry_run
