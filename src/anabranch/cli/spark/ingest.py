"""``anabranch spark ingest``: files into streams."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from anabranch.cli.spark.shared import common, given, run, source_options

__all__ = ["ingest"]


@click.command(
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
@source_options
@common
def ingest(
    url: str,
    master: str,
    as_json: bool,
    paths: tuple[Path, ...],
    pairs: tuple[str, ...],
    **more: Any,
) -> None:
    """Files into streams."""
    from anabranch.spark.jobs.ingest import ingest as job  # noqa: PLC0415

    def progress(path: Path, rows: int) -> None:
        print(f"{path}: {rows} rows", file=sys.stderr)

    options = given(pairs)
    run(
        master,
        lambda spark: job(spark, paths, url=url, progress=progress, options=options, **more),
        as_json=as_json,
    )
