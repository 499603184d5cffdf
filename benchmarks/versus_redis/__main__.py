"""The command line: `python -m benchmarks.versus_redis`, from the root of the repository.

Progress goes to standard error, the tables to standard output. The committed files in
`benchmarks/results/` are rewritten by a complete run only; any other run writes files when
`--out` says where.
"""

from __future__ import annotations

import fnmatch
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from anabranch.server.process import is_compiled
from benchmarks import plot

from . import (
    crowds,
    floods,
    longest,
    machine,
    memory,
    old_entries,
    profile,
    regional,
    report,
    targets,
)
from .floor import Floor
from .load import Connection, RefusedError
from .longest import LongCommand, LongRow, long_commands, run_long_commands
from .measure import Bench, run_workload
from .restart import run_restarts
from .servers import (
    Recipe,
    Server,
    ServerError,
    anabranch_recipe,
    interpreted_recipe,
    redis_recipe,
)
from .workloads import Workload, catalogue, durable_catalogue

RESULTS = Path(__file__).resolve().parent.parent / "results"
FULL_ROUNDS, QUICK_ROUNDS = 7, 3
INTERPRETED_ROUNDS = 3
FULL_SCALE, QUICK_SCALE = 1.0, 0.2
MEMORY_ENTRIES, QUICK_MEMORY_ENTRIES = 1_000_000, 40_000
QUICK_SETTLE_S = 5.0
QUICK_RESTART = 100_000
QUICK_LONG = 50_000
LONG_ROUNDS, QUICK_LONG_ROUNDS = 3, 1
POLICIES = ("everysec", "always")
TABLE_COLUMNS = 140


LOGGED = ("everysec", "always")
"""What `appendfsync` is while large values come: the log gets all their bytes."""


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
@click.option(
    "--profile", "profiled", is_flag=True, help="Show where the CPU goes, too; needs perf."
)
@click.option("--list", "list_names", is_flag=True, help="List the names of all workloads.")
def main(
    *,
    quick: bool,
    only: str | None,
    out: Path | None,
    against: str | None,
    profiled: bool,
    list_names: bool,
) -> None:
    """Run Anabranch and redis-server side by side and print what each operation costs."""
    workloads = [one for one in catalogue() if _is_wanted(one.name, only)]
    shapes = {
        form: [one for one in memory.shapes() if _is_wanted(_memory_name(form, one), only)]
        for form in old_entries.FORMS
    }
    durable = {
        policy: [one for one in durable_catalogue(policy) if _is_wanted(one.name, only)]
        for policy in POLICIES
    }
    old = {
        form: [one for one in old_entries.old_entries_catalogue(form) if _is_wanted(one.name, only)]
        for form in old_entries.FORMS
    }
    restarts = _is_wanted(targets.RESTART, only)
    commands = [one for one in long_commands() if _is_wanted(f"longest wait: {one.name}", only)]
    pours = [one for one in floods.floods() if _is_wanted(_flood_name(one), only)]
    large = {
        policy: [one for one in floods.large_values() if _is_wanted(_large_name(policy, one), only)]
        for policy in LOGGED
    }
    gathered = [one for one in crowds.crowds() if _is_wanted(_crowd_name(one), only)]
    moves = [
        one
        for one in regional.regional_names()
        if not against and _is_wanted(_regional_name(one), only)
    ]
    if list_names:
        names = [one.name for one in workloads]
        names += [one.name for policy in POLICIES for one in durable[policy]]
        names += [one.name for form in old_entries.FORMS for one in old[form]]
        names += [_memory_name(form, one) for form in old_entries.FORMS for one in shapes[form]]
        names.append(targets.RESTART)
        names += [f"longest wait: {one.name}" for one in commands]
        names += map(_flood_name, pours)
        names += [_large_name(policy, one) for policy in LOGGED for one in large[policy]]
        names += map(_crowd_name, gathered)
        names += map(_regional_name, moves)
        click.echo("\n".join(names))
        return
    wanted = Wanted(
        workloads,
        durable,
        old,
        shapes,
        commands,
        pours,
        large,
        gathered,
        moves,
        restarts=restarts,
    )
    if not wanted.count:
        raise click.BadParameter(
            f"no workload matches {only!r}; --list shows all", param_hint="--only"
        )

    def contestants(
        appendfsync: str | None = None, options: Sequence[str] = ()
    ) -> tuple[Recipe, Recipe]:
        if against:
            subject = redis_recipe(against, "other", appendfsync)
        else:
            subject = anabranch_recipe(appendfsync, options)
        return redis_recipe(appendfsync=appendfsync), subject

    try:
        if profiled:
            profile.check()
        both = not (quick or against) and is_compiled()
        result = _run(contestants, wanted, quick=quick, profiled=profiled, both=both)
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be run."""

    workloads: list[Workload]
    durable: dict[str, list[Workload]]
    """By what ``appendfsync`` is to be."""
    old: dict[str, list[Workload]]
    shapes: dict[str, list[memory.Shape]]
    """What is weighed, by the form of old nodes."""
    commands: list[LongCommand]
    """While they run, a canary measures how long others wait."""
    floods: list[floods.Flood]
    """The same."""
    large: dict[str, list[floods.Flood]]
    """The same with a log, by what ``appendfsync`` is to be."""
    crowds: list[floods.Flood]
    """The same, and the CPU counts, too."""
    regional: list[str]
    """The same for what only regions do."""
    restarts: bool

    @property
    def count(self) -> int:
        """Return how many rows that makes."""
        by_name = (self.old, self.durable, self.large, self.shapes)
        played = len(self.workloads) + sum(len(rows) for each in by_name for rows in each.values())
        others = len(self.commands) + len(self.floods) + self.restarts
        return played + others + len(self.crowds) + len(self.regional)


def _run(
    contestants: Callable[..., tuple[Recipe, Recipe]],
    wanted: Wanted,
    *,
    quick: bool,
    profiled: bool,
    both: bool,
) -> report.Result:
    """Run everything that is wanted, with progress on standard error.

    With ``both`` what has a goal is run in the interpreted form as well.
    """
    started = time.monotonic()
    described = machine.describe()
    rounds = QUICK_ROUNDS if quick else FULL_ROUNDS
    scale = QUICK_SCALE if quick else FULL_SCALE
    measured, interpreted = targets.Measured(), targets.Measured()
    profiles: list[profile.Profile] = []
    waits: list[LongRow] = []
    baseline, subject = contestants()
    with Progress(
        TextColumn("{task.description:<44}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    ) as progress:
        task = progress.add_task("starting", total=wanted.count)
        named: list[report.Contestant] = []
        groups: list[tuple[str | None, Sequence[str], list[Workload]]]
        groups = [(None, (), wanted.workloads)]
        groups += [(policy, (), plays) for policy, plays in wanted.durable.items()]
        groups += [
            (None, (*old_entries.SOON, *options), wanted.old[form])
            for form, options in old_entries.FORMS.items()
        ]
        for appendfsync, options, workloads in groups:
            if named and not workloads:
                continue
            with _benches(*contestants(appendfsync, options)) as (theirs, ours), Floor() as floor:
                named = named or [_contestant(bench.server) for bench in (theirs, ours)]
                for workload in workloads:
                    progress.update(task, description=workload.name)
                    row = run_workload(workload, theirs, ours, floor, rounds=rounds, scale=scale)
                    measured.rows.append(row)
                    if profiled:
                        profiles += profile.take(workload, row, scale, theirs, ours)
                    progress.advance(task)
            judged = [one for one in workloads if both and targets.has_goal(one.name)]
            if judged:
                pair = (
                    redis_recipe(appendfsync=appendfsync),
                    interpreted_recipe(appendfsync, options),
                )
                with _benches(*pair) as (theirs, slow):
                    for workload in judged:
                        progress.update(task, description=f"interpreted: {workload.name}")
                        row = run_workload(
                            workload, theirs, slow, None, rounds=INTERPRETED_ROUNDS, scale=scale
                        )
                        interpreted.rows.append(row)
        if wanted.restarts:
            progress.update(task, description=targets.RESTART)
            entries = QUICK_RESTART if quick else targets.RESTART_ENTRIES
            pair = contestants(targets.RESTART_LOG)
            measured.restarts.extend(run_restarts(*pair, entries))
            if both:
                pair = pair[0], interpreted_recipe(targets.RESTART_LOG)
                interpreted.restarts.extend(run_restarts(*pair, entries))
            progress.advance(task)
        progress.update(task, description="memory")
        weighed = QUICK_MEMORY_ENTRIES if quick else MEMORY_ENTRIES
        settle_s = QUICK_SETTLE_S if quick else memory.SETTLE_S
        for form, options in old_entries.FORMS.items():
            first, *others = contestants(None, options)
            others += [interpreted_recipe(None, options)] if both else []
            for found in memory.run_shapes(wanted.shapes[form], first, others, weighed, settle_s):
                for weight, place in zip(found, (measured, interpreted), strict=False):
                    name = targets.weighed_name(form, weight.name)
                    place.memory.append(replace(weight, name=name))
                progress.advance(task)
        if wanted.commands:
            progress.update(task, description="longest waits")
            entries = QUICK_LONG if quick else longest.FULL_ENTRIES
            times = QUICK_LONG_ROUNDS if quick else LONG_ROUNDS
            for row in run_long_commands(baseline, subject, wanted.commands, entries, times):
                waits.append(row)
                progress.update(task, advance=1, description=f"longest wait: {row.name}")
        times = QUICK_LONG_ROUNDS if quick else LONG_ROUNDS
        for row in floods.run_floods(baseline, subject, wanted.floods, times):
            waits.append(row)
            progress.update(task, advance=1, description=f"longest wait: {row.name}")
        for policy, values in wanted.large.items():
            name, factor = floods.LARGE.format(policy), floods.TIMES_REDIS_LARGE
            for row in floods.run_floods(
                *contestants(policy), values, times, name=name, times_redis=factor
            ):
                waits.append(row)
                progress.update(task, advance=1, description=f"longest wait: {row.name}")
        for row in crowds.run_crowds(baseline, subject, wanted.crowds, times):
            waits.append(row)
            progress.update(task, advance=1, description=f"longest wait: {row.name}")
        entries = QUICK_LONG if quick else longest.FULL_ENTRIES
        for row in regional.run_regional(wanted.regional, entries, times):
            waits.append(row)
            progress.update(task, advance=1, description=f"longest wait: {row.name}")
    return report.Result(
        made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        machine=described,
        baseline=named[0],
        subject=named[1],
        rounds=rounds,
        interpreted_rounds=INTERPRETED_ROUNDS if both else 0,
        quick=quick,
        seconds=round(time.monotonic() - started, 1),
        workloads=measured.rows,
        memory=measured.memory,
        memory_entries=weighed,
        restarts=measured.restarts,
        waits=waits,
        waits_entries=QUICK_LONG if quick else longest.FULL_ENTRIES,
        targets=targets.judge(replace(measured, memory=[]) if quick else measured, interpreted),
        profiles=profiles,
    )


@contextmanager
def _benches(*recipes: Recipe) -> Iterator[list[Bench]]:
    """Run servers, each with the connection that loads it."""
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(recipe)) for recipe in recipes]
        yield [stack.enter_context(closing(Bench(server))) for server in servers]


def _contestant(server: Server) -> report.Contestant:
    """Ask a server which version it is: its own field of INFO if it has one, or Redis's.

    Anabranch says as well whether its hot modules are compiled.
    """
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
    known = fields.get("anabranch_version") or fields.get("redis_version") or "of unknown version"
    if "anabranch_version" in fields:
        known += " compiled" if fields.get("compiled") == "1" else " interpreted"
    return report.Contestant(server.name, known)


def _memory_name(form: str, shape: memory.Shape) -> str:
    return f"memory: {targets.weighed_name(form, shape.name)}"


def _flood_name(flood: floods.Flood) -> str:
    return f"longest wait: {floods.NAME}{flood.name}"


def _large_name(policy: str, flood: floods.Flood) -> str:
    return f"longest wait: {floods.LARGE.format(policy)}{flood.name}"


def _crowd_name(crowd: floods.Flood) -> str:
    return f"longest wait: {crowds.NAME}{crowd.name}"


def _regional_name(name: str) -> str:
    return f"longest wait: {regional.NAME}{name}"


def _is_wanted(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    name, pattern = name.lower(), pattern.lower()
    return pattern in name or fnmatch.fnmatchcase(name, pattern)


if __name__ == "__main__":
    main()
