"""The command line: `python -m benchmarks.versus_redis`, from the root of the repository.

Progress goes to standard error, the tables to standard output. The committed files in
`benchmarks/results/` are rewritten by a complete run only; any other run writes files when
`--out` says where.
"""

from __future__ import annotations

import fnmatch
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import plot

from . import machine, memory, report, targets
from .load import Connection, RefusedError
from .measure import Bench, Row, run_workload
from .servers import Recipe, Server, ServerError, anabranch_recipe, redis_recipe
from .workloads import Workload, catalogue

RESULTS = Path(__file__).resolve().parent.parent / "results"
FULL_ROUNDS, QUICK_ROUNDS = 7, 3
FULL_SCALE, QUICK_SCALE = 1.0, 0.2
FULL_ENTRIES, QUICK_ENTRIES = 200_000, 40_000
TABLE_COLUMNS = 140


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter rounds: under a minute.")
@click.option(
    "--only",
    metavar="PATTERN",
    help="Run what matches: part of a name, or a glob such as 'XADD*depth 256'.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for latest.json, latest.md and latest.png.",
)
@click.option(
    "--against",
    metavar="PATH",
    help="Measure this server (one that takes redis-server's options) in Anabranch's place.",
)
@click.option("--list", "list_names", is_flag=True, help="List the names of all workloads.")
def main(
    *, quick: bool, only: str | None, out: Path | None, against: str | None, list_names: bool
) -> None:
    """Run Anabranch and redis-server side by side and print what each operation costs."""
    workloads = [one for one in catalogue() if _is_wanted(one.name, only)]
    shapes = [one for one in memory.shapes() if _is_wanted(f"memory: {one.name}", only)]
    if list_names:
        names = [one.name for one in workloads] + [f"memory: {one.name}" for one in shapes]
        click.echo("\n".join(names))
        return
    if not workloads and not shapes:
        raise click.BadParameter(
            f"no workload matches {only!r}; --list shows all", param_hint="--only"
        )

    baseline = redis_recipe()
    subject = redis_recipe(against, "other") if against else anabranch_recipe()
    try:
        result = _run(baseline, subject, workloads, shapes, quick=quick)
    except ServerError as error:
        raise click.ClickException(str(error)) from error

    console = Console()
    if not console.is_terminal:
        console.width = TABLE_COLUMNS
    for table in report.tables(result):
        console.print(table)
    for note in report.notes(result):
        console.print(f"  {note}", highlight=False, markup=False, soft_wrap=True)
    is_complete = not (quick or only or against)
    directory = out or (RESULTS if is_complete else None)
    if directory:
        path = report.write(result, directory)
        plot.draw(path, path.with_suffix(".png"))
        click.echo(f"written: {directory}/latest.json, latest.md, latest.png", err=True)


def _run(
    baseline: Recipe,
    subject: Recipe,
    workloads: list[Workload],
    shapes: list[memory.Shape],
    *,
    quick: bool,
) -> report.Result:
    """Run everything that is wanted, with progress on standard error."""
    started = time.monotonic()
    described = machine.describe()
    rounds = QUICK_ROUNDS if quick else FULL_ROUNDS
    rows: list[Row] = []
    weights: list[memory.MemoryRow] = []
    with Progress(
        TextColumn("{task.description:<44}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    ) as progress:
        task = progress.add_task("starting", total=len(workloads) + len(shapes))
        with Server(baseline) as their_server, Server(subject) as our_server:
            contestants = [_contestant(server) for server in (their_server, our_server)]
            with closing(Bench(their_server)) as theirs, closing(Bench(our_server)) as ours:
                for workload in workloads:
                    progress.update(task, description=workload.name)
                    scale = QUICK_SCALE if quick else FULL_SCALE
                    rows.append(run_workload(workload, theirs, ours, rounds=rounds, scale=scale))
                    progress.advance(task)
        for shape in shapes:
            progress.update(task, description=f"memory: {shape.name}")
            entries = QUICK_ENTRIES if quick else FULL_ENTRIES
            weights.append(memory.run_shape(shape, baseline, subject, entries))
            progress.advance(task)
    return report.Result(
        made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        machine=described,
        baseline=contestants[0],
        subject=contestants[1],
        rounds=rounds,
        quick=quick,
        seconds=round(time.monotonic() - started, 1),
        workloads=rows,
        memory=weights,
        targets=targets.judge(rows),
    )


def _contestant(server: Server) -> report.Contestant:
    """Ask a server which version it is: its own field of INFO if it has one, or Redis's."""
    fields = {}
    try:
        with Connection(server.port) as connection:
            info = connection.ask("INFO", "server")
    except RefusedError:
        info = b""
    if isinstance(info, bytes):
        for line in info.decode(errors="replace").splitlines():
            name, _, value = line.partition(":")
            fields[name] = value
    known = fields.get("anabranch_version") or fields.get("redis_version")
    return report.Contestant(server.name, known or "of unknown version")


def _is_wanted(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    name, pattern = name.lower(), pattern.lower()
    return pattern in name or fnmatch.fnmatchcase(name, pattern)


if __name__ == "__main__":
    main()
