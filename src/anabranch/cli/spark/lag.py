"""``anabranch spark lag``: do consumer groups keep up?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.numbers import FiniteRange
from anabranch.cli.spark.job import Job
from anabranch.cli.spark.record import Check, Picture, Record, Words
from anabranch.cli.spark.shared import (
    check_regions,
    counted,
    names_option,
    plot_option,
    region_options,
    run_alone,
)

if TYPE_CHECKING:
    from anabranch.spark.jobs.lag import GroupLag, Lagged
    from anabranch.spark.plots.pictures import Sample


@click.command(
    cls=Job,
    help="""Sample the lag of consumer groups; exit 1 if one does not catch up.

\b
Example:
  anabranch spark lag --streams orders --samples 60 --interval 10 --plot lag.svg
""",
)
@region_options
@names_option("--groups")
@click.option("--samples", type=click.IntRange(1), default=10, show_default=True)
@click.option(
    "--interval",
    "interval_s",
    type=FiniteRange(0),
    default=1.0,
    show_default=True,
    help="Seconds between two samples.",
)
@click.option("--table", help="Append the samples to this directory of Parquet files.")
@plot_option
@click.option("--dry-run", is_flag=True, help="Take one sample, and write nothing.")
def lag(record: Record, url: str, options: dict[str, str], **more: Any) -> None:
    """Sample; the exit code is the result."""
    from anabranch.spark.jobs.lag import lag as job  # noqa: PLC0415 - an extra
    from anabranch.spark.plots.pictures import draw_lag  # noqa: PLC0415

    seen: list[Sample] = []

    def progress(samples: Sequence[Sample]) -> None:
        if record.page is not None:
            seen.extend(samples)
        lags = [f"{each.name}: {'?' if each.lag is None else each.lag}" for each in samples]
        record.step(f"anabranch: {', '.join(lags) or 'no consumer group'}")

    def lagged() -> Lagged:
        return job(options={"url": url, **options}, progress=progress, **more)

    record.pictures.append(Picture("Lag", lambda path: draw_lag(seen, path)))
    check_regions(url, options, more["region_urls"])
    run_alone(record, lagged, _in_words)


def _in_words(done: Lagged) -> Words:
    last = counted(len(done.groups), "group")
    if done.dry_run:
        last = (
            f"a dry run: {done.samples} samples would be taken in {done.seconds:.1f} s; nothing "
            "was written"
        )
    never = [_line(each) for each in done.groups if each.never]
    checks = [Check("every group catches up at this rate", never)]
    return Words(last, [_line(each) for each in done.groups if not each.never], checks)


def _line(each: GroupLag) -> str:
    name = f"{each.stream} {each.group}" + (f" at {each.region}" if each.region else "")
    if each.last is None:
        words = "lag not known"
    else:
        words = f"lag {each.last} (at most {each.max})"
    if each.slope is not None:
        words += f", {each.slope:+.1f} entries/s"
    if each.never:
        words += ", NEVER catches up at this rate"
    elif each.catches_up_s:
        words += f", catches up in {each.catches_up_s:.0f} s"
    words += f"; {each.pending} pending (at most {each.pending_max})"
    if each.pending_age_ms is not None and each.pending_idle_ms is not None:
        words += (
            f", the oldest {each.pending_age_ms / 1000:.1f} s old and delivered "
            f"{each.pending_idle_ms / 1000:.1f} s ago"
        )
    return f"{name}: {words}"
