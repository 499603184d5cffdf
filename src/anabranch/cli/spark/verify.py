"""``anabranch spark verify``: are the files of a lake intact?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from anabranch.cli.spark.record import Check, Job, Record, Words
from anabranch.cli.spark.shared import counted, run_on_lake, session_options

if TYPE_CHECKING:
    from anabranch.spark.jobs.verify import Verified

__all__ = ["verify"]


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
@click.argument("lake", type=click.Path(path_type=Path))
@click.option("--allow-gaps", is_flag=True, help="Missing positions are no finding.")
@session_options
def verify(record: Record, master: str, lake: Path, allow_gaps: bool) -> None:
    """Are the files of a lake intact?"""
    from anabranch.spark.jobs.verify import verify as job  # noqa: PLC0415 - an extra

    def verified(spark: Any) -> Verified:
        return job(spark, lake, allow_gaps=allow_gaps, progress=progress)

    def progress(read: int, files: int) -> None:
        record.step(f"{read} of {files} files read", total=read)

    record.unit = "files"
    in_words = partial(_in_words, allow_gaps=allow_gaps)
    run_on_lake(record, lake, master, verified, in_words)


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


def _in_words(done: Verified, *, allow_gaps: bool) -> Words:
    checks = [
        Check(
            what,
            [f"{kind} {each.where}: {each.what}" for each in done.findings if each.kind == kind],
        )
        for kind, what in _HOLDS.items()
        if kind != "gap" or not allow_gaps
    ]
    lines = []
    if done.undigested:
        lines.append(f"{counted(done.undigested, 'merged file')} without a digest")
    last = (
        f"{counted(done.files, 'file')}, {counted(done.entries, 'entry', 'entries')}, "
        f"{counted(done.nbytes, 'byte')} read: {counted(len(done.findings), 'finding')}, "
        f"{counted(len(done.gaps), 'gap')}"
    )
    return Words(last, lines, checks)
