"""The protocol of a group's home as a small model, explored to its end.

A region is its *log*: the events that it has made and received, in order, of which a prefix is on
its disk. All that a region knows follows from its log, as in the product. An event is received
after all that were before it in the log of the region from which it comes (causal order); a cut is
an event that does not arrive for any time. A crash takes away any part of the log that is not on
the disk. What a client has seen is on the disk: deliveries and acknowledgements are synced.

======================================= ========================================================
``("deliver", entry)``                  local: the region hands an entry to its consumer
``("ack", entry)``                      the consumer has acknowledged it
``("leave", epoch)``                    local: the home stops, and will hand over for an epoch
``("over", epoch, pending, ...)``       hands over; and what it knows to be delivered twice, and
                                        whether it was the home until then
``("take", epoch)``                     by force
======================================= ========================================================

An event is ``(region, life, number, what)``, its first three parts being its identity.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

REGIONS: Final = (1, 2, 3)
FIRST: Final = (0, 1, False)
"""The epoch of the policy: number, region, whether it was taken by force."""

Epoch = tuple[int, int, bool]
What = tuple[Any, ...]
Event = tuple[int, int, int, What]


class Rules(NamedTuple):
    """The protocol, whose parts can be left out to see that they are needed."""

    waits_for_disk: bool = True
    """A region hands over only when it is on its disk that it is not the home."""
    sends_pending: bool = True
    """What is pending goes with the home."""
    stops_first: bool = True
    """The home stops before it hands over."""
    greater_wins: bool = True
    """A home that sees a greater epoch stops."""
    closes: bool = True
    """Each region hands over when it hears of a forced take."""
    compares: bool = True
    """The region that took the home compares what others hand over with its deliveries."""
    compares_acks: bool = True
    """It does so with what others acknowledge."""
    notes_acks: bool = True
    """Who has not heard of the take yet notes what is acknowledged elsewhere and pending here."""


ALL_RULES: Final = Rules()


@dataclass
class View:
    """What a region knows, computed from its log."""

    region: int
    rules: Rules
    entries: int
    epoch: Epoch = FIRST
    begun: Epoch = FIRST
    leaving: Epoch | None = None
    closed: Epoch = FIRST
    acked: set[int] = field(default_factory=set)
    delivered: set[int] = field(default_factory=set)
    """By this region itself."""
    handed: bool = False
    """Whether it has handed over, and neither delivered nor got anything since."""
    held: set[int] = field(default_factory=set)
    """Pending here: delivered here, or in the region that handed over."""
    adopted: set[int] = field(default_factory=set)
    """What was pending in another region that handed over."""
    twice: set[int] = field(default_factory=set)
    """What another region has acknowledged while it was pending here and nobody else's."""
    taken: set[int] | None = None
    passed: set[int] = field(default_factory=set)
    """What it had taken, and has handed over to another home: others may acknowledge it."""
    shut: set[int] = field(default_factory=set)
    """Who has handed over since this region took the home."""
    repeated: set[int] = field(default_factory=set)
    lives: dict[int, int] = field(default_factory=dict)
    """By region and life, packed, the events that it has of them."""

    def apply(self, event: Event) -> None:
        """Take note of the next event of the log."""
        sender, life, number, (kind, *rest) = event
        self.lives[sender * 10 + life] = number
        ours = sender == self.region
        if kind == "deliver":
            self.delivered.add(rest[0])
            self.held.add(rest[0])
            self.handed = False
            if self.taken is not None:
                self.taken.add(rest[0])
        elif kind == "ack":
            self._compare({rest[0]}, sender, is_ack=True)
            is_mine = rest[0] in self.held and rest[0] not in self.adopted and not self.handed
            if not ours and is_mine and self.rules.notes_acks:
                self.twice.add(rest[0])
                self.repeated.add(rest[0])
            self.acked.add(rest[0])
            self.held.discard(rest[0])
        elif kind == "leave":
            self.leaving = rest[0]
        elif kind == "take":
            is_newer = rest[0] > self.epoch
            self._raise(rest[0])
            if ours and is_newer:
                self.begun, self.leaving, self.handed = rest[0], None, False
                self.taken, self.shut = self.taken or set(), set()
        else:
            self._handed_over(sender, *rest, ours=ours)

    def _raise(self, epoch: Epoch) -> None:
        if self.rules.greater_wins or epoch[1] == self.region or self.epoch[1] != self.region:
            self.epoch = max(self.epoch, epoch)

    def _compare(self, entries: set[int], sender: int, *, is_ack: bool) -> None:
        on = self.rules.compares_acks if is_ack else self.rules.compares
        if self.taken is not None and sender not in (self.region, *self.shut) and on:
            self.repeated |= self.taken & entries
            self.taken -= entries

    def _handed_over(
        self,
        sender: int,
        epoch: Epoch,
        pending: frozenset[int],
        fresh: frozenset[int],
        twice: frozenset[int],
        moves: bool,
        *,
        ours: bool,
    ) -> None:
        self._raise(epoch)
        if ours:
            self.closed = max(self.closed, epoch)
            self.handed = True
            self.twice.clear()
            if self.taken is not None:
                self.passed |= self.taken & pending
                self.taken -= pending
            if self.leaving is not None and self.leaving <= epoch:
                self.leaving = None
            return
        self._compare(set(pending), sender, is_ack=False)
        if epoch[1] == self.region:
            is_first = self.begun < epoch
            new = {each for each in pending - self.acked if is_first or each not in self.delivered}
            if self.rules.compares:
                both = pending & self.held & self.delivered - self.adopted
                self.repeated |= twice if is_first else twice | both
            self.held |= new
            self.adopted |= new
            self.handed = self.handed and not new
            if moves and epoch == self.epoch:
                self.begun = max(self.begun, epoch)
        if self.taken is not None:
            self.repeated |= twice
            if self.rules.compares:
                self.repeated |= self.passed & fresh
            self.taken -= twice
            self.shut.add(sender)
            if len(self.shut) == len(REGIONS) - 1:
                self.taken = None

    @property
    def is_home(self) -> bool:
        """Whether the region may deliver."""
        if self.epoch[1] != self.region or (self.leaving is not None and self.rules.stops_first):
            return False
        return self.begun >= self.epoch

    @property
    def open_entries(self) -> list[int]:
        """What it would deliver."""
        done = self.acked | self.delivered | self.held
        return [each for each in range(self.entries) if each not in done]

    @property
    def due(self) -> Epoch | None:
        """The epoch for which it must hand over."""
        goal = self.epoch if self.leaving is None else max(self.epoch, self.leaving)
        if goal[1] == self.region:
            return None
        if goal[2] and self.closed < goal:
            return goal if self.rules.closes else None
        if self.leaving is not None:
            return goal
        return goal if not self.handed and (self.delivered or self.held) else None


class Region(NamedTuple):
    """A region: its log, how much of it is on the disk, and how often it has crashed."""

    log: tuple[Event, ...] = ()
    disk: int = 0
    life: int = 0


class State(NamedTuple):
    """The world, what clients have seen, and what may still happen."""

    regions: tuple[Region, ...]
    seen: frozenset[tuple[int, int]] = frozenset()
    """``(region, entry)``: delivered there."""
    moves: int = 1
    takes: int = 1
    crashes: int = 1
    forced: bool = False


class Model:
    """All states that can be reached; :meth:`explore` says what is wrong, if anything is."""

    def __init__(self, rules: Rules = ALL_RULES, entries: int = 1, **budget: int) -> None:
        self.rules = rules
        self.entries = entries
        self.first = State(tuple(Region() for _ in REGIONS), **budget)
        self.states = 0
        self.ends = 0
        self.reached: set[str] = set()
        self._views: dict[tuple[int, tuple[Event, ...]], View] = {}

    def view(self, state: State, region: int) -> View:
        """What a region knows."""
        log = state.regions[region - 1].log
        known = self._views.get((region, log))
        if known is None:
            known = View(region, self.rules, self.entries)
            for event in log:
                known.apply(event)
            self._views[region, log] = known
        return known

    def explore(self) -> str:
        """Search everything; what is wrong, or nothing."""
        known = {self.first}
        stack = [self.first]
        while stack:
            state = stack.pop()
            self.states += 1
            wrong = self._wrong(state)
            if wrong:
                return wrong
            for each in self._next(state):
                if each not in known:
                    known.add(each)
                    stack.append(each)
        return ""

    # -- what may happen ----------------------------------------------------------------------

    def _next(self, state: State) -> Iterator[State]:
        for region in REGIONS:
            yield from self._own(state, region)
            if state.regions[region - 1].disk < len(state.regions[region - 1].log):
                yield self._synced(state, region)
                if state.crashes:
                    yield from self._crashes(state, region)
            for source in REGIONS:
                if source != region:
                    yield from self._arrives(state, source, region)

    def _own(self, state: State, region: int) -> Iterator[State]:
        view = self.view(state, region)
        if view.is_home:
            for entry in view.open_entries[:1]:
                after = self._made(state, region, ("deliver", entry), synced=True)
                yield after._replace(seen=state.seen | {(region, entry)})
        for entry in sorted(view.held)[:1]:
            yield self._made(state, region, ("ack", entry), synced=True)
        if view.is_home and state.moves and view.taken is None:
            for target in REGIONS:
                if target != region:
                    epoch = (view.epoch[0] + 1, target, False)
                    after = self._made(state, region, ("leave", epoch))
                    yield after._replace(moves=state.moves - 1)
        if not view.is_home and state.takes:
            epoch = (view.epoch[0] + 1, region, True)
            after = self._made(state, region, ("take", epoch))
            yield after._replace(takes=state.takes - 1, forced=True)
        yield from self._handed_over(state, region)

    def _handed_over(self, state: State, region: int) -> Iterator[State]:
        view, mine = self.view(state, region), state.regions[region - 1]
        due = view.due
        if due is None or (self.rules.waits_for_disk and mine.disk < len(mine.log)):
            return
        pending = frozenset(view.held) if self.rules.sends_pending else frozenset[int]()
        fresh, twice = pending - view.adopted, frozenset(view.twice)
        what = ("over", due, pending, fresh, twice, due == view.leaving)
        yield self._made(state, region, what)

    def _made(self, state: State, region: int, what: What, *, synced: bool = False) -> State:
        mine = state.regions[region - 1]
        number = self.view(state, region).lives.get(region * 10 + mine.life, 0) + 1
        log = (*mine.log, (region, mine.life, number, what))
        disk = len(log) if synced else mine.disk
        return self._with(state, region, mine._replace(log=log, disk=disk))

    def _synced(self, state: State, region: int) -> State:
        mine = state.regions[region - 1]
        return self._with(state, region, mine._replace(disk=len(mine.log)))

    def _crashes(self, state: State, region: int) -> Iterator[State]:
        """Any end of the log is lost that is not on the disk; a new life counts from 1 again."""
        mine = state.regions[region - 1]
        for left in range(mine.disk, len(mine.log)):
            lost = Region(mine.log[:left], left, mine.life + 1)
            self.reached.add("lost " + mine.log[left][3][0])
            yield self._with(state, region, lost)._replace(crashes=state.crashes - 1)

    def _arrives(self, state: State, source: int, target: int) -> Iterator[State]:
        """The next event that the target lacks of those that the source has."""
        has = self.view(state, target).lives
        for event in state.regions[source - 1].log:
            sender, life, number, (kind, *_) = event
            if kind in ("deliver", "leave") or number <= has.get(sender * 10 + life, 0):
                continue
            mine = state.regions[target - 1]
            yield self._with(state, target, mine._replace(log=(*mine.log, event)))
            return

    def _with(self, state: State, region: int, changed: Region) -> State:
        if not state.crashes:  # it does not matter what is on the disk
            changed = changed._replace(disk=len(changed.log))
        regions = list(state.regions)
        regions[region - 1] = changed
        return state._replace(regions=tuple(regions))

    # -- what must hold -----------------------------------------------------------------------

    def _wrong(self, state: State) -> str:
        twice = {
            one for one, count in Counter(entry for _, entry in state.seen).items() if count > 1
        }
        if twice and not state.forced:
            return f"{twice} delivered in two regions, and nobody took the home: {state}"
        if twice:
            self.reached.add("delivered twice")
        if self._is_over(state):
            self.ends += 1
            return self._wrong_at_the_end(state, twice)
        return ""

    def _is_over(self, state: State) -> bool:
        """Whether everybody has heard everything and nothing is to be done, moves apart."""
        views = [self.view(state, region) for region in REGIONS]
        return not any(view.due for view in views) and not any(
            True
            for source in REGIONS
            for target in REGIONS
            if source != target
            for _ in self._arrives(state, source, target)
        )

    def _wrong_at_the_end(self, state: State, twice: set[int]) -> str:
        views = [self.view(state, region) for region in REGIONS]
        if len({view.epoch for view in views}) > 1:
            return f"no agreement about the home: {state}"
        home = views[views[0].epoch[1] - 1]
        if not home.is_home:
            return f"the home does not begin: {state}"
        lost = set(range(self.entries)) - home.acked - home.held - set(home.open_entries)
        if lost:
            return f"{lost} is lost: {state}"
        told = set().union(*(view.repeated for view in views))
        if told:
            self.reached.add("reported")
        if told != twice:
            return f"{twice} were delivered twice, {told} are reported: {state}"
        return ""


def main() -> int:
    """Explore with a budget; print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    for what in ("--entries", "--moves", "--takes", "--crashes"):
        parser.add_argument(what, type=int, default=1)
    model = Model(**vars(parser.parse_args()))
    wrong = model.explore()
    sys.stdout.write(f"{model.states} states, {model.ends} ends; {sorted(model.reached)}\n{wrong}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
