"""``anabranch simulate``: whole clusters in virtual time, with faults drawn from a seed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from anabranch.cli import exploring
from anabranch.cli.options import FiniteRange
from anabranch.cli.progress import Progress
from anabranch.simulator.cases import CASES, meaning
from anabranch.simulator.faults import FAULTS, simulate, smallest
from anabranch.simulator.simulation import Outcome, Simulation


def _faults(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    if value == "all":
        return tuple(FAULTS)
    names = [] if value == "none" else value.replace(" ", "").split(",")
    for name in names:
        if name not in FAULTS:
            raise click.BadParameter(f"there is no {name!r}; there are {', '.join(FAULTS)}")
    return tuple(name for name in FAULTS if name in names)


def _seeds(ctx: click.Context, parameter: click.Parameter, value: str | None) -> range | None:
    if value is None:
        return None
    low, _, high = value.partition("-")
    try:
        seeds = range(int(low), int(high or low) + 1)
    except ValueError:
        raise click.BadParameter("two numbers with a dash between, as in 1-100") from None
    if not seeds:
        raise click.BadParameter(f"the second number is below the first one: {high}-{low}?")
    return seeds


@click.command(help="Run clusters in virtual time, with faults, and check what must hold.")
@click.option("--seed", type=int, help="One run.")
@click.option("--seeds", callback=_seeds, metavar="A-B", help="Many runs, both ends included.")
@click.option("--regions", type=click.IntRange(2, 9), default=3, show_default=True)
@click.option(
    "--minutes",
    type=FiniteRange(min=0.01),
    default=5.0,
    show_default=True,
    help="Virtual time during which things go wrong.",
)
@click.option(
    "--faults",
    callback=_faults,
    default="all",
    show_default=True,
    metavar="NAMES",
    help=f"all, none, or some, with commas between: {', '.join(FAULTS)}. "
    "A run has some of them, by its seed.",
)
@click.option(
    "--exhaustive",
    is_flag=False,
    flag_value="small",
    metavar="[WORLDS]",
    help="Instead of runs by seeds, try every order in small worlds: small (the default), all, "
    "names with commas between, or list.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Worlds that are explored at the same time.",
)
@click.option(
    "--replay",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run a transcript that --exhaustive has printed.",
)
@click.option("--verbose", is_flag=True, help="Show every event of a run that succeeds, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def command(
    seed: int | None,
    seeds: range | None,
    regions: int,
    minutes: float,
    faults: tuple[str, ...],
    **options: Any,
) -> None:
    """Print a line a run, what was reached, and every event of the first run that failed."""
    worlds, transcript, as_json = options["exhaustive"], options["replay"], options["as_json"]
    if sum(each is not None for each in (seed, seeds, worlds, transcript)) != 1:
        raise click.UsageError("give one of --seed, --seeds, --exhaustive and --replay")
    if worlds is not None or transcript is not None:
        _refuse("regions", "minutes", "faults", "verbose", only_for="--seed or --seeds")
        _explore(worlds or "", options["jobs"], transcript, as_json=as_json)
        return
    _refuse("jobs", only_for="--exhaustive")
    reached: Counter[str] = Counter()
    outcomes: list[Outcome] = []
    failed: Outcome | None = None
    for each in seeds if seeds is not None else [seed or 0]:
        outcome = _run(each, regions, minutes, faults)
        reached += outcome.reached
        outcomes.append(outcome)
        if not as_json:
            print(_line(outcome), flush=True)
        if outcome.problem is not None:
            failed = smallest(outcome, regions=regions, minutes=minutes)
            break
        if options["verbose"] and not as_json:
            print("\n".join(outcome.lines))
    counts = {name: reached[name] for name in sorted({*CASES, *reached})}
    if as_json:
        print(json.dumps(_facts(outcomes, failed, counts, regions, minutes), indent=2))
    elif failed is not None:
        print("\n".join(failed.lines))
        print(f"fails: {failed.sentence}")
        print(f"again: {_again(failed, regions, minutes)}")
    else:
        _print_counts(counts)
    if failed is not None:
        raise SystemExit(1)


def _run(seed: int, regions: int, minutes: float, faults: tuple[str, ...]) -> Outcome:
    total_ms = round(minutes * 60_000)
    with Progress(f"seed {seed}", total_ms) as progress:

        def show(run: Simulation) -> None:
            progress.update(min(int(run.timeline.now_ms), total_ms))

        return simulate(seed, regions=regions, minutes=minutes, faults=faults, on_progress=show)


def _refuse(*names: str, only_for: str) -> None:
    ctx = click.get_current_context()
    for name in names:
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name} is only for {only_for}; leave it out")


def _explore(names: str, jobs: int, transcript: Path | None, *, as_json: bool) -> None:
    if transcript is not None:
        is_well = exploring.run_transcript(transcript)
    elif names == "list":
        exploring.list_worlds()
        return
    else:
        found = exploring.explore(exploring.worlds_of(names), jobs, is_silent=as_json)
        is_well = not any(each["problem"] for each in found)
        if as_json:
            print(json.dumps({"worlds": found}, indent=2))
    if not is_well:
        raise SystemExit(1)


def _print_counts(counts: dict[str, int]) -> None:
    print(
        "\nHow often the runs came to a situation. 0 means that the checks of that situation "
        "have proved nothing:\nmore seeds or minutes reach it.\n"
    )
    width = max(map(len, counts))
    for name, count in counts.items():
        print(f"{count:8}  {name.ljust(width)}  {meaning(name)}".rstrip())


def _line(outcome: Outcome) -> str:
    names = ",".join(outcome.faults) or "none"
    return (
        f"seed {outcome.seed}: {outcome.sentence} "
        f"({outcome.commands} commands, {outcome.virtual_s:.1f} s, faults {names})"
    )


def _again(outcome: Outcome, regions: int, minutes: float) -> str:
    """The command that shows a failure again."""
    names = ",".join(outcome.faults) or "none"
    return (
        f"anabranch simulate --seed {outcome.seed} --regions {regions} --minutes {minutes:g} "
        f"--faults {names}"
    )


def _facts(
    outcomes: list[Outcome],
    failed: Outcome | None,
    counts: dict[str, int],
    regions: int,
    minutes: float,
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "runs": [
            {
                "seed": each.seed,
                "held": each.problem is None,
                "result": each.sentence,
                "commands": each.commands,
                "virtual_s": each.virtual_s,
                "faults": list(each.faults),
            }
            for each in outcomes
        ],
        "reached": [
            {"name": name, "count": count, "meaning": meaning(name)}
            for name, count in counts.items()
        ],
    }
    if failed is not None:
        facts["failed"] = {
            "result": failed.sentence,
            "again": _again(failed, regions, minutes),
            "events": failed.lines,
        }
    return facts
