"""``anabranch spark replay``: a lake into streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.spark.record import Job, Record, Words
from anabranch.cli.spark.shared import common, counted, names_option, run

if TYPE_CHECKING:
    from anabranch.spark.jobs.replay import Replayed
    from anabranch.spark.options import ServerOptions

__all__ = ["replay"]


@click.command(
    cls=Job,
    help="""Write the entries of a LAKE to streams again, with their IDs or with new ones.

Another run with the same arguments adds the entries that the lake has got since. With --new-ids the
target keeps a record for each region of the entries that it has; it may drop a record to which
nothing was added for 30 days.

\b
Example:
  anabranch spark replay lake/ -u redis://other:6379
  anabranch spark replay lake/ --prefix again: --since-ms 1718000000000 --speed 10
""",
)
@click.argument("lake", type=click.Path(path_type=Path))
@names_option("--streams")
@click.option("--since-ms", type=int, help="Only IDs from this time on.")
@click.option("--until-ms", type=int, help="Only IDs before this time.")
@click.option("--prefix", default="", help="Put this before the names of streams.")
@click.option("--new-ids", is_flag=True, help="Give entries new IDs, in the old order.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    help="10: ten times as fast as they were written. Without it: as fast as possible.",
)
@click.option("--dry-run", is_flag=True, help="Count only.")
@common
def replay(
    record: Record,
    url: str,
    master: str,
    lake: Path,
    new_ids: bool,
    options: dict[str, str],
    **more: Any,
) -> None:
    """A lake into streams."""
    from anabranch.spark.jobs.replay import replay as job  # noqa: PLC0415 - an extra
    from anabranch.spark.lake import Lake  # noqa: PLC0415
    from anabranch.spark.options import WriteOptions  # noqa: PLC0415

    def check() -> ServerOptions | None:
        server = WriteOptions.parse({"url": url, **options}).server
        Lake(lake).table()
        return None if more["dry_run"] else server

    def replayed(spark: Any) -> Replayed:
        return job(
            *(spark, lake),
            url=url,
            keep_ids=not new_ids,
            progress=progress,
            options=options,
            **more,
        )

    def progress(grown: int, entries: int) -> None:
        record.step(f"{grown:,} entries added, of {entries:,} in the lake", total=grown)

    run(record, master, replayed, _in_words, check=check)


def _in_words(done: Replayed) -> Words:
    if not done.entries:
        return Words("there is no such entry in the lake")
    what = f"{counted(done.entries, 'entry', 'entries')} of {counted(done.files, 'file')}"
    to = f"{', '.join(done.streams)}, IDs {done.first} to {done.last}"
    if done.dry_run:
        return Words(f"{what} would be written to {to}; nothing was written (dry run)")
    return Words(f"{what} are in {to}")
