"""``anabranch spark audit``: have all regions the same?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.spark.shared import Job, region_options, report, run, run_alone, session_options

if TYPE_CHECKING:
    from anabranch.spark.jobs.audit import Audited

__all__ = ["audit"]


@click.command(
    cls=Job,
    help="""Compare what all regions have; exit 1 if there is a finding.

Entries that are under way are not compared. Without --region-urls the regions are found by asking
the server; this takes it that clients are served 10000 ports below the gossip port. Spark is
started for more than five million entries only.

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
@click.option("--limit", default=1000, show_default=True, help="Report no more than so many.")
@click.option(
    "--idempotence",
    is_flag=True,
    help="Look for what one producer wrote in two regions as well; see idmp-audit.",
)
def audit(url: str, master: str, as_json: bool, options: dict[str, str], **more: Any) -> None:
    """Compare, and tell by the exit code."""
    from anabranch.spark.jobs.audit import ALONE_MAX, TooLarge  # noqa: PLC0415 - an extra
    from anabranch.spark.jobs.audit import audit as job  # noqa: PLC0415

    def audited(spark: Any, alone_max: int | None = None) -> Audited:
        return job(
            spark,
            alone_max=alone_max,
            options={"url": url, **options},
            progress=lambda text: report(f"anabranch: {text}"),
            **more,
        )

    try:
        done = run_alone(lambda: audited(None, ALONE_MAX), as_json=as_json, in_words=_in_words)
    except TooLarge:
        done = run(master, audited, as_json=as_json, in_words=_in_words)
    raise SystemExit(1 if done.findings else 0)


def _in_words(done: Audited) -> str:
    lines = []
    for each in done.findings:
        by = f", written by region {each.origin}" if each.origin else ""
        lines.append(f"{each.kind}: {each.stream} {each.what}{by}: {', '.join(each.regions)}")
    if done.more:
        lines.append("there is more: raise --limit")
    if done.undecided:
        lines.append(f"{done.undecided} differences may be under way: the regions are apart")
    counts = ", ".join(
        f"{count} of {name}" for name, count in zip(done.regions, done.entries, strict=True)
    )
    verdict = "converged" if done.converged else "DIVERGED"
    lines.append(f"{verdict}: {done.streams} streams, entries compared: {counts}")
    return "\n".join(lines)
