"""``anabranch inspect --write``: make a damaged log usable, and keep what is cut off."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from anabranch.cli.failures import Failed
from anabranch.cli.inspect_files import locked
from anabranch.cli.inspect_values import as_json, when
from anabranch.cli.progress import Progress
from anabranch.node.cluster_notes import forget_epoch
from anabranch.oplog.inspection import Survey
from anabranch.oplog.repair import RepairPlan, carry_out, plan_repair
from anabranch.server.disk import Directory


def write_log(
    ctx: click.Context, directory: Directory, only: str | None, *, yes: bool, as_objects: bool
) -> None:
    """Find the first damage, ask, cut there; ``only`` is the file that the user has named."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError(
            "--write asks before it changes anything, and there is no terminal: add --yes"
        )
    if only is not None and only not in {each.name for each in Survey(directory).segments}:
        raise click.UsageError(
            f"{directory.shown(only)} is no file of a log by its name: there is nothing to cut"
        )
    with locked(directory, "; without --write the files can be looked at while it runs"):
        survey = Survey(directory)
        with Progress("reading", survey.bytes_total) as progress:
            for _ in survey.walk():
                progress.update(survey.bytes_done)
        repair = plan_repair(survey)
        if repair is None:
            print("anabranch: a start takes these files as they are: nothing was cut")
            ctx.exit(0 if survey.is_sound else 1)
        _only_what_was_named(directory, only, repair)
        for line in _intention(directory, repair):
            print(line, file=sys.stderr)
        question = "Cut it off?" if repair.absence is None else "Go on without it?"
        if not yes and not click.confirm(question, err=True):
            raise Failed("nothing was changed")
        forget_epoch(directory)  # others may have what is cut off
        kept = carry_out(directory, repair)
    if as_objects:
        print(
            as_json(
                {
                    "position": repair.position,
                    "lost_bytes": repair.lost_bytes,
                    "lost_turns": repair.lost_turns,
                    "lost_effects": repair.lost_effects,
                    "kept": kept,
                }
            )
        )
        return
    for name, target in kept.items():
        print(f"{directory.shown(name)}: what was cut is kept as {target}")
    print(f"The log ends at position {repair.position} now: the server can be started.")


def _only_what_was_named(directory: Directory, only: str | None, repair: RepairPlan) -> None:
    """Refuse to cut at another place than the user has looked at."""
    if repair.absence is not None:
        return
    broken = repair.cut if repair.cut is not None else repair.aside[0]
    if only in (None, broken.name):
        return
    raise Failed(
        f"{broken.shown} is damaged first: cut there, or name the directory. What comes behind "
        f"it, {directory.shown(only or '')} too, is put aside then"
    )


def _intention(directory: Directory, repair: RepairPlan) -> Iterator[str]:
    if repair.absence is not None:
        yield f"{directory.shown(repair.absence.name)} {repair.absence.what}"
        yield f"To be done without it: kept is what is here, up to position {repair.position}."
        return
    cut = repair.cut
    if cut is not None:
        assert cut.problem is not None
        offset, what = cut.problem
        yield f"{cut.shown}: at byte {offset}: {what}"
        behind = (
            f", with {cut.turns_behind:,} sound turns ({cut.effects_behind:,} effects) behind the "
            "damage"
            if cut.turns_behind
            else ""
        )
        yield (f"  to be cut at byte {cut.sound}: {cut.size - cut.sound:,} bytes are lost{behind}")
    for facts in repair.aside:
        turns = facts.turns + facts.turns_behind
        effects = facts.effects + facts.effects_behind
        problem = f" ({facts.problem[1]})" if facts.problem is not None else ""
        yield (
            f"{facts.shown}: to be put aside{problem}: {facts.size:,} bytes, {turns:,} sound turns "
            f"({effects:,} effects) are lost"
        )
    last = cut.latest_ms if cut is not None else None
    yield (
        f"Kept is everything before position {repair.position}"
        f"{f', up to {when(last)}' if last is not None else ''}."
    )
