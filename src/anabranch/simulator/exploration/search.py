"""The search: all situations of a world, by the number of moves, so the first failure is shortest.

Two orders of moves that commute lead to the same situation, which is known then, and what a region
does there is remembered (:mod:`reactions`): so such orders cost next to nothing. No move is left
out for that reason (by sleep sets, for instance): whether two moves commute depends on what is on
its way, since frames that do not wait follow a frame that arrives.

Of regions that no script names, which could stand for each other, the first one is touched first.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from xxhash import xxh3_128_digest

from anabranch.simulator.exploration.play import Play, Situation
from anabranch.simulator.exploration.script import Move, SmallWorld

PROGRESS_EVERY: Final = 500
"""Situations between two reports of progress."""


@dataclass
class Explored:
    """What a search has found."""

    world: SmallWorld
    situations: int = 1
    moves: int = 0
    ends: int = 0
    """Situations in which nothing more can happen: there all regions must come to agree."""
    depth: int = 0
    region_states: int = 0
    reactions: int = 0
    is_complete: bool = False
    problem: Exception | None = None
    path: list[Move] = field(default_factory=list)
    """The moves that lead to the problem; the last one may be ``settle``."""


@dataclass(frozen=True)
class Reductions:
    """What a search leaves out because it changes no verdict; all can be switched off to check."""

    merges: bool = True
    """Pasts of a region that cannot be told apart are one state."""
    swaps: bool = True
    """Regions that could stand for each other are taken in one order."""


def seldom_collected() -> None:
    """Collect garbage seldom in this process: a search keeps nearly all that it makes."""
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)


class Search:
    """A breadth-first search through a world."""

    def __init__(
        self,
        world: SmallWorld,
        reductions: Reductions = Reductions(),
        *,
        situations_max: int = 0,
        on_progress: Callable[[Explored], None] | None = None,
    ) -> None:
        """``situations_max``: give up after so many; 0 is no limit."""
        self._play = Play(world, merges=reductions.merges)
        self._reductions = reductions
        self._max = situations_max
        self._on_progress = on_progress
        self.explored = Explored(world)
        self._came: dict[bytes, tuple[bytes, Move]] = {}
        self._first: Situation
        self._root: bytes

    def run(self) -> Explored:
        """Search all situations, or until something is wrong."""
        explored = self.explored
        began = self._play.begin()
        self._first = began.situation
        if began.problem is not None:
            explored.problem = began.problem
            return self._over()
        self._root = _key(began.situation)
        level = {self._root: began.situation}
        while level:
            following: dict[bytes, Situation] = {}
            for key, situation in level.items():
                if not self._expand(key, situation, following):
                    return self._over()
                if self._max and explored.situations > self._max:
                    return self._over()
            explored.depth += bool(following)
            level = following
        explored.is_complete = True
        return self._over()

    def _over(self) -> Explored:
        explored, reactions = self.explored, self._play.reactions
        explored.region_states = len(reactions.states)
        explored.reactions = reactions.count
        return explored

    def _expand(self, key: bytes, situation: Situation, following: dict[bytes, Situation]) -> bool:
        """Make all moves of a situation; returns whether all is well."""
        play, explored = self._play, self.explored
        goes_on = False
        for script, move in play.moves(situation):
            if self._reductions.swaps and self._is_swapped(situation, move):
                goes_on = True
                continue
            performed = play.perform(situation, script, move)
            if performed is None:
                continue
            goes_on = True
            explored.moves += 1
            if performed.problem is not None:
                self._found(performed.problem, key, [move])
                return False
            self._reach(performed.situation, key, move, following)
        if goes_on:
            return True
        explored.ends += 1
        problem = play.end(situation)
        if problem is not None:
            self._found(problem, key, [("settle",)])
        return problem is None

    def _is_swapped(self, situation: Situation, move: Move) -> bool:
        """Whether a move touches a region before the one that could stand for it."""
        bystanders = self._play.world.bystanders
        named = move[1:3] if move[0] in ("arrive", "twice", "cut") else move[1:2]
        fresh = [each for each in bystanders if self._is_fresh(situation, each)]
        return len(fresh) > 1 and any(each in named for each in fresh[1:])

    def _is_fresh(self, situation: Situation, region: int) -> bool:
        return situation.regions[region - 1] == self._first.regions[region - 1]

    def _reach(
        self, situation: Situation, came_from: bytes, move: Move, following: dict[bytes, Situation]
    ) -> None:
        key = _key(situation)
        if key not in self._came and key != self._root:
            self._came[key] = came_from, move
            following[key] = situation
            self._count()

    def _count(self) -> None:
        explored = self.explored
        explored.situations += 1
        if self._on_progress is not None and explored.situations % PROGRESS_EVERY == 0:
            self._over()
            self._on_progress(explored)

    def _found(self, problem: Exception, key: bytes, last: list[Move]) -> None:
        path = last
        while key in self._came:
            key, move = self._came[key]
            path.insert(0, move)
        self.explored.problem, self.explored.path = problem, path


def _key(situation: Situation) -> bytes:
    return xxh3_128_digest(repr(situation).encode())
