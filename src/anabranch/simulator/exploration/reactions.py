"""The reactions of regions: each is run once in the real code, and remembered.

A state of a region is a number here. It stands for all pasts of that region which cannot be told
apart by anything that happens later: they have the same :meth:`RegionRun.digest`. One of these
pasts is kept, as a list of inputs; to run another reaction from there, a process that is still in
this state is used, or a new one gets all inputs again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from anabranch.simulator.exploration.region_run import Frame, Input, RegionRun, Sight
from anabranch.simulator.exploration.script import NotPossibleError
from anabranch.simulator.group_checks import check_homes
from anabranch.simulator.record import Violation

if TYPE_CHECKING:
    from anabranch.simulator.exploration.script import SmallWorld

LIVE_MAX: Final = 400
"""Processes that are kept for their next reaction."""

ENDED: Final = -1
"""Stands for the end of a connection where a frame could be."""


class RegionMoment(NamedTuple):
    """A state of a region, and one way to it."""

    number: int
    """The region."""
    before: int
    """The state before the last input; -1 if there was none."""
    given: Input
    sight: Sight
    links: int


class Reaction(NamedTuple):
    """What an input makes of a region."""

    after: int
    """The next state; -1 if there is a problem."""
    frames: tuple[tuple[int, int], ...] = ()
    """Connections, and the numbers of the frames that leave over them."""
    dials: tuple[int, ...] = ()
    reply: object = None
    problem: Exception | None = None


class Reactions:
    """All states of all regions of a world, as far as they are known."""

    def __init__(self, world: SmallWorld, *, merges: bool = True) -> None:
        """``merges``: pasts that cannot be told apart are one state."""
        self._world = world
        self._merges = merges
        self.states: list[RegionMoment] = []
        self.frames: list[Frame] = []
        self.count = 0
        """Reactions that were run."""
        self.replays = 0
        """Inputs that were given again to come back to a state."""
        self._frame_numbers: dict[Frame, int] = {}
        self._by_digest: dict[tuple[int, bytes], int] = {}
        self._known: dict[tuple[int, Input], Reaction | None] = {}
        self._live: OrderedDict[int, RegionRun] = OrderedDict()
        self._finished: dict[tuple[int, ...], Exception | None] = {}
        self.origins: dict[int, int] = {}
        """By region, its state before it has started."""
        for number in world.numbers:
            run = RegionRun(number, world)
            self.origins[number] = self._add(run, -1, ())
            self._keep(self.origins[number], run)

    def sight(self, state: int) -> Sight:
        """What is to be seen of a region in a state."""
        return self.states[state].sight

    def react(self, state: int, given: Input) -> Reaction | None:
        """The reaction of a region to an input; None if the input is not possible there."""
        place = state, given
        if place not in self._known:
            self._known[place] = self._run(state, given)
        return self._known[place]

    def _run(self, state: int, given: Input) -> Reaction | None:
        self.count += 1
        run = self._at(state)
        try:
            output = run.put(given, self.frames)
            run.check_formulas()
        except NotPossibleError:
            self._keep(state, run)
            return None
        except Exception as problem:
            return Reaction(-1, problem=problem)
        frames = tuple(
            (link, ENDED if frame is None else self._number_of(frame))
            for link, frame in output.frames
        )
        after = self._add(run, state, given)
        self._keep(after, run)
        return Reaction(after, frames, tuple(output.dials), output.reply)

    def _number_of(self, frame: Frame) -> int:
        number = self._frame_numbers.setdefault(frame, len(self.frames))
        if number == len(self.frames):
            self.frames.append(frame)
        return number

    def _add(self, run: RegionRun, before: int, given: Input) -> int:
        number = len(self.states)
        if self._merges:
            found = self._by_digest.setdefault((run.number, run.digest()), number)
            if found != number:
                return found
        self.states.append(RegionMoment(run.number, before, given, run.sight(), run.links))
        return number

    # -- processes ----------------------------------------------------------------------------

    def _keep(self, state: int, run: RegionRun) -> None:
        self._live[state] = run
        while len(self._live) > LIVE_MAX:
            self._live.popitem(last=False)

    def _at(self, state: int) -> RegionRun:
        """A process in a state; it is not kept for anybody else."""
        run = self._live.pop(state, None)
        if run is not None:
            return run
        inputs: list[Input] = []
        at = self.states[state]
        while at.before >= 0:
            inputs.append(at.given)
            at = self.states[at.before]
        run = RegionRun(at.number, self._world)
        for given in reversed(inputs):
            run.put(given, self.frames)
        self.replays += len(inputs)
        return run

    # -- the end ------------------------------------------------------------------------------

    def finish(self, states: tuple[int, ...]) -> Exception | None:
        """Check regions that have agreed; returns what is wrong."""
        if states not in self._finished:
            self._finished[states] = self._check_end(states)
        return self._finished[states]

    def _check_end(self, states: tuple[int, ...]) -> Exception | None:
        runs = [self._at(state) for state in states]
        acknowledged: dict[Any, set[Any]] = {}
        for run in runs:
            for place, creations in run.record.acknowledged_under.items():
                acknowledged.setdefault(place, set()).update(creations)
        try:
            check_homes([run.checks.groups for run in runs], [run.streams for run in runs])
            for run in runs:
                run.finish(acknowledged)
        except Exception as problem:
            return problem
        return None


def describe(problem: Exception) -> str:
    """A problem as one line."""
    return str(problem) if isinstance(problem, Violation) else repr(problem)
