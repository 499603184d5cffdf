"""The search: all situations of a world, by the number of moves, so the first failure is shortest.

Two moves commute if they touch different regions. Of two orders of such moves only one is followed:
each situation has a *sleep set*, the moves that lead only to what another order has reached
(Godefroid, "Partial-Order Methods for the Verification of Concurrent Systems", 1996, chapter 5).
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

Choice = tuple[int, Move]
"""A script (-1 for what travels), and its move."""

Sleep = dict[Choice, frozenset[int]]
"""Moves that need not be made, and the regions that each touches."""


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

    sleeps: bool = True
    """Of orders that commute only one is followed."""
    merges: bool = True
    """Pasts of a region that cannot be told apart are one state."""
    swaps: bool = True
    """Regions that could stand for each other are taken in one order."""


@dataclass
class _Open:
    """A situation whose moves are still to be made."""

    situation: Situation
    sleep: Sleep
    only: frozenset[Choice] | None = None
    """If it was left before with a larger sleep set: the moves that were not made then."""


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
        self._slept: dict[bytes, frozenset[Choice]] = {}
        self._first: Situation

    def run(self) -> Explored:
        """Search all situations, or until something is wrong."""
        explored = self.explored
        began = self._play.begin()
        self._first = began.situation
        if began.problem is not None:
            explored.problem = began.problem
            return self._over()
        root = _key(began.situation)
        self._slept[root] = frozenset()
        level = {root: _Open(began.situation, {})}
        while level:
            following: dict[bytes, _Open] = {}
            for key, each in level.items():
                if not self._expand(key, each, following):
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

    def _expand(self, key: bytes, each: _Open, following: dict[bytes, _Open]) -> bool:
        """Make all moves of a situation; returns whether all is well."""
        play, explored = self._play, self.explored
        sleep = dict(each.sleep)
        goes_on = False
        for choice in play.moves(each.situation):
            script, move = choice
            if choice in sleep or self._is_left_out(each, choice):
                goes_on = True
                continue
            performed = play.perform(each.situation, script, move)
            if performed is None:
                continue
            goes_on = True
            explored.moves += 1
            if performed.problem is not None:
                self._found(performed.problem, key, [move])
                return False
            awake = {
                other: touched
                for other, touched in sleep.items()
                if touched.isdisjoint(performed.touched)
            }
            self._reach(performed.situation, key, move, awake, following)
            if self._reductions.sleeps:
                sleep[choice] = performed.touched
        if goes_on or each.only is not None:
            return True
        explored.ends += 1
        problem = play.end(each.situation)
        if problem is not None:
            self._found(problem, key, [("settle",)])
        return problem is None

    def _is_left_out(self, each: _Open, choice: Choice) -> bool:
        if each.only is not None and choice not in each.only:
            return True
        return self._reductions.swaps and self._is_swapped(each.situation, choice[1])

    def _is_swapped(self, situation: Situation, move: Move) -> bool:
        """Whether a move touches a region before the one that could stand for it."""
        bystanders = self._play.world.bystanders
        named = move[1:3] if move[0] in ("arrive", "twice", "cut") else move[1:2]
        fresh = [each for each in bystanders if self._is_fresh(situation, each)]
        return len(fresh) > 1 and any(each in named for each in fresh[1:])

    def _is_fresh(self, situation: Situation, region: int) -> bool:
        return situation.regions[region - 1] == self._first.regions[region - 1]

    def _reach(
        self,
        situation: Situation,
        came_from: bytes,
        move: Move,
        sleep: Sleep,
        following: dict[bytes, _Open],
    ) -> None:
        key = _key(situation)
        before = self._slept.get(key)
        if before is None:
            self._slept[key] = frozenset(sleep)
            self._came[key] = came_from, move
            following[key] = _Open(situation, sleep)
            self._count()
            return
        missing = before - sleep.keys()
        if not missing:
            return
        self._slept[key] = before & sleep.keys()
        waiting = following.get(key)
        if waiting is None:
            following[key] = _Open(situation, sleep, only=missing)
        elif waiting.only is None:
            waiting.sleep = {o: t for o, t in waiting.sleep.items() if o in sleep}
        else:
            waiting.only |= missing
            waiting.sleep = {o: t for o, t in waiting.sleep.items() if o in sleep}

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
