"""Counterexamples as text: written by a search, read and run again by ``--replay``.

The first line names the world, each other line is a step of :mod:`script`. A reply stands behind
its command as a comment::

    world entries
    eu> XADD k * f b                                  # -> 1700000000300-1
    us> DEL k                                         # -> 1
    eu -> us
    settle
    # I-1: regions 1 and 2 have applied the same and differ
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from anabranch.simulator.exploration.play import Play, Situation
from anabranch.simulator.exploration.reactions import describe
from anabranch.simulator.exploration.script import Move, SmallWorld, line_of, move_of
from anabranch.simulator.exploration.worlds import world_named

REPLY_COLUMN = 50
"""Where replies begin."""


class ReplayedScript(NamedTuple):
    """How a transcript went."""

    lines: list[str]
    """The transcript with the replies, and with what was wrong at the end."""
    problem: Exception | None


class TranscriptError(ValueError):
    """A transcript that cannot be followed."""


def read_transcript(lines: Iterable[str]) -> tuple[SmallWorld, list[Move]]:
    """The world and the steps of a transcript; :class:`TranscriptError` with the line."""
    world: SmallWorld | None = None
    moves: list[Move] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            if world is None:
                word, _, name = text.partition(" ")
                if word != "world":
                    raise ValueError(f"it begins with {text!r}, and must begin with `world NAME`")
                world = world_named(name.partition("#")[0].strip())
            else:
                moves.append(move_of(text))
        except ValueError as problem:
            raise TranscriptError(f"line {number}: {problem}") from None
    if world is None:
        raise TranscriptError("it is empty; the first line must be `world NAME`")
    return world, moves


def replay(world: SmallWorld, moves: Iterable[Move]) -> ReplayedScript:
    """Make these moves in a world, until something is wrong."""
    play = Play(world)
    began = play.begin()
    lines = [f"world {world.name}"]
    situation, problem = began.situation, began.problem
    for move in moves:
        if problem is not None:
            break
        if move == ("settle",):
            lines.append("settle")
            problem = play.end(situation)
            continue
        situation, reply, problem = _step(play, situation, move)
        line = line_of(move)
        if move[0] == "do" and problem is None:
            line = f"{line.ljust(REPLY_COLUMN)}# -> {_shown(reply)}"
        lines.append(line)
    if problem is not None:
        lines.append(f"# {describe(problem)}")
    return ReplayedScript(lines, problem)


def _step(
    play: Play, situation: Situation, move: Move
) -> tuple[Situation, object, Exception | None]:
    for script, possible in play.moves(situation):
        if possible == move:
            performed = play.perform(situation, script, move)
            if performed is not None:
                return performed.situation, performed.reply, performed.problem
    others = [
        f"`{line_of(each)}`"
        for script, each in play.moves(situation)
        if play.perform(situation, script, each) is not None
    ]
    raise TranscriptError(
        f"`{line_of(move)}` is not possible at this place in {play.world.name}; possible are "
        + ", ".join([*others, "`settle`"])
    )


def _shown(reply: object) -> str:
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "backslashreplace")
    return f"error {reply}" if isinstance(reply, Exception) else repr(reply)
