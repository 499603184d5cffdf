"""``anabranch spark replay``: a lake into streams."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from anabranch.cli.spark.shared import common, given, run, source_options

__all__ = ["replay"]


@click.command(
    help="""Write the entries of a LAKE to streams again, with their IDs or with new ones.

Another run with the same arguments adds what the lake has got since. With --new-ids the target
knows what it has by a record for each region, which it may drop when nothing was added to it for
30 days.

\b
Example:
  anabranch spark replay lake/ -u redis://other:6379
  anabranch spark replay lake/ --prefix again: --since-ms 1718000000000 --speed 10
""",
)
@click.argument("lake", type=click.Path(path_type=Path))
@click.option("--streams", help="Comma-separated; all by default.")
@click.option("--since-ms", type=int, help="Only IDs from this time on.")
@click.option("--until-ms", type=int, help="Only IDs before this time.")
@click.option("--prefix", default="", help="Put this before the names of streams.")
@click.option("--new-ids", is_flag=True, help="Do not keep IDs; what comes later stands behind.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    help="10: ten times as fast as it was written; 0 or none: as fast as possible.",
)
@click.option("--dry-run", is_flag=True, help="Count only.")
@source_options
@common
def replay(
    url: str,
    master: str,
    as_json: bool,
    lake: Path,
    streams: str | None,
    new_ids: bool,
    pairs: tuple[str, ...],
    **more: Any,
) -> None:
    """A lake into streams."""
    from anabranch.spark.jobs.replay import replay as job  # noqa: PLC0415

    arguments = {
        "streams": streams.split(",") if streams else None,
        "keep_ids": not new_ids,
        "progress": _tell,
        "options": given(pairs),
        **more,
    }
    run(master, lambda spark: job(spark, lake, url=url, **arguments), as_json=as_json)


def _tell(grown: int, entries: int) -> None:
    print(f"{grown} entries added, of {entries} in the lake", file=sys.stderr)
