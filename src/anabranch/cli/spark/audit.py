"""``anabranch spark audit``: do all regions have the same entries?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from anabranch.cli.spark.record import Check, Job, Record, Words
from anabranch.cli.spark.shared import region_options, run, run_alone, session_options

if TYPE_CHECKING:
    from anabranch.spark.jobs.audit import Audited

__all__ = ["audit"]


@click.command(
    cls=Job,
    help="""Compare the entries of all regions; exit 1 if there is a finding.

Entries that some regions have not received yet are not compared. Without --region-urls the server
is asked for the regions; the port for clients is then assumed to be 10000 below the gossip port.
Spark is started for more than five million entries only.

\b
Example:
  anabranch spark audit --region-urls '{"eu": "redis://eu:6379", "us": "redis://us:6379"}'
""",
)
@region_options
@session_options
@click.option("--bucket-ms", type=click.IntRange(1), help="Span of time of one digest.")
@click.option(
    "--settle",
    "settle_s",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="Seconds that regions may take to catch up with each other.",
)
@click.option("--limit", default=1000, show_default=True, help="Greatest number of findings.")
def audit(record: Record, url: str, master: str, options: dict[str, str], **more: Any) -> None:
    """Compare; the exit code is the result."""
    from anabranch.spark.jobs.audit import ALONE_MAX, TooLarge  # noqa: PLC0415 - an extra
    from anabranch.spark.jobs.audit import audit as job  # noqa: PLC0415

    def audited(spark: Any, alone_max: int | None = None) -> Audited:
        return job(
            spark,
            alone_max=alone_max,
            options={"url": url, **options},
            progress=lambda text: record.step(f"anabranch: {text}"),
            **more,
        )

    try:
        run_alone(record, lambda: audited(None, ALONE_MAX), _in_words)
    except TooLarge:
        run(record, master, audited, _in_words)


_HOLDS: Final = {
    "stream missing": "every region has every stream",
    "missing": "every region has the entries of the others",
    "extra": "no region has entries that their own region has not",
    "content": "entries of the same ID are the same",
    "group missing": "every region has every consumer group",
    "group differs": "regions know the same of consumer groups",
}


def _in_words(done: Audited) -> Words:
    found: dict[str, list[str]] = {kind: [] for kind in _HOLDS}
    for each in done.findings:
        by = f", written by region {each.origin}" if each.origin else ""
        words = f"{each.kind}: {each.stream} {each.what}{by}: {', '.join(each.regions)}"
        found[each.kind].append(words)
    checks = [Check(_HOLDS[kind], lines) for kind, lines in found.items()]
    apart = [f"{done.undecided} differences may be under way: the regions are apart"]
    checks.append(Check("all is decided", apart if done.undecided else (), fails=False))
    lines = ["there is more: raise --limit"] if done.more else []
    counts = ", ".join(
        f"{count} of {name}" for name, count in zip(done.regions, done.entries, strict=True)
    )
    verdict = "converged" if done.converged else "DIVERGED"
    return Words(f"{verdict}: {done.streams} streams, entries compared: {counts}", lines, checks)
