"""``anabranch spark lag``: do consumer groups keep up?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.spark.shared import (
    connected,
    counted,
    given,
    region_urls,
    regions_option,
    run_alone,
    source_options,
)

if TYPE_CHECKING:
    from anabranch.spark.jobs.lag import GroupLag, Lagged
    from anabranch.spark.lag_sample import Sample

__all__ = ["lag"]


@click.command(
    help="""Sample the lag of consumer groups, say whether they catch up; exit 1 if one does not.

\b
Example:
  anabranch spark lag --streams orders --samples 60 --interval 10 --plot lag.svg
""",
)
@regions_option
@click.option("--streams", help="Comma-separated keys; all by default.")
@click.option("--pattern", help="Glob of keys, instead.")
@click.option("--groups", help="Comma-separated; all by default.")
@click.option("--samples", type=click.IntRange(1), default=10, show_default=True)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Seconds between two samples.",
)
@click.option("--table", help="Append the samples to this directory of Parquet files.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    help='Draw them: .svg or .png. Needs: pip install "anabranch[plot]"',
)
@click.option("--dry-run", is_flag=True, help="Look once, and write neither table nor picture.")
@source_options
@connected
def lag(
    url: str,
    as_json: bool,
    urls: str | None,
    streams: str | None,
    groups: str | None,
    table: str | None,
    pairs: tuple[str, ...],
    **more: Any,
) -> None:
    """Sample, and tell by the exit code."""
    arguments = {
        "region_urls": region_urls(urls),
        "streams": streams.split(",") if streams else (),
        "groups": groups.split(",") if groups else (),
        "options": {"url": url, **given(pairs)},
        "progress": _tell,
        "table": table,
        **more,
    }

    def job() -> Lagged:
        from anabranch.spark.jobs.lag import lag as job_  # noqa: PLC0415 - heavy

        return job_(**arguments)

    done = run_alone(job, as_json=as_json, in_words=_in_words)
    raise SystemExit(1 if any(each.never for each in done.groups) else 0)


def _tell(samples: Sequence[Sample]) -> None:
    lags = ", ".join(f"{each.name}: {'?' if each.lag is None else each.lag}" for each in samples)
    print(f"anabranch: {lags or 'no consumer group'}", file=sys.stderr)


def _in_words(done: Lagged) -> str:
    lines = [_line(each) for each in done.groups]
    if done.dry_run:
        lines.append(
            f"a dry run: {done.samples} samples would be taken in {done.seconds:.1f} s; nothing "
            "was written"
        )
        return "\n".join(lines)
    return "\n".join([*lines, counted(len(done.groups), "group")])


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
