"""``anabranch spark verify``: does a lake hold what it says it holds?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.spark.shared import Job, counted, report, run_on_lake, session_options

if TYPE_CHECKING:
    from anabranch.spark.jobs.verify import Verified

__all__ = ["verify"]


@click.command(
    cls=Job,
    help="""Read all files of a LAKE again and compare them with the table's log.

Looks at digests, counts and days, and for files that are missing, for positions that no entry has
and for those that two have. Exits with 0 if all is well, with 1 if there is a finding. Spark is
started for lakes above 1 GiB only.

\b
Example:
  anabranch spark verify lake/ --allow-gaps
""",
)
@click.argument("lake", type=click.Path(path_type=Path))
@click.option("--allow-gaps", is_flag=True, help="Missing positions are no finding.")
@session_options
def verify(master: str, as_json: bool, lake: Path, allow_gaps: bool) -> None:
    """Does a lake hold what it says it holds?"""
    from anabranch.spark.jobs.verify import verify as job  # noqa: PLC0415 - an extra

    def verified(spark: Any) -> Verified:
        return job(spark, lake, allow_gaps=allow_gaps, progress=_told_of)

    done = run_on_lake(lake, master, verified, as_json=as_json, in_words=_in_words)
    raise SystemExit(1 if done.findings else 0)


def _told_of(read: int, files: int) -> None:
    report(f"{read} of {files} files read")


def _in_words(done: Verified) -> str:
    lines = [f"{each.kind} {each.where}: {each.what}" for each in done.findings]
    if done.undigested:
        lines.append(f"{counted(done.undigested, 'merged file')} without a digest")
    lines.append(
        f"{counted(done.files, 'file')}, {counted(done.entries, 'entry', 'entries')}, "
        f"{counted(done.nbytes, 'byte')} read: {counted(len(done.findings), 'finding')}, "
        f"{counted(len(done.gaps), 'gap')}"
    )
    return "\n".join(lines)
