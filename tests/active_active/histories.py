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
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final

from anabranch.simulator import looking
from anabranch.simulator.workload import Mix, Workload, is_busy
from tests.active_active.checked_cluster import CheckedCluster, Event
from tests.active_active.comparison import GROUPS, KEYS
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
        self._planned: list[Event] = []
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
        work = self.work = Workload(chance, _NEVER, _NEVER)
        work.keys, work.groups, work.mode = self.keys, GROUPS, self.mode
        self.mix = Mix(_MIX, chance, (0.05, 0.2, 1, 1, 4))
        self.in_units = Mix(_IN_UNITS, chance)
        if chance.random() < 0.5:  # little is removed, so that groups grow old
            self.mix.scale(0.1, *_REMOVING)
            self.in_units.scale(0, "DEL", "DESTROY")
        if chance.random() < 0.7:  # entries that are there twice blunt some of the checks
            self.mix.scale(0, "RENAME|RENAMENX", "COPY")
        if not self._expires:
            self.mix.scale(0, "PEXPIRE", "PERSIST")

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

    def _happen(self, event: Event) -> Any:
        self.events.append(event)
        reply = self.cluster.run(event)
        if len(self.events) % GLANCE_EVERY == 0:
            self.cluster.glance_all()
        return reply

    # -- choosing -----------------------------------------------------------------------------

    def _event(self) -> Event:
        if self._planned:
            return self._planned.pop(0)
        chance = self.chance
        numbers = list(self.cluster.mesh.nodes)
        dice = chance.random()
        number = chance.choice(numbers)
        if self._fails and chance.random() < 0.08:
            return self._at_risk(number)
        if self.events and self.events[-1][0] == "fail" and dice < 0.5:
            # what is done before anything was heard again is what hurts
            number = self.events[-1][1]
            command = self._made(_AFTER_A_FAILURE.choose(chance), number)
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
        streams = looking.streams(self.cluster.node(source).region.keyspace)
        weights = [1 + 5 * (key in streams and is_busy(streams[key])) for key in KEYS]
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
            self._addition(remover, key),
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
        return [
            ("fail", first),
            self._addition(first, key),
            *self._all_of(first, second),
            self._addition(second, key),
            *self._all_of(first, third),
            *self._all_of(second, third),
            ("fail", second),
            self._addition(second, key),
        ]

    def _all_of(self, source: int, target: int) -> list[Event]:
        """Nearly all that one region lacks of another's."""
        return [("send", source, target, self.chance.getrandbits(32)) for _ in range(4)]

    def _command(self, number: int) -> Event:
        chance = self.chance
        if chance.random() < 0.05:
            rows = [self.in_units.choose(chance) for _ in range(chance.randint(2, 4))]
            made = [self._made(row, number) for row in rows]
            return "unit", number, *filter(None, made)
        while True:
            row = self.mix.choose(chance)
            for step in range(self.regions):  # there may be a target elsewhere
                where = (number + step - 1) % self.regions + 1
                command = self._made(row, where)
                if command is not None:
                    return "do", where, *command

    def _made(self, row: Sequence[bytes], number: int) -> Command | None:
        """A command in a region, with keys, groups and IDs as bytes and the rest as text."""
        node: Any = self.cluster.node(number)
        words = self.work.fill(row, node, self.keys)
        if words is None:
            return None
        return tuple(
            word if word in (*KEYS, *GROUPS) or _ID.fullmatch(word) else word.decode()
            for word in words
        )

    def _addition(self, number: int, key: bytes) -> Event:
        command = self._made([b"XADD", key, b"*", b"f", b"{token}"], number)
        assert command is not None
        return "do", number, *command


# -- commands -------------------------------------------------------------------------------------

_MIX: Final = """
26   XADD {key} *|*|*|{given}|{given} f {token}
4.5  XADD {key} |||KEEPREF|DELREF|ACKED MAXLEN =|~ {1-5} *|{given} f {token}
1.5  XADD {key} |||KEEPREF|DELREF|ACKED MINID {now-2} *|{given} f {token}
8    XADD {key} IDMP p|q i{1-4} * f {token}
6    XDEL {key} {ids}
3    XDELEX {key} KEEPREF|DELREF|ACKED IDS {count} {ids}
2    XTRIM {key} MAXLEN =|~ {0-6} ||KEEPREF|DELREF|ACKED
1    XTRIM {key} MINID {now-1} ||KEEPREF|DELREF|ACKED
1.5  DEL {key}
0.2  FLUSHALL
5.6  XGROUP CREATE {key} {new} 0|0|$|{now} MKSTREAM
1.4  XGROUP CREATE {key} {new} 0|0|$|{now} MKSTREAM ENTRIESREAD {0-8}
1.5  XGROUP DESTROY {key} {group}
2.4  XGROUP SETID {key} {group} 0|$|{now-1}
0.6  XGROUP SETID {key} {group} 0|$|{now-1} ENTRIESREAD {0-8}
6    XGROUP DELCONSUMER {key} {busy} c|d
11   XREADGROUP GROUP {group} c|d COUNT {1-3} STREAMS {key} >|>|>|>|0
11   XREADGROUP GROUP {group} c|d STREAMS {key} >|>|>|>|0
1.5  XREADGROUP GROUP {group} c|d COUNT {1-3} NOACK STREAMS {key} >
1.5  XREADGROUP GROUP {group} c|d NOACK STREAMS {key} >
30   XACK {key} {busy} {pending}
6    XACKDEL {key} {busy} KEEPREF|DELREF|ACKED IDS {count} {pending}
4.8  XCLAIM {key} {busy} c|d 0 {pending}
1.2  XCLAIM {key} {busy} c|d 0 {pending} LASTID {newest}
2    XAUTOCLAIM {key} {busy} c|d 0 -
3    XNACK {key} {busy} SILENT|FAIL|FATAL IDS {count} {pending}
2.4  XSETID {key} {now}-{1-4}|{now+2}-{1-4}|{now+5}-{1-4}
0.6  XSETID {key} {now+2}-{1-4} ENTRIESADDED 40 MAXDELETEDID {now-2}-0
0.3  XCFGSET {key} IDMP-DURATION 50|100|200
3    PEXPIRE {key} 3|20|60|1000
1    PERSIST {key}
1    RENAME|RENAMENX {key} {other}
1    COPY {key} {other} |REPLACE
"""
"""How often each is chosen where nothing is out of the ordinary."""

_REMOVING: Final = (
    *("DEL", "FLUSHALL", "DESTROY", "XTRIM", "XDEL", "XDELEX"),
    *("PEXPIRE", "RENAME|RENAMENX", "COPY"),
)

_IN_UNITS: Final = """
2 XADD {key} *|*|*|{given} f {token}
1 XDEL {key} {ids}
1 DEL {key}
1 XGROUP CREATE {key} {new} 0|0|$|{now} MKSTREAM
1 XGROUP DESTROY {key} {group}
"""

_AFTER_A_FAILURE: Final = Mix(
    """
    2 XGROUP CREATE {key} {new} 0|0|$|{now} MKSTREAM
    1 XADD {key} *|*|{given} f {token}
    1 XGROUP DESTROY {key} {group}
    """,
    random.Random(0),
)

_ID: Final = re.compile(rb"\d+-\d+")

_NEVER: Final = random.Random(1)
"""For what the workload of the simulator draws and these histories do not use."""


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
