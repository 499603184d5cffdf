"""``anabranch spark windows``: counts, sums and percentiles for each window and key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.spark import shared
from anabranch.cli.spark.job import Job
from anabranch.cli.spark.record import Check, Picture, Record, Words
from anabranch.cli.spark.shared import as_time, counted

if TYPE_CHECKING:
    from anabranch.spark.jobs.windows import Windowed, WindowsProgress
    from anabranch.spark.options import ServerOptions

_GROUPING = ("size", "slide", "delay", "time", "key", "value", "kind", "unique")


@click.command(
    cls=Job,
    help="""Count, sum and rank the entries of STREAMS (separated by commas) by window and key.

Results are written to a stream (--into) or to Parquet files (--lake), each row once. A window is
written when the watermarks of all regions have passed its end. Until then it is open, and the
checkpoint keeps it for the next run.

\b
Example:
  anabranch spark windows orders --size '1 hour' --key city --value amount --lake hours/
""",
)
@click.argument("streams")
@click.option("--into", help="Stream to write to; needs --checkpoint.")
@click.option("--lake", type=click.Path(path_type=Path), help="Directory to write to.")
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    help="Directory for the progress. [default: LAKE/_checkpoint]",
)
@click.option("--size", default="1 minute", show_default=True)
@click.option("--slide", help="Distance of two windows. [default: their size]")
@click.option("--delay", default="10 seconds", show_default=True, help="Of the watermarks.")
@click.option("--time", default="ts", show_default=True, help="Field with the time (ISO 8601).")
@click.option("--key", help="Field, or: stream, region.")
@click.option("--value", help="Field with numbers.")
@click.option("--kind", default="decimal(18,6)", show_default=True, help="Type of the values.")
@click.option("--percentiles", default="50,95,99", show_default=True)
@click.option("--unique", help="Field that identifies an event: repetitions count once.")
@click.option("--regions", help="Comma-separated. [default: those there are]")
@click.option("--after-ms", type=int, help="Only windows that end after this time.")
@shared.once_option
@shared.plot_option
@click.option("--dry-run", is_flag=True, help="Count the present entries, and write nothing.")
@shared.common
def windows(
    record: Record,
    url: str,
    master: str,
    streams: str,
    percentiles: str,
    regions: str | None,
    options: dict[str, str],
    plot: Path | None,
    **more: Any,
) -> None:
    """Counts, sums and percentiles for each window and key."""
    from anabranch.spark.jobs.windows import Windowing  # noqa: PLC0415 - an extra
    from anabranch.spark.jobs.windows import windows as job  # noqa: PLC0415
    from anabranch.spark.options import ReadOptions  # noqa: PLC0415
    from anabranch.spark.plots.pictures import draw_windows  # noqa: PLC0415
    from anabranch.spark.plots.plotting import check_plot  # noqa: PLC0415

    try:
        parts = tuple(float(each) / 100 for each in percentiles.split(",") if each)
    except ValueError:
        raise click.UsageError(f"--percentiles takes numbers, not {percentiles!r}") from None
    if plot is not None:
        if more["lake"] is None:
            raise click.UsageError("--plot draws the files of --lake: give that option, too")
        check_plot(plot)
    grouping = {name: more.pop(name) for name in _GROUPING}

    def windowed(spark: Any) -> Windowed:
        return job(
            spark,
            streams,
            Windowing(percentiles=parts, **grouping),
            url=url,
            regions=regions.split(",") if regions is not None else None,
            progress=progress,
            options=options,
            **more,
        )

    def progress(step: WindowsProgress) -> None:
        words = f"batch {step.batch}: {counted(step.entries, 'entry')}, "
        record.step(f"{words}{counted(step.windows, 'window')} closed", more=step.entries)

    def draw(path: Path) -> None:
        draw_windows(more["lake"], path, grouping["size"])

    def check() -> ServerOptions:
        read = {name: each for name, each in options.items() if name != "allowProducerChange"}
        return ReadOptions.parse({"url": url, "subscribe": streams, **read}).server

    if more["lake"] is not None and not more["dry_run"]:
        record.pictures.append(Picture("Windows", draw))
    follows = not (more["once"] or more["dry_run"])
    shared.run(record, master, windowed, _in_words, check=check, follows=follows)
    if plot is not None and not more["dry_run"]:
        draw(plot)


def _in_words(done: Windowed) -> Words:
    words = counted(done.entries, "entry")
    if regions := ", ".join(filter(None, done.regions)):
        words += f" of regions {regions}"
    if done.dry_run:
        return Words(
            f"{words} are in {counted(done.windows, 'window')} by key; nothing was written"
        )
    words += f" read, {counted(done.windows, 'window')} by key closed"
    if done.open is not None:
        words += f", {done.open:,} left open"
    if done.watermark_ms is not None:
        words += f"; closed are those that end up to {as_time(done.watermark_ms)}"
    starts = f"the query was started {done.starts} times"
    found = (
        ("no entry came too late", done.late > 0, f"{done.late:,} came too late"),
        ("every entry has a time", done.untimed > 0, f"{done.untimed:,} have no time"),
        ("the query was not interrupted", done.starts > 1, starts),
    )
    checks = [Check(what, [said] if is_so else (), fails=False) for what, is_so, said in found]
    return Words(words, checks=checks)
