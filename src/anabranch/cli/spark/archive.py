"""``anabranch spark archive``: streams into a lake."""

from __future__ import annotations

from pathlib import Path

import click

from anabranch.cli.spark.shared import common, given, run, source_options

__all__ = ["archive"]


@click.command(
    help="""Copy streams to Parquet files in directory LAKE, from where the last run ended.

\b
Example:
  anabranch spark archive lake/ --streams orders,payments
""",
)
@click.argument("lake", type=click.Path(path_type=Path))
@click.option("--streams", help="Comma-separated keys.")
@click.option("--pattern", help="Glob of keys, instead.")
@click.option("--follow", is_flag=True, help="Go on until interrupted.")
@source_options
@common
def archive(
    url: str,
    master: str,
    as_json: bool,
    lake: Path,
    streams: str | None,
    pattern: str | None,
    follow: bool,
    pairs: tuple[str, ...],
) -> None:
    """Streams into a lake."""
    from anabranch.spark.jobs.archive import archive as job  # noqa: PLC0415

    if (streams is None) == (pattern is None):
        raise click.UsageError("give one of --streams and --pattern")
    what = {"subscribe": streams} if streams is not None else {"subscribePattern": str(pattern)}
    options = {"url": url, **what, **given(pairs)}
    run(master, lambda spark: job(spark, lake, once=not follow, options=options), as_json=as_json)
