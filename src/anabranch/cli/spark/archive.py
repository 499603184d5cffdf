"""``anabranch spark archive``: streams into a lake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from anabranch.cli.spark import shared
from anabranch.cli.spark.record import Check, Job, Record, Words
from anabranch.cli.spark.shared import counted, run, run_alone

if TYPE_CHECKING:
    from anabranch.spark.jobs.archive import Archived, Step
    from anabranch.spark.lake import Gap
    from anabranch.spark.options import ServerOptions

__all__ = ["archive"]


@click.command(
    cls=Job,
    help="""Copy streams to Parquet files in directory LAKE, from where the last run ended.

It reports where it starts, and after each batch how many entries are left. The option
'-o maxEntriesPerTrigger=100000' limits the size of a batch. Spark is started for --follow, for more
than two million entries, and if --master is given.

\b
Example:
  anabranch spark archive lake/ --streams orders,payments
""",
)
@click.argument("lake", type=click.Path(path_type=Path))
@click.option("--streams", help="Comma-separated keys.")
@click.option("--pattern", help="Glob of keys, instead of --streams.")
@shared.once_option
@click.option("--dry-run", is_flag=True, help="Report what would be copied, and write nothing.")
@shared.common
def archive(
    record: Record,
    url: str,
    master: str,
    lake: Path,
    streams: str | None,
    pattern: str | None,
    once: bool,
    dry_run: bool,
    options: dict[str, str],
) -> None:
    """Streams into a lake."""
    from anabranch.spark.jobs.archive import ALONE_MAX, waiting  # noqa: PLC0415 - an extra
    from anabranch.spark.jobs.archive import archive as job  # noqa: PLC0415
    from anabranch.spark.lake import Lake  # noqa: PLC0415
    from anabranch.spark.options import ReadOptions  # noqa: PLC0415

    if (streams is None) == (pattern is None):
        raise click.UsageError("give one of --streams and --pattern")
    what = {"subscribe": streams} if streams is not None else {"subscribePattern": str(pattern)}
    read = {"url": url, **what, **options}

    def archived(spark: Any) -> Archived:
        return job(spark, lake, once=once, dry_run=dry_run, progress=progress, options=read)

    def progress(step: Step) -> None:
        read = counted(step.entries, "entry", "entries")
        record.step(f"batch {step.batch}: {read}, {step.left:,} left", more=step.entries)

    def check() -> ServerOptions:
        Lake(lake).version()
        return ReadOptions.parse(read).server

    source = click.get_current_context().get_parameter_source("master")
    alone = dry_run
    if once and not dry_run and source is not ParameterSource.COMMANDLINE:
        shared.checked(check)
        alone = waiting(lake, read) <= ALONE_MAX
    if alone:
        run_alone(record, lambda: archived(None), _in_words)
    else:
        run(record, master, archived, _in_words, check=check, follows=not once)


def _in_words(done: Archived) -> Words:
    most, least = (" at most", " or more") if done.dry_run else ("", "")
    lines = [
        f"{_place(each.stream, each.region)}: {counted(each.entries, 'entry', 'entries')}{most}, "
        f"positions {each.first} to {each.last}"
        for each in done.parts
    ]
    if done.dry_run:
        lines.append("a dry run: nothing was written")
    verb = "to add" if done.dry_run else "added"
    size = "" if done.dry_run else f" of {counted(done.nbytes, 'byte')}"
    last = (
        f"{counted(done.entries, 'entry', 'entries')}{most} {verb}, in "
        f"{counted(done.files, 'file')}{least}{size}; the lake has {done.total:,}"
    )
    starts = [f"the query was started {done.starts} times"] if done.starts > 1 else []
    checks = (
        Check("the lake has every position of these streams", [*map(_gap, done.gaps)], fails=False),
        Check("the query was not interrupted", starts, fails=False),
    )
    return Words(last, lines, checks)


def _gap(each: Gap) -> str:
    place = _place(each.stream, each.region)
    return f"gap: {place}: nothing between positions {each.after} and {each.before}"


def _place(stream: str, region: str) -> str:
    return f"{stream}/{region}" if region else stream
