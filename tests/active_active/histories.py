"""Random lives of a few regions: ``python -m tests.active_active.histories --seeds 1-1000``.

Each seed has its own mix of commands, of faults and of settings, because one mix for all would
hardly ever reach some cases. What follows from a seed depends on nothing else, so a seed that
fails fails again; ``--shrink`` then leaves out events as long as it does, and prints the rest.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import random
import sys
import time
import traceback
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import accumulate, islice
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final

from anabranch.simulator import looking
from anabranch.stream.entry_id import MAX_ID, MIN_ID, text
from tests.active_active.checked_cluster import CheckedCluster, Event
from tests.active_active.comparison import GROUPS, KEYS
from tests.support.mesh import Node
from tests.support.packing import packing_at_once

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

__all__ = ["History", "Outcome", "play", "run_range", "shrunk"]

Command = tuple[Any, ...]

COMMANDS: Final = 100
"""In each history, before everything is healed."""

CHUNK: Final = 100
"""Histories of one process: with more, memory grows; with fewer, forking costs more."""

SAY_EVERY: Final = 5000
"""Histories between two lines about how far a long run has come."""

_FORKING: Final = multiprocessing.get_context("fork")

AWAY: Final = 0.2
"""The share of histories in which a region stays away until the end."""

GLANCE_EVERY: Final = 32
"""Events between two looks at the regions: what goes wrong mostly stays wrong until then."""


class History:
    """The cluster of a seed: what happens next is chosen among what there is."""

    def __init__(
        self, seed: int, regions: int | None = None, away: float = AWAY, *, acks_all: bool = False
    ) -> None:
        """With probability ``away`` a region stays away until everything is healed.

        ``acks_all``: at some time one region sets this policy for all groups.
        """
        self.seed = seed
        self.chance = random.Random(seed)
        chance = self.chance
        self.regions = regions or chance.choice([2, 3, 3, 4])
        self.mode = chance.choice(["strict", "strict", "semi-strict", "liberal"])
        self.conflict = chance.choice(["collapse", "collapse", "collapse", "keep"])
        self.keys = chance.sample(KEYS, chance.choice([1, 2, 3, 3]))
        self.cluster = CheckedCluster(self.regions, self.mode, self.conflict)
        self.events: list[Event] = []
        self._tokens = 0
        self._planned: list[Event] = []
        self._groups: dict[tuple[int, bool], list[tuple[bytes, bytes]]] = {}
        """What there is now to aim at in each region: groups, and those with pending entries."""
        self._moving = random.Random(f"{seed}/moves")
        self._moves = self._moving.random() < 0.2
        """Whether streams are copied, dumped and restored all the time."""
        apart = random.Random(f"{seed}/away")
        self._leaves = apart.randrange(COMMANDS) if apart.random() < away else COMMANDS
        self._keeping = random.Random(f"{seed}/keeping")
        sets = random.Random(f"{seed}/acks")
        self._acks_all_at = sets.choice([0, 0, sets.randrange(COMMANDS)]) if acks_all else -1
        self._restarts = chance.random() < 0.5
        self._fails = chance.random() < 0.5
        self._joins = chance.random() < 0.7
        self._expires = chance.random() < 0.4
        makers = [maker for maker, _ in _MIX]
        weights = [weight * chance.choice([0.05, 0.2, 1, 1, 4]) for _, weight in _MIX]
        self._in_units = [add, add, delete_entries, delete, create, destroy]
        if chance.random() < 0.5:  # little is removed, so that groups grow old
            weights = [
                w * (0.1 if maker in _REMOVING else 1)
                for w, maker in zip(weights, makers, strict=True)
            ]
            self._in_units = [add, add, add, delete_entries, create]
        if chance.random() < 0.7:  # entries that are there twice blunt some of the checks
            for rewriting in (rename, copy):
                weights[makers.index(rewriting)] = 0
        if not self._expires:
            for timing in (expire, persist):
                weights[makers.index(timing)] = 0
        self._makers: list[Callable[[History, Node, bytes], Command | None]] = makers
        self._weights = list(accumulate(weights))

    def run(self) -> None:
        """All of it; AssertionError, with the events in :attr:`events`, if anything is wrong."""
        with packing_of(self):
            self._run()

    def _run(self) -> None:
        for key in self.keys:
            if self.chance.random() < 0.5:
                number = self.chance.choice(list(self.cluster.mesh.nodes))
                self._happen(("do", number, "XGROUP", "CREATE", key, GROUPS[0], "0", "MKSTREAM"))
        while self.cluster.commands < COMMANDS:
            if self.cluster.commands >= self._leaves and not self.cluster.mesh.away:
                self._happen(("leave", self._keeping.choice(list(self.cluster.mesh.nodes))))
            if 0 <= self._acks_all_at <= self.cluster.commands:
                self._acks_all_at = -1
                number = self._keeping.choice(list(self.cluster.mesh.nodes))
                self._happen(("do", number, "AB.POLICY", "SET", "PATTERN", "*", "acks", "all"))
            self._happen(self._move() or self._event())
            if self._keeping.random() < 0.02:
                self._happen(("keep", self._keeping.choice(list(self.cluster.mesh.nodes))))
        self.cluster.finish()

    def _happen(self, event: Event) -> None:
        self.events.append(event)
        self.cluster.run(event)
        if len(self.events) % GLANCE_EVERY == 0:
            self.cluster.glance_all()

    # -- choosing -----------------------------------------------------------------------------

    def _event(self) -> Event:
        if self._planned:
            return self._planned.pop(0)
        self._groups.clear()
        chance = self.chance
        numbers = list(self.cluster.mesh.nodes)
        dice = chance.random()
        number = chance.choice(numbers)
        if self._fails and chance.random() < 0.08:
            return self._at_risk(number)
        if self.events and self.events[-1][0] == "fail" and dice < 0.5:
            # what is done before anything was heard again is what hurts
            number = self.events[-1][1]
            create_or = chance.choice([create, create, add, destroy])
            command = create_or(self, self.cluster.node(number), chance.choice(self.keys))
            if command is not None:
                return "do", number, *command
        if dice < 0.55:
            return self._command(number)
        if dice < 0.60:
            return "read", number, chance.randrange(len(self.cluster.wanderers))
        staged = self.cluster.mesh.full_syncs
        if staged and chance.random() < 0.1:
            target = chance.choice(list(staged))
            return ("abandon", target) if chance.random() < 0.1 else ("more", target, 2)
        one, other = chance.sample(numbers, 2)
        if dice < 0.87:
            return "send", one, other, chance.getrandbits(32)
        if dice < 0.93:
            return "row", one, other
        if dice < 0.95:
            return "cut", one, other
        if dice < 0.97 and self._joins:
            return chance.choice([
                ("full sync", one, other),
                ("begin", one, other),
                ("forget", one, chance.getrandbits(32)),
            ])  # fmt: skip
        if dice < 0.98 and self._restarts:
            return chance.choice(["snapshot", "restart"]), number
        return "pass", number, chance.choice([1, 1, 2, 5, 30])

    def _move(self) -> Event | None:
        """A stream goes somewhere else, now and then: likely one with pending or late entries."""
        chance = self._moving
        if not self._moves or chance.random() > 0.1:
            return None
        source, target = chance.choices(list(self.cluster.mesh.nodes), k=2)
        streams = _streams(self.cluster.node(source))
        weights = [1 + 5 * _is_busy(streams.get(key)) for key in KEYS]
        (key,) = chance.choices(KEYS, weights)
        other = chance.choice([each for each in KEYS if each != key])
        if chance.random() < 0.4:
            return "do", source, "COPY", key, other, "REPLACE"
        return "carry", source, key, target, other

    def _at_risk(self, number: int) -> Event:
        """Power fails sooner or later, and others may have been told of what is not on the disk."""
        chance = self.chance
        if chance.random() < 0.1:
            self._planned = self._plan(number)
            return self._planned.pop(0)
        happens = chance.choices(["unsynced row", "sync", "fail"], [3, 2, 1])[0]
        if happens != "unsynced row":
            return happens, number
        other = chance.choice([each for each in self.cluster.mesh.nodes if each != number])
        return "unsynced row", number, other

    def _plan(self, number: int) -> list[Event]:
        """Events that seldom come together by themselves: a removal, and a region that fails.

        Either the region forgets the removal that it has told of, and then creates what that
        removes; or the region forgets a creation that only a third one has heard of. Or two regions
        fail one after the other.
        """
        chance = self.chance
        key, group = chance.choice(self.keys), chance.choice(GROUPS)
        others = [each for each in self.cluster.mesh.nodes if each != number]
        if len(others) > 1 and chance.random() < 0.25:
            return self._fail_in_turn(key, number, *chance.sample(others, 2))
        remover = chance.choice(others)
        create = ("do", number, "XGROUP", "CREATE", key, group, "0", "MKSTREAM")
        plan: list[Event] = [
            ("do", remover, "XADD", key, "*", "f", self.token()),
            ("do", remover, "DEL", key),
        ]
        thirds = [each for each in others if each != remover]
        for each in thirds:
            plan += [*self._all_of(remover, each), *self._all_of(each, remover)]
            plan.append(("row", each, remover))
        if thirds and chance.random() < 0.5:
            plan += [create, *self._all_of(number, thirds[0]), ("fail", number)]
            plan += [*self._all_of(remover, number), *self._all_of(number, remover)]
            plan += [("sync", remover), ("row", number, remover)]
            return [*plan, *self._all_of(thirds[0], remover)]
        plan += [
            *self._all_of(remover, number),
            ("sync", remover),
            ("unsynced row", number, remover),
        ]
        return [*plan, ("fail", number), create]

    def _fail_in_turn(self, key: bytes, first: int, second: int, third: int) -> list[Event]:
        """Two regions lose what they added, of which the third one knows, and add again."""
        add: list[tuple[Any, ...]] = [("XADD", key, "*", "f", self.token()) for _ in range(3)]
        return [
            ("fail", first),
            ("do", first, *add[0]),
            *self._all_of(first, second),
            ("do", second, *add[1]),
            *self._all_of(first, third),
            *self._all_of(second, third),
            ("fail", second),
            ("do", second, *add[2]),
        ]

    def _all_of(self, source: int, target: int) -> list[Event]:
        """Nearly all that one region lacks of another's."""
        return [("send", source, target, self.chance.getrandbits(32)) for _ in range(4)]

    def _command(self, number: int) -> Event:
        chance = self.chance
        node = self.cluster.node(number)
        if chance.random() < 0.05:
            commands = [
                chance.choice(self._in_units)(self, node, chance.choice(self.keys))
                for _ in range(chance.randint(2, 4))
            ]
            return "unit", number, *(command for command in commands if command)
        nodes = self.cluster.mesh.nodes
        while True:
            maker = self._makers[bisect_right(self._weights, chance.random() * self._weights[-1])]
            key = chance.choice(self.keys)
            for step in range(self.regions):  # there may be a target elsewhere
                where = (number + step - 1) % self.regions + 1
                command = maker(self, nodes[where], key)
                if command is not None:
                    return "do", where, *command

    def token(self) -> bytes:
        """A value that no other XADD has."""
        self._tokens += 1
        return b"v%d" % self._tokens

    def some_ids(self, node: Node, key: bytes) -> list[bytes]:
        """Some IDs of a key's entries, never none if there are any."""
        stream = _streams(node).get(key)
        if stream is None:
            return []
        ids = sorted(
            {i for block, low, high in stream.spans(MIN_ID, MAX_ID) for i in block.ids[low:high]}
        )
        some = self.chance.sample(ids, min(len(ids), self.chance.randint(1, 3)))
        return list(map(text, some))

    def group(self, node: Node, *, pending: bool = False) -> tuple[bytes, bytes] | None:
        """A key and a group that are there, mostly."""
        found = self._groups.get((node.number, pending))
        if found is None:
            found = self._groups[node.number, pending] = [
                (key, name)
                for key, stream in sorted(_streams(node).items())
                for name in sorted(stream.groups)
                if not pending or stream.groups[name].pending.count
            ]
        if found and self.chance.random() < 0.95:
            return self.chance.choice(found)
        return None

    def pending_ids(self, node: Node, key: bytes, group: bytes) -> list[bytes]:
        """Some IDs that are pending, in any order."""
        holder = _streams(node)[key].groups[group]
        ids = [
            text(i) for i in sorted({i for x in holder.pending.lists.values() for i in x.entries})
        ]
        dice = self.chance.random()
        if dice < 0.2:
            return ids
        if dice < 0.5:
            return ids[len(ids) // 2 :]  # what is before them stays open
        return self.chance.sample(ids, min(len(ids), self.chance.randint(1, 3)))


def _streams(node: Node) -> Mapping[bytes, Any]:
    """What there is to aim at, without asking: that would be a command of its own."""
    return looking.streams(node.region.keyspace)


def _is_busy(stream: Any) -> bool:
    """Whether there is a group whose cursor says little."""
    groups = () if stream is None else stream.groups.values()
    return any(each.pending.count or next(each.progress.late(stream.logs), None) for each in groups)


# -- commands -------------------------------------------------------------------------------------


def add(history: History, node: Node, key: bytes) -> Command:
    chance = history.chance
    now_ms = node.clock.us // 1000
    ms = now_ms + chance.choice([-3, 0, 0, 0, 1, 4])
    given = [f"{ms}", f"{ms}-*"]
    if history.mode != "strict":
        given.append(f"{ms}-{chance.randint(0, 3)}")
    spec = chance.choice(["*", "*", "*", *given])
    options: list[Any] = []
    policy = chance.choice([(), (), (), ("KEEPREF",), ("DELREF",), ("ACKED",)])
    if chance.random() < 0.15:
        options += [*policy, "MAXLEN", chance.choice(["=", "~"]), chance.randint(1, 5)]
    elif chance.random() < 0.05:
        options += [*policy, "MINID", now_ms - 2]
    if chance.random() < 0.25:
        options += ["IDMP", chance.choice("pq"), f"i{chance.randint(1, 4)}"]
        spec = "*"
    return "XADD", key, *options, spec, "f", history.token()


def delete_entries(history: History, node: Node, key: bytes) -> Command | None:
    ids = history.some_ids(node, key)
    return ("XDEL", key, *ids) if ids else None


def delete_entries_how(history: History, node: Node, key: bytes) -> Command | None:
    ids = history.some_ids(node, key)
    how = history.chance.choice(["KEEPREF", "DELREF", "ACKED"])
    return ("XDELEX", key, how, "IDS", len(ids), *ids) if ids else None


def trim(history: History, node: Node, key: bytes) -> Command:
    chance = history.chance
    how = chance.choice([(), (), ("KEEPREF",), ("DELREF",), ("ACKED",)])
    if chance.random() < 0.3:
        return "XTRIM", key, "MINID", node.clock.us // 1000 - 1, *how
    return "XTRIM", key, "MAXLEN", chance.choice(["=", "~"]), chance.randint(0, 6), *how


def delete(_history: History, _node: Node, key: bytes) -> Command:
    return "DEL", key


def flush(_history: History, _node: Node, _key: bytes) -> Command:
    return ("FLUSHALL",)


def create(history: History, node: Node, key: bytes) -> Command:
    now_ms = node.clock.us // 1000
    start = history.chance.choice(["0", "0", "$", str(now_ms)])
    group = history.chance.choice(GROUPS)
    return "XGROUP", "CREATE", key, group, start, "MKSTREAM", *_entries_read(history)


def _entries_read(history: History) -> Command:
    count = history.cluster.commands
    return ("ENTRIESREAD", count % 9) if count % 5 == 0 else ()


def destroy(history: History, node: Node, _key: bytes) -> Command | None:
    found = history.group(node)
    return ("XGROUP", "DESTROY", *found) if found else None


def move(history: History, node: Node, _key: bytes) -> Command | None:
    found = history.group(node)
    start = history.chance.choice(["0", "$", str(node.clock.us // 1000 - 1)])
    return ("XGROUP", "SETID", *found, start, *_entries_read(history)) if found else None


def delete_consumer(history: History, node: Node, _key: bytes) -> Command | None:
    found = history.group(node, pending=True)
    return ("XGROUP", "DELCONSUMER", *found, history.chance.choice("cd")) if found else None


def read_group(history: History, node: Node, _key: bytes) -> Command | None:
    found = history.group(node)
    if found is None:
        return None
    chance = history.chance
    key, group = found
    options: list[Any] = []
    if chance.random() < 0.5:
        options += ["COUNT", chance.randint(1, 3)]
    if chance.random() < 0.1:
        options.append("NOACK")
    start = chance.choice([">", ">", ">", ">", "0"])
    return "XREADGROUP", "GROUP", group, chance.choice("cd"), *options, "STREAMS", key, start


def acknowledge(history: History, node: Node, _key: bytes) -> Command | None:
    found = history.group(node, pending=True)
    ids = history.pending_ids(node, *found) if found else []
    return ("XACK", *found, *ids) if found and ids else None


def acknowledge_and_delete(history: History, node: Node, _key: bytes) -> Command | None:
    found = history.group(node, pending=True)
    ids = history.pending_ids(node, *found) if found else []
    how = history.chance.choice(["KEEPREF", "DELREF", "ACKED"])
    return ("XACKDEL", *found, how, "IDS", len(ids), *ids) if found and ids else None


def claim(history: History, node: Node, _key: bytes) -> Command | None:
    found = history.group(node, pending=True)
    ids = history.pending_ids(node, *found) if found else []
    if not found or not ids:
        return None
    last = ("LASTID", ids[-1]) if history.chance.random() < 0.2 else ()
    return "XCLAIM", *found, history.chance.choice("cd"), 0, *ids, *last


def release(history: History, node: Node, _key: bytes) -> Command | None:
    found = history.group(node, pending=True)
    ids = history.pending_ids(node, *found) if found else []
    how = history.chance.choice(["SILENT", "FAIL", "FATAL"])
    return ("XNACK", *found, how, "IDS", len(ids), *ids) if found and ids else None


def claim_some(history: History, node: Node, _key: bytes) -> Command | None:
    found = history.group(node, pending=True)
    return ("XAUTOCLAIM", *found, history.chance.choice("cd"), 0, "-") if found else None


def set_last_id(history: History, node: Node, key: bytes) -> Command:
    now_ms = node.clock.us // 1000
    counters = ("ENTRIESADDED", 40, "MAXDELETEDID", f"{now_ms - 2}-0")
    some = counters if history.chance.random() < 0.2 else ()
    return "XSETID", key, f"{now_ms + history.chance.randint(0, 5)}-{node.number}", *some


def configure(history: History, _node: Node, key: bytes) -> Command:
    return "XCFGSET", key, "IDMP-DURATION", history.chance.choice([50, 100, 200])


def expire(history: History, _node: Node, key: bytes) -> Command:
    return "PEXPIRE", key, history.chance.choice([3, 20, 60, 1000])


def persist(_history: History, _node: Node, key: bytes) -> Command:
    return "PERSIST", key


def rename(history: History, _node: Node, key: bytes) -> Command:
    return history.chance.choice(["RENAME", "RENAMENX"]), key, history.chance.choice(KEYS)


def copy(history: History, _node: Node, key: bytes) -> Command:
    replace = history.chance.choice([("REPLACE",), ()])
    return "COPY", key, history.chance.choice(KEYS), *replace


_MIX: Final[list[tuple[Callable[[History, Node, bytes], Command | None], float]]] = [
    (add, 40), (delete_entries, 6), (delete_entries_how, 3), (trim, 3), (delete, 1.5),
    (flush, 0.2), (create, 7), (destroy, 1.5), (move, 3), (delete_consumer, 6), (read_group, 25),
    (acknowledge, 30), (acknowledge_and_delete, 6), (claim, 6), (claim_some, 2), (release, 3),
    (set_last_id, 3), (configure, 0.3), (expire, 3), (persist, 1), (rename, 1), (copy, 1),
]  # fmt: skip
"""How often each is chosen where nothing is out of the ordinary."""

_REMOVING: Final = frozenset(
    {delete, flush, destroy, trim, delete_entries, delete_entries_how, expire, rename, copy}
)


# -- again, and with less -------------------------------------------------------------------------


def packing_of(history: History) -> AbstractContextManager[None]:
    """Every other history packs what it remembers at once."""
    return packing_at_once() if history.seed % 2 else nullcontext()


def play(history: History, events: Sequence[Event]) -> Exception | None:
    """The same regions with other events; what went wrong."""
    cluster = CheckedCluster(history.regions, history.mode, history.conflict)
    try:
        with packing_of(history):
            for event in events:
                cluster.run(event)
                cluster.glance_all()
            cluster.finish()
    except Exception as problem:
        return problem
    return None


def shrunk(history: History, seconds: float = 60) -> list[Event]:
    """Fewer of a failed history's events with which it fails still, in the same kind of way."""
    events = list(history.events)
    problem = play(history, events)
    if problem is None:
        return events
    until = time.monotonic() + seconds
    size = len(events) // 2
    while size and time.monotonic() < until:
        at = len(events) - size
        while at > -size and time.monotonic() < until:
            fewer = events[: max(at, 0)] + events[max(at, 0) + size :]
            found = play(history, fewer)
            if found is not None and _alike(found, problem):
                events = fewer
            at -= size
        size //= 2
    return events


def _alike(one: Exception, other: Exception) -> bool:
    return type(one) is type(other) and _place(one) == _place(other)


def _place(problem: Exception) -> tuple[str, int] | None:
    """Where it was raised: the innermost line."""
    trace = problem.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return None if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)


def say(line: str) -> None:
    """On the terminal."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass
class Outcome:
    """What came of a range of seeds."""

    histories: int = 0
    commands: int = 0
    seconds: float = 0
    """Of processor time."""
    failed: dict[int, str] = field(default_factory=dict)
    """By seed, where and how."""
    reached: Counter[str] = field(default_factory=Counter)

    def add(self, other: Outcome) -> None:
        """Take another range to this one."""
        self.histories += other.histories
        self.commands += other.commands
        self.seconds += other.seconds
        self.failed |= other.failed
        self.reached.update(other.reached)


def run_range(
    seeds: range, regions: int | None = None, away: float = AWAY, *, acks_all: bool = False
) -> Outcome:
    """The histories of these seeds, in this process."""
    outcome = Outcome()
    started = time.process_time()
    for seed in seeds:
        history = History(seed, regions, away, acks_all=acks_all)
        try:
            history.run()
        except Exception as problem:
            outcome.failed[seed] = f"{type(problem).__name__} at {_place(problem)}: {problem}"
        outcome.histories += 1
        outcome.commands += history.cluster.commands
        outcome.reached.update(history.cluster.reached)
    outcome.seconds = time.process_time() - started
    return outcome


def _ranges(first: int, last: int) -> list[range]:
    return [range(low, min(low + CHUNK, last + 1)) for low in range(first, last + 1, CHUNK)]


def _outcomes(
    ranges: list[range], regions: int | None, away: float, jobs: int
) -> Iterator[Outcome]:
    """What came of each range, as they end."""
    rest = iter(ranges)
    at_work = dict(_begin(seeds, regions, away) for seeds in islice(rest, jobs))
    while at_work:
        for answer in wait(list(at_work)):
            process = at_work.pop(answer)
            for seeds in islice(rest, 1):
                at_work |= [_begin(seeds, regions, away)]
            yield answer.recv()
            process.join()


def _begin(seeds: range, regions: int | None, away: float) -> tuple[Connection, BaseProcess]:
    """A range in a process of its own: each history leaves a heap of cycles, and ending is the
    cheapest way to be rid of them."""
    answer, end = _FORKING.Pipe(duplex=False)
    process = _FORKING.Process(target=_answer, args=(end, seeds, regions, away))
    process.start()
    end.close()  # here, so that a process that is killed is an EOFError, not silence
    return answer, process


def _answer(end: Connection, seeds: range, regions: int | None, away: float) -> None:
    gc.disable()
    end.send(run_range(seeds, regions, away))


def _explain(history: History) -> None:
    """Print few events that fail as a history did."""
    with suppress(Exception):
        history.run()
    events = shrunk(history)
    say(f"  {history.regions} regions, {history.mode}, {history.conflict}")
    for event in events:
        say(f"  {event!r},")
    found = play(history, events)
    say("".join(traceback.format_exception(found)[-4:]) if found else "  -> nothing")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1-1000", help="A-B, both included")
    parser.add_argument("--regions", type=int, help="2 to 255; without it, some of each")
    parser.add_argument("--jobs", type=int, default=1, help="so many processes")
    parser.add_argument("--shrink", action="store_true", help="print few events that fail")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--away", action="store_true", help="a region stays away in each history")
    chosen = parser.parse_args(arguments)
    away = 1.0 if chosen.away else AWAY
    low, _, high = chosen.seeds.partition("-")
    ranges = _ranges(int(low), int(high or low))
    total = Outcome()
    started = time.monotonic()
    for done, outcome in enumerate(_outcomes(ranges, chosen.regions, away, chosen.jobs), 1):
        total.add(outcome)
        for seed, sentence in outcome.failed.items():
            say(f"seed {seed}: {sentence}")
            if chosen.shrink:
                _explain(History(seed, chosen.regions, away))
        if total.failed and not chosen.go_on:
            break
        if done % (SAY_EVERY // CHUNK) == 0:
            say(f"{_figures(total, time.monotonic() - started)}")
    for name, times in sorted(total.reached.items()):
        say(f"{times:8} {name}")
    say(_figures(total, time.monotonic() - started))
    return int(bool(total.failed))


def _figures(total: Outcome, spent_s: float) -> str:
    return (
        f"{total.histories} histories, {total.commands} commands, {len(total.failed)} failed; "
        f"{total.histories / spent_s * 60:.0f} a minute, "
        f"{total.seconds / total.histories * 1000:.1f} ms of processor time each"
    )


if __name__ == "__main__":
    sys.exit(main())
