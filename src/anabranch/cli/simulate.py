"""``anabranch simulate``: whole clusters in virtual time, with faults drawn from a seed."""

from __future__ import annotations

from collections import Counter

import click

from anabranch.simulator.cases import CASES
from anabranch.simulator.faults import FAULTS
from anabranch.simulator.simulation import Outcome, simulate, smallest

__all__ = ["command"]


def _faults(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    if value == "all":
        return tuple(FAULTS)
    names = [] if value == "none" else value.split(",")
    for name in names:
        if name not in FAULTS:
            raise click.BadParameter(f"there is no {name!r}; there are {', '.join(FAULTS)}")
    return tuple(name for name in FAULTS if name in names)


def _seeds(ctx: click.Context, parameter: click.Parameter, value: str | None) -> range | None:
    if value is None:
        return None
    low, _, high = value.partition("-")
    try:
        return range(int(low), int(high or low) + 1)
    except ValueError:
        raise click.BadParameter("two numbers with a dash between, as in 1-100") from None


@click.command(help="Run clusters in virtual time, with faults, and check what must hold.")
@click.option("--seed", type=int, help="One run.")
@click.option("--seeds", callback=_seeds, metavar="A-B", help="Many runs, both ends included.")
@click.option("--regions", type=click.IntRange(2, 9), default=3, show_default=True)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.01),
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
    help=f"all, none, or some of {','.join(FAULTS)}. A run has some of them, by its seed.",
)
@click.option("--verbose", is_flag=True, help="Show every event of a run that succeeds, too.")
def command(
    seed: int | None,
    seeds: range | None,
    regions: int,
    minutes: float,
    faults: tuple[str, ...],
    verbose: bool,
) -> None:
    """Print a line a run, what was reached, and every event of the first run that failed."""
    if (seed is None) == (seeds is None):
        raise click.UsageError("give either --seed or --seeds")
    reached: Counter[str] = Counter()
    for each in seeds if seeds is not None else [seed or 0]:
        outcome = simulate(each, regions=regions, minutes=minutes, faults=faults)
        reached += outcome.reached
        print(_line(outcome))
        if outcome.problem is not None:
            _explain(smallest(outcome, regions=regions, minutes=minutes), regions, minutes)
            raise SystemExit(1)
        if verbose:
            print("\n".join(outcome.lines))
    for name in sorted({*CASES, *reached}):
        print(f"{reached[name]:8} {name}")


def _line(outcome: Outcome) -> str:
    names = ",".join(outcome.faults) or "none"
    return (
        f"seed {outcome.seed}: {outcome.sentence} "
        f"({outcome.commands} commands, {outcome.virtual_s:.1f} s, faults {names})"
    )


def _explain(outcome: Outcome, regions: int, minutes: float) -> None:
    names = ",".join(outcome.faults) or "none"
    print("\n".join(outcome.lines))
    print(f"fails: {outcome.sentence}")
    print(
        f"again: anabranch simulate --seed {outcome.seed} --regions {regions} "
        f"--minutes {minutes:g} --faults {names}"
    )
