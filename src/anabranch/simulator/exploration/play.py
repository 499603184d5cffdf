"""A world in motion: its states, the moves that are possible in each, and where a move leads.

A :class:`Situation` is the state of every region with the connections between them and what is on
its way there. A move is a step of a script or the arrival of a frame. Frames that do not wait
(:attr:`SmallWorld.holds`) arrive as soon as nothing is before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from anabranch.keyspace.replica import region_of
from anabranch.simulator.exploration.reactions import ENDED, Reactions
from anabranch.simulator.exploration.region_run import Sight
from anabranch.simulator.exploration.script import Move, SmallWorld
from anabranch.simulator.record import Violation

RELINK_MS: Final = (100, 100, 200, 400, 800)
"""The waits until regions are connected again; together too short for a silent link."""

SETTLE_MS: Final = (*RELINK_MS, *(1000,) * 14)
"""The waits until all regions agree after the last move."""

FLOW_MAX: Final = 3000
"""Frames that may arrive at once; more would mean that regions never stop answering."""


class WorldLink(NamedTuple):
    """A connection between two regions, with what is on its way in both directions."""

    one: int
    one_link: int
    """Its number in region ``one``; 0 once that side has closed it."""
    other: int
    other_link: int
    to_other: tuple[int, ...]
    to_one: tuple[int, ...]
    is_silent: bool = False
    """Whether it carries nothing more, which neither side has noticed."""


class Situation(NamedTuple):
    """A state of the world."""

    regions: tuple[int, ...]
    """The state of each region."""
    links: tuple[WorldLink, ...]
    at: tuple[int, ...]
    """How many steps of each script are over."""
    cuts: tuple[tuple[int, int], ...] = ()


class Performed(NamedTuple):
    """Where a move leads."""

    situation: Situation
    reply: object
    problem: Exception | None


class _Breach(Exception):
    def __init__(self, problem: Exception) -> None:
        self.problem = problem


class _Way:
    """One direction of a connection, while a move is made."""

    def __init__(self, source: int, target: int, frames: tuple[int, ...]) -> None:
        self.source = source
        self.target = target
        self.frames = list(frames)
        self.link = 0
        """Its number at the target; 0 once the target has closed it."""
        self.is_silent = False
        self.back: _Way


class _Board:
    """The parts of a situation while a move is made."""

    def __init__(self, reactions: Reactions, world: SmallWorld, situation: Situation) -> None:
        self._reactions = reactions
        self._world = world
        self.regions = dict(zip(world.numbers, situation.regions, strict=True))
        self.cuts = set(situation.cuts)
        self.reply: object = None
        self.ways: list[_Way] = []
        for link in situation.links:
            there = _Way(link.one, link.other, link.to_other)
            back = _Way(link.other, link.one, link.to_one)
            there.is_silent = back.is_silent = link.is_silent
            self._join(there, link.other_link, back, link.one_link)

    def _join(self, there: _Way, there_link: int, back: _Way, back_link: int) -> None:
        there.link, back.link = there_link, back_link
        there.back, back.back = back, there
        self.ways += [there, back]

    def frozen(self, at: tuple[int, ...]) -> Situation:
        """The situation that was reached."""
        links = sorted(
            WorldLink(
                way.source, way.back.link, way.target, way.link,
                tuple(way.frames), tuple(way.back.frames), way.is_silent,
            )
            for way in self.ways
            if way.source < way.target
        )  # fmt: skip
        return Situation(tuple(self.regions.values()), tuple(links), at, tuple(sorted(self.cuts)))

    # -- inputs -------------------------------------------------------------------------------

    def put(self, region: int, *given: object) -> bool:
        """Let something happen in a region; returns whether it is possible there."""
        reaction = self._reactions.react(self.regions[region], given)
        if reaction is None:
            return False
        if reaction.problem is not None:
            raise _Breach(reaction.problem)
        self.regions[region] = reaction.after
        for link, frame in reaction.frames:
            for way in self.ways:
                if way.source == region and way.back.link == link and way.link:
                    if not way.is_silent:
                        way.frames.append(frame)
                    break
        for way in [each for each in self.ways if each.target == region]:
            if any(link == way.link and frame == ENDED for link, frame in reaction.frames):
                way.link = 0
                way.frames.clear()
        self._drop_ended()
        if given[0] == "do":
            self.reply = reaction.reply
        for other in reaction.dials:
            self._dial(region, other)
        return True

    def _drop_ended(self) -> None:
        self.ways = [way for way in self.ways if way.link or way.back.link]

    def is_up(self, region: int) -> bool:
        """Whether a process runs there."""
        return self._reactions.sight(self.regions[region]).is_up

    def _dial(self, region: int, other: int) -> None:
        if other not in self.regions or not self.is_up(other) or self._is_cut(region, other):
            self.put(region, "failed", other)
            return
        there, back = _Way(region, other, ()), _Way(other, region, ())
        self._join(there, self._next_link(other), back, self._next_link(region))
        self.put(other, "up", region, False)
        self.put(region, "up", other, True)

    def _next_link(self, region: int) -> int:
        return self._reactions.states[self.regions[region]].links + 1

    def _is_cut(self, one: int, other: int) -> bool:
        return (min(one, other), max(one, other)) in self.cuts

    # -- what is on its way -------------------------------------------------------------------

    def is_held(self, frame: int) -> bool:
        """Whether a frame waits for a move."""
        return frame != ENDED and self._reactions.frames[frame].kind in self._world.holds

    def flow(self, *, everything: bool = False) -> None:
        """Let all frames arrive that do not wait, or all."""
        for _ in range(FLOW_MAX):
            for way in self.ways:
                if way.frames and (everything or not self.is_held(way.frames[0])):
                    self.arrive(way)
                    break
            else:
                return
        raise _Breach(Violation(22, "regions never stop to send frames to each other"))

    def arrive(self, way: _Way) -> None:
        """The next frame of a connection arrives."""
        frame = way.frames.pop(0)
        if frame == ENDED:
            link, way.link = way.link, 0
            way.frames.clear()
            way.back.frames.clear()
            self._drop_ended()
            if self.is_up(way.target):
                self.put(way.target, "down", link)
        else:
            self.put(way.target, "frame", way.link, frame)

    def between(self, source: int, target: int) -> _Way | None:
        """The connection over which effects of a region arrive in another, if some do."""
        for way in self.ways:
            if way.source == source and way.target == target and way.frames:
                return way
        return None

    # -- moves --------------------------------------------------------------------------------

    def make(self, move: Move) -> bool:
        """Make a move; returns whether it is possible."""
        name, *rest = move
        if name in ("arrive", "twice"):
            way = self.between(*rest)
            if way is None or not self.is_held(way.frames[0]):
                return False
            if name == "twice":
                way.frames.insert(0, way.frames[0])
                return True
            self.arrive(way)
        elif name in ("cut", "silence", "heal", "wait", "settle"):
            getattr(self, f"_{name}")(*rest)
        else:
            region = rest[0]
            is_possible = self.is_up(region) == (name not in ("start", "lose-disk"))
            if not is_possible or not self._in_one(name, region, *rest[1:]):
                return False
        self.flow()
        return True

    def _in_one(self, name: str, region: int, *rest: object) -> bool:
        if name in ("kill", "stop", "crash"):
            self._end(name, region, *rest)
            return True
        if name == "start":
            self.put(region, "start", False)
            self._relink()
            return True
        if name == "lose-disk":
            return self.put(region, name, self._former(region))
        return self.put(region, name, *rest)

    def _former(self, region: int) -> tuple[tuple[int, int, int], ...]:
        """By other region, which effects of this one it has: replica ID and number."""
        return tuple(
            (other, replica_id, number)
            for other, state in self.regions.items()
            if other != region
            for replica_id, number in self._reactions.sight(state).vector
            if region_of(replica_id) == region
        )

    def _end(self, name: str, region: int, *rest: object) -> None:
        """A process ends: others notice, once they have got what was on its way."""
        self.put(region, name, *rest)
        for way in list(self.ways):
            is_known = way.is_silent or way.frames[-1:] == [ENDED]
            if way.source == region and way.link and not is_known:
                way.frames.append(ENDED)
            if way.target == region:
                way.link = 0
                way.frames.clear()
        self._drop_ended()

    def _cut(self, one: int, other: int) -> None:
        self.cuts.add((min(one, other), max(one, other)))
        ended = [way for way in self.ways if {way.source, way.target} == {one, other}]
        self.ways = [way for way in self.ways if way not in ended]
        for way in ended:
            if way.link and self.is_up(way.target):
                self.put(way.target, "down", way.link)

    def _silence(self, one: int, other: int) -> None:
        for way in self.ways:
            if {way.source, way.target} == {one, other}:
                way.is_silent = True
                way.frames.clear()

    def _heal(self) -> None:
        self.cuts.clear()
        self._relink()

    def _wait(self, ms: int) -> None:
        for region in self._world.numbers:
            if self.is_up(region):
                self.put(region, "wait", ms)
        self.flow()

    def _relink(self) -> None:
        """Let time pass until all regions are connected that can be."""
        for ms in RELINK_MS:
            if self._are_linked():
                break
            self._wait(ms)

    def _are_linked(self) -> bool:
        removed = self.removed()
        up = [each for each in self.regions if self.is_up(each) and each not in removed]
        return all(
            other in self._reactions.sight(self.regions[one]).linked or self._is_cut(one, other)
            for one in up
            for other in up
            if one != other
        )

    def removed(self) -> set[int]:
        """The regions that were removed from the cluster."""
        return {
            each for state in self.regions.values() for each in self._reactions.sight(state).removed
        }

    def _settle(self) -> None:
        """End all faults and let everything travel, until all regions agree."""
        self.cuts.clear()
        for region in self.regions:
            if not self.is_up(region):
                self.put(region, "start", False)
        why = ""
        for ms in SETTLE_MS:
            self.flow(everything=True)
            for region, state in self.regions.items():
                if self._reactions.sight(state).has_work:
                    self.put(region, "sync")
            self.flow(everything=True)
            self.check()
            disagreement = self.disagreement()
            if disagreement is None:
                return
            why = disagreement
            self._wait(ms)
        raise _Breach(Violation(21, f"no agreement after {sum(SETTLE_MS) / 1000:g} s: {why}"))

    def agreeing(self) -> dict[int, int]:
        """The states of the regions that must agree."""
        removed = self.removed()
        return {each: state for each, state in self.regions.items() if each not in removed}

    def disagreement(self) -> str | None:
        """Why the regions do not agree; None if they do."""
        sights = {each: self._reactions.sight(state) for each, state in self.agreeing().items()}
        first, one = next(iter(sights.items()))
        if not self._are_linked():
            return "regions are not connected"
        for each, sight in sights.items():
            if not sight.is_up or not sight.is_member:
                return f"region {each} is not up"
            if sight.vector != one.vector:
                return f"regions {first} and {each} have not the same effects"
            if sight.members != one.members:
                return f"regions {first} and {each} have not the same members"
            if sight.leftover:
                return sight.leftover
        return None

    def check(self) -> None:
        """Check what must hold between regions in every state."""
        self._check_equal()
        for region, state in self.agreeing().items():
            self._check_newcomer(region, self._reactions.sight(state))

    def _check_newcomer(self, region: int, sight: Sight) -> None:
        """A region that lost its disk takes writes: it must have its former effects again."""
        ours = dict(sight.vector)
        for other, replica_id, then in sight.former if sight.is_member else ():
            theirs = dict(self._reactions.sight(self.regions[other]).vector)
            due = min(then, theirs.get(replica_id, 0))
            is_due = sight.is_young or other in sight.linked
            if is_due and ours.get(replica_id, 0) < due:
                raise _Breach(
                    Violation(
                        25,
                        f"region {region} began anew and takes writes with "
                        f"{ours.get(replica_id, 0)} effects of its former replica ID "
                        f"{replica_id}; region {other} has {due}",
                    )
                )

    def _check_equal(self) -> None:
        """Compare regions that have applied the same effects."""
        by_vector: dict[object, tuple[int, bytes]] = {}
        for region, state in self.agreeing().items():
            sight = self._reactions.sight(state)
            if sight.is_up and sight.is_comparable:
                other, visible = by_vector.setdefault(sight.vector, (region, sight.visible))
                if visible != sight.visible:
                    raise _Breach(
                        Violation(
                            1,
                            f"regions {other} and {region} have applied the same and differ",
                        )
                    )


class Play:
    """A world that can be moved from any of its situations."""

    def __init__(self, world: SmallWorld, *, merges: bool = True) -> None:
        """``merges``: see :class:`Reactions`."""
        self.world = world
        self.reactions = Reactions(world, merges=merges)

    def begin(self) -> Performed:
        """The cluster is made, and the first steps are over."""
        regions = tuple(self.reactions.origins[each] for each in self.world.numbers)
        at = (0,) * len(self.world.steps)
        board = _Board(self.reactions, self.world, Situation(regions, (), at))
        try:
            for region in self.world.numbers:
                board.put(region, "start", region == 1)
            board.make(("settle",))
            for move in self.world.first_steps:
                if not board.make(move) or isinstance(board.reply, Exception):
                    raise ValueError(f"the first step {move} is not possible: {board.reply}")
            board.make(("settle",))
            for region in self.world.numbers:
                board.put(region, "sync")
            board.flow()
        except _Breach as found:
            return Performed(board.frozen(at), None, found.problem)
        return Performed(board.frozen(at), None, None)

    def moves(self, situation: Situation) -> Iterator[tuple[int, Move]]:
        """What may happen next: scripts (or -1) and moves; some may turn out to be impossible."""
        sights = [self.reactions.sight(state) for state in situation.regions]
        for script, (steps, at) in enumerate(zip(self.world.steps, situation.at, strict=True)):
            if at == len(steps):
                continue
            if steps[at][0] == "crash" and len(steps[at]) == 2:
                region = steps[at][1]
                yield from (
                    (script, each) for each in _crashes(region, sights[region - 1].unsynced)
                )
            else:
                yield script, steps[at]
        board = _Board(self.reactions, self.world, situation)
        for source in self.world.numbers:
            for target in self.world.numbers:
                way = board.between(source, target)
                if way is not None and board.is_held(way.frames[0]):
                    yield -1, ("arrive", source, target)
        for region, sight in zip(self.world.numbers, sights, strict=True):
            if sight.has_work:
                yield -1, ("sync", region)

    def perform(self, situation: Situation, script: int, move: Move) -> Performed | None:
        """Where a move leads; None if it is not possible now."""
        board = _Board(self.reactions, self.world, situation)
        at = tuple(n + (index == script) for index, n in enumerate(situation.at))
        problem: Exception | None = None
        try:
            if not board.make(move):
                return None
            board.check()
        except _Breach as found:
            problem = found.problem
        return Performed(board.frozen(at), board.reply, problem)

    def end(self, situation: Situation) -> Exception | None:
        """Let everything settle; returns what is wrong then."""
        board = _Board(self.reactions, self.world, situation)
        try:
            board.make(("settle",))
            if set(board.agreeing()) == set(self.world.numbers) or board.agreeing():
                return self.reactions.finish(tuple(board.agreeing().values()))
        except _Breach as found:
            return found.problem
        return None


def _crashes(region: int, unsynced: tuple[int, int]) -> Iterator[Move]:
    """All power failures: what is left of names, of writes, and half of the next write."""
    names, writes = unsynced
    for kept_names in range(names + 1):
        for kept in range(writes + 1):
            yield "crash", region, kept_names, kept, 0
            if kept < writes and kept_names == names:
                yield "crash", region, kept_names, kept, 1
