"""``anabranch spark archive``, ``replay``, ``compact``, ``verify``, ``migrate-lake``: lakes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from anabranch.cli.numbers import FiniteRange
from anabranch.cli.spark import shared
from anabranch.cli.spark.job import Job
from anabranch.cli.spark.record import Check, Record, Words, checks_of
from anabranch.cli.spark.shared import counted, names_option, run, run_alone, run_on_lake

if TYPE_CHECKING:
    from anabranch.spark.jobs.archive import Archived, ArchiveProgress
    from anabranch.spark.jobs.compact import Compacted
    from anabranch.spark.jobs.migrate import Migrated
    from anabranch.spark.jobs.replay import Replayed
    from anabranch.spark.jobs.verify import Verified
    from anabranch.spark.lake.table import Gap
    from anabranch.spark.options import ServerOptions

_lake = click.argument("lake", type=click.Path(path_type=Path))


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
@_lake
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
    from anabranch.spark.lake.table import Lake  # noqa: PLC0415
    from anabranch.spark.options import ReadOptions  # noqa: PLC0415

    if (streams is None) == (pattern is None):
        raise click.UsageError("give one of --streams and --pattern")
    what = {"subscribe": streams} if streams is not None else {"subscribePattern": str(pattern)}
    read = {"url": url, **what, **options}

    def archived(spark: Any) -> Archived:
        return job(spark, lake, once=once, dry_run=dry_run, progress=progress, options=read)

    def progress(step: ArchiveProgress) -> None:
        read = counted(step.entries, "entry")
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
        run_alone(record, lambda: archived(None), _archived)
    else:
        run(record, master, archived, _archived, check=check, follows=not once)


def _archived(done: Archived) -> Words:
    most, least = (" at most", " or more") if done.dry_run else ("", "")
    lines = [
        f"{_place(each.stream, each.region)}: {counted(each.entries, 'entry')}{most}, "
        f"positions {each.first} to {each.last}"
        for each in done.parts
    ]
    if done.dry_run:
        lines.append("a dry run: nothing was written")
    verb = "to add" if done.dry_run else "added"
    size = "" if done.dry_run else f" of {counted(done.nbytes, 'byte')}"
    last = (
        f"{counted(done.entries, 'entry')}{most} {verb}, in "
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
@_lake
@names_option("--streams")
@click.option("--since-ms", type=int, help="Only IDs from this time on.")
@click.option("--until-ms", type=int, help="Only IDs before this time.")
@click.option("--prefix", default="", help="Put this before the names of streams.")
@click.option("--new-ids", is_flag=True, help="Give entries new IDs, in the old order.")
@click.option(
    "--speed",
    type=FiniteRange(min=0),
    help="10: ten times as fast as they were written. Without it: as fast as possible.",
)
@click.option("--dry-run", is_flag=True, help="Count only.")
@shared.common
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
    from anabranch.spark.lake.table import Lake  # noqa: PLC0415
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

    run(record, master, replayed, _replayed, check=check)


def _replayed(done: Replayed) -> Words:
    if not done.entries:
        return Words("there is no such entry in the lake")
    what = f"{counted(done.entries, 'entry')} of {counted(done.files, 'file')}"
    to = f"{', '.join(done.streams)}, IDs {done.first} to {done.last}"
    if done.dry_run:
        return Words(f"{what} would be written to {to}; nothing was written (dry run)")
    return Words(f"{what} are in {to}")


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
@_lake
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
@shared.session_options
def compact(record: Record, master: str, lake: Path, target_mib: int, **more: Any) -> None:
    """The files of a lake into larger ones."""
    from anabranch.spark.jobs.compact import compact as job  # noqa: PLC0415 - an extra

    def progress(made: int, planned: int) -> None:
        record.step(f"{made} of {planned} days merged", total=made)

    record.unit = "days"
    compacted = partial(job, lake=lake, target_bytes=target_mib << 20, progress=progress, **more)
    run_on_lake(record, lake, master, compacted, _compacted)


def _compacted(done: Compacted) -> Words:
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


@click.command(
    cls=Job,
    help="""Read all files of a LAKE again and compare them with the table's log.

It checks digests, counts and days, and looks for missing files, for positions without an entry and
for positions with two entries. It exits with 1 if there is a finding. Spark is started for lakes
above 1 GiB only.

\b
Example:
  anabranch spark verify lake/ --allow-gaps
""",
)
@_lake
@click.option("--allow-gaps", is_flag=True, help="Missing positions are no finding.")
@shared.session_options
def verify(record: Record, master: str, lake: Path, allow_gaps: bool) -> None:
    """Are the files of a lake intact?"""
    from anabranch.spark.jobs.verify import verify as job  # noqa: PLC0415 - an extra

    def progress(read: int, files: int) -> None:
        record.step(f"{read} of {files} files read", total=read)

    record.unit = "files"
    verified = partial(job, lake=lake, allow_gaps=allow_gaps, progress=progress)
    run_on_lake(record, lake, master, verified, partial(_verified, allow_gaps=allow_gaps))


_HOLDS: Final = {
    "log": "the table's log can be read",
    "missing": "every file of the log is there",
    "unreadable": "every file can be read",
    "altered": "files have the digests of their names",
    "count": "files have as many entries as the log says",
    "place": "entries are in the files of their stream and day",
    "overlap": "no position is in two files",
    "gap": "no position is missing",
}


def _verified(done: Verified, *, allow_gaps: bool) -> Words:
    holds = {kind: what for kind, what in _HOLDS.items() if kind != "gap" or not allow_gaps}
    checks = checks_of(
        holds, ((each.kind, f"{each.kind} {each.where}: {each.what}") for each in done.findings)
    )
    lines = []
    if done.undigested:
        lines.append(f"{counted(done.undigested, 'file')} of another tool, without a digest")
    last = (
        f"{counted(done.files, 'file')}, {counted(done.entries, 'entry')}, "
        f"{counted(done.nbytes, 'byte')} read: {counted(len(done.findings), 'finding')}, "
        f"{counted(len(done.gaps), 'gap')}"
    )
    return Words(last, lines, checks)


@click.command(
    name="migrate-lake",
    cls=Job,
    help="""Turn a LAKE of an earlier version, with manifests, into a Delta table in its place.

Nothing else may write at the same time. It can be interrupted and run again. 'archive' and 'replay'
then continue where they were.
""",
)
@_lake
def migrate_lake(record: Record, lake: Path) -> None:
    """A lake of an earlier version into a Delta table."""
    from anabranch.spark.jobs.migrate import migrate  # noqa: PLC0415 - an extra

    def progress(read: int, files: int) -> None:
        record.step(f"{read} of {files} files rewritten", total=read)

    record.unit = "files"
    run_alone(record, lambda: migrate(lake, progress=progress), _migrated)


def _migrated(done: Migrated) -> Words:
    entries = counted(done.entries, "entry")
    before = counted(done.files_before, "file")
    return Words(f"{before} of manifests became {done.files:,} of a table, with {entries}")
