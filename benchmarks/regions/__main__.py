"""The command line: `python -m benchmarks.regions`, from the root of the repository.

Progress goes to standard error, the table to standard output. The committed files in
`benchmarks/results/` are rewritten by a complete run only; any other run writes files when
`--out` says where.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from anabranch.version import __version__
from benchmarks.versus_redis import machine
from benchmarks.versus_redis.load import RefusedError
from benchmarks.versus_redis.servers import ServerError

from . import report
from .catalogue import Measurement, catalogue
from .goals import judge

RESULTS = Path(__file__).resolve().parent.parent / "results"
TABLE_COLUMNS = 160


@click.command()
@click.option("--quick", is_flag=True, help="With less of everything: about a minute.")
@click.option("--only", metavar="NAME", help="Run what has this in its name.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for regions.json and regions.md.",
)
@click.option("--list", "list_names", is_flag=True, help="List the names of all measurements.")
def main(*, quick: bool, only: str | None, out: Path | None, list_names: bool) -> None:
    """Run regions on this machine and print how they do beside what is expected of them."""
    wanted = [one for one in catalogue() if only is None or only.lower() in one.name]
    if not wanted:
        raise click.BadParameter(
            f"nothing is called {only!r}; --list shows all", param_hint="--only"
        )
    if list_names:
        click.echo("\n".join(one.name for one in wanted))
        return
    began = time.monotonic()
    described = machine.describe()
    parts = [_run(measurement, quick=quick) for measurement in wanted]
    result = report.Result(
        made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        machine=described,
        quick=quick,
        seconds=round(time.monotonic() - began, 1),
        parts=parts,
    )
    console = Console()
    if not console.is_terminal:
        console.width = TABLE_COLUMNS
    console.print(report.table(result))
    directory = out or (None if quick or only else RESULTS)
    if directory:
        report.write(result, directory)
        click.echo(f"written: {directory}/{report.NAME}.json, {report.NAME}.md", err=True)
    if any(part.problem for part in parts):
        raise click.exceptions.Exit(1)


def _run(measurement: Measurement, *, quick: bool) -> report.Part:
    """Make one measurement; what goes wrong with it is told, and the others are made."""
    click.echo(f"{measurement.name} ...", err=True, nl=False)
    began = time.monotonic()
    try:
        verdicts, problem = judge(measurement.measure(quick=quick)), ""
    except (OSError, RuntimeError, RefusedError, ServerError) as error:
        verdicts, problem = [], str(error) or type(error).__name__
    seconds = round(time.monotonic() - began, 1)
    click.echo(f" {seconds} s", err=True)
    return report.Part(measurement.name, seconds, verdicts, problem)


if __name__ == "__main__":
    sys.exit(main())
