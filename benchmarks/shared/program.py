"""The command line of a program that measures against goals.

Progress goes to standard error, the table to standard output. The committed files in
`benchmarks/results/` are rewritten by a complete run only; any other run writes files when
`--out` says where.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import click
from rich.console import Console

from benchmarks.versus_redis import machine

from . import report
from .figures import Figure
from .form import measured_form
from .goals import Goal, judge

RESULTS = Path(__file__).resolve().parent.parent / "results"
TABLE_COLUMNS = 160


class Measure(Protocol):
    """Returns figures; `quick` is with less of everything."""

    def __call__(self, *, quick: bool) -> list[Figure]:
        """Measure."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A name for the command line, and what is done."""

    name: str
    measure: Measure
    is_extra: bool = False
    """Made only when it is asked for by `--only`: it takes long."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is measured, and how the page about it begins."""

    page: report.Page
    catalogue: Callable[[], list[Measurement]]
    goals: Mapping[str, Goal]
    draw: Callable[[Path, Path], None] | None = None
    """Makes a picture (PNG) of the JSON, if there is something to draw."""

    def run(self, *, quick: bool, only: str | None, out: Path | None, list_names: bool) -> None:
        """Make measurements and print how they do beside what is expected of them."""
        catalogue = self.catalogue()
        wanted = [
            one
            for one in catalogue
            if (not one.is_extra if only is None else only in one.name.lower())
        ]
        if not wanted:
            raise click.BadParameter(
                f"nothing is called {only!r}; --list shows all", param_hint="--only"
            )
        if list_names:
            click.echo("\n".join(one.name for one in (catalogue if only is None else wanted)))
            return
        result = self._made(wanted, quick=quick)
        console = Console()
        if not console.is_terminal:
            console.width = TABLE_COLUMNS
        console.print(report.table(result, self.page))
        directory = out or (None if quick or only else RESULTS)
        if directory:
            report.write(result, self.page, directory)
            name = self.page.name
            if self.draw is not None:
                self.draw(directory / f"{name}.json", directory / f"{name}.png")
            click.echo(f"written: {directory}/{name}.json, {name}.md", err=True)
        if any(part.problem for part in result.parts):
            raise click.exceptions.Exit(1)

    def _made(self, wanted: Sequence[Measurement], *, quick: bool) -> report.Result:
        began = time.monotonic()
        described = machine.describe()
        parts = [self._part(measurement, quick=quick) for measurement in wanted]
        return report.Result(
            made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            version=measured_form(),
            machine=described,
            quick=quick,
            seconds=round(time.monotonic() - began, 1),
            parts=parts,
        )

    def _part(self, measurement: Measurement, *, quick: bool) -> report.Part:
        """Make one measurement; what goes wrong with it is told, and the others are made."""
        click.echo(f"{measurement.name} ...", err=True, nl=False)
        began = time.monotonic()
        try:
            verdicts, problem = judge(measurement.measure(quick=quick), self.goals), ""
        except Exception as error:
            verdicts, problem = [], str(error) or type(error).__name__
        seconds = round(time.monotonic() - began, 1)
        click.echo(f" {seconds} s", err=True)
        return report.Part(measurement.name, seconds, verdicts, problem)


def command(program: Program, help_text: str) -> click.Command:
    """The program as a command with its options."""
    name = program.page.name

    @click.command(help=help_text)
    @click.option("--quick", is_flag=True, help="With less of everything: about a minute.")
    @click.option("--only", metavar="NAME", help="Run what has this in its name.")
    @click.option(
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        help=f"Directory for {name}.json and {name}.md.",
    )
    @click.option("--list", "list_names", is_flag=True, help="List the names of all measurements.")
    def main(*, quick: bool, only: str | None, out: Path | None, list_names: bool) -> None:
        program.run(quick=quick, only=only and only.lower(), out=out, list_names=list_names)

    return main
