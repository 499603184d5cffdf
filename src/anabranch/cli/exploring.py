"""``anabranch simulate --exhaustive`` and ``--replay``: small worlds in every order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import click

from anabranch.cli.progress import Progress
from anabranch.simulator.exploration.reactions import describe
from anabranch.simulator.exploration.script import SmallWorld
from anabranch.simulator.exploration.search import Search, seldom_collected
from anabranch.simulator.exploration.transcript import TranscriptError, read_transcript, replay
from anabranch.simulator.exploration.worlds import SMALL, WORLDS, world_named


def worlds_of(text: str) -> Sequence[SmallWorld]:
    """The worlds that ``--exhaustive`` names; BadParameter if there is one that is not known."""
    if text == "all":
        return WORLDS
    try:
        return [world_named(name) for name in (SMALL if text == "small" else text.split(","))]
    except ValueError as problem:
        raise click.BadParameter(f"{problem}; or small, all, list") from None


def list_worlds() -> None:
    """Print all worlds, with what they cover and their scripts."""
    for world in WORLDS:
        mark = " (small)" if world.name in SMALL else ""
        print(f"{world.name}{mark}: {world.regions} regions. {world.covers}")
        for script in world.scripts:
            print(f"    {script}")


def explore(
    worlds: Sequence[SmallWorld], jobs: int, *, is_silent: bool = False
) -> list[dict[str, Any]]:
    """Search worlds, and print a line for each; returns the facts, those of a failure last."""
    found: list[dict[str, Any]] = []
    with ProcessPoolExecutor(jobs, initializer=seldom_collected) as pool:
        try:
            for facts in pool.map(_search, worlds):
                found.append(facts)
                if not is_silent:
                    _print_facts(facts)
                if facts["problem"]:
                    pool.shutdown(cancel_futures=True)
                    break
        except BrokenProcessPool:
            raise click.ClickException(
                "a process that searched was killed, perhaps for want of memory: fewer --jobs "
                "take less, and single worlds can be named"
            ) from None
    return found


def _print_facts(facts: dict[str, Any]) -> None:
    print("\n".join([_line(facts), *facts["transcript"]]), flush=True)
    if facts["problem"]:
        print("# to see it again: anabranch simulate --replay FILE, a file of these lines")


def _search(world: SmallWorld) -> dict[str, Any]:
    began_s = time.process_time()
    with Progress(world.name, None, unit="states") as progress:
        explored = Search(world, on_progress=lambda it: progress.update(it.situations)).run()
    facts: dict[str, Any] = {
        "world": world.name,
        "regions": world.regions,
        "states": explored.situations,
        "transitions": explored.moves,
        "ends": explored.ends,
        "depth": explored.depth,
        "region_states": explored.region_states,
        "processor_s": round(time.process_time() - began_s, 1),
        "problem": "",
        "transcript": [],
    }
    if explored.problem is not None:
        facts["problem"] = describe(explored.problem)
        facts["transcript"] = replay(world, explored.path).lines
    return facts


def _line(facts: dict[str, Any]) -> str:
    rate = facts["states"] / max(facts["processor_s"], 0.1)
    return (
        f"{facts['world']}: {facts['problem'] or 'all held'} ({facts['regions']} regions, "
        f"{facts['states']:,} states, {facts['transitions']:,} transitions, depth "
        f"{facts['depth']}, {facts['ends']:,} ends, {facts['region_states']:,} states of regions, "
        f"{facts['processor_s']:.1f} s of processor time, {rate:,.0f} states/s)"
    )


def run_transcript(path: Path) -> bool:
    """Replay a transcript and print it with the replies; returns whether all held."""
    try:
        world, moves = read_transcript(path.read_text("utf-8").splitlines())
        replayed = replay(world, moves)
    except UnicodeDecodeError as problem:
        raise click.ClickException(f"{path} is no text in UTF-8: {problem}") from None
    except TranscriptError as problem:
        raise click.ClickException(f"{path}: {problem}") from None
    print("\n".join(replayed.lines))
    print("all held" if replayed.problem is None else f"fails: {describe(replayed.problem)}")
    return replayed.problem is None
