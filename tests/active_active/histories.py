"""Random lives of a few regions: ``python -m tests.active_active.histories --seeds 1-1000``.

Each seed has its own mix of commands, of faults and of settings, because one mix for all would
hardly ever reach some cases. What follows from a seed depends on nothing else, so a seed that
fails fails again; ``--shrink`` then leaves out events as long as it does, and prints the rest.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.active_active.comparison import GROUPS, KEYS, id_of
from tests.active_active.life import Event, Life
from tests.support.mesh import Node

__all__ = ["History", "play", "shrunk"]

Command = tuple[Any, ...]

_FAULTS: Final = 0.03
_CHECK_EVERY: Final = 4


class History:
    """The life of a seed: what happens next is chosen among what there is."""

    def __init__(self, seed: int, regions: int | None = None) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        chance = self.chance
        self.regions = regions or chance.choice([2, 3, 3, 4])
        self.mode = chance.choice(["strict", "strict", "semi-strict", "liberal"])
        self.conflict = chance.choice(["collapse", "collapse", "collapse", "keep"])
        self.keys = chance.sample(KEYS, chance.choice([1, 2, 3, 3]))
        self.steps = chance.choice([40, 80, 160])
        self.life = Life(self.regions, self.mode, self.conflict)
        self.events: list[Event] = []
        self._tokens = 0
        self._restarts = chance.random() < 0.5
        self._joins = chance.random() < 0.7
        self._expires = chance.random() < 0.4
        makers = [maker for maker, _ in _MIX]
        weights = [weight * chance.choice([0.05, 0.2, 1, 1, 4]) for _, weight in _MIX]
        self._makers: list[Callable[[History, Node, bytes], Command | None]] = makers
        self._weights = weights
        if chance.random() < 0.7:  # entries that are there twice blunt some of the checks
            for rewriting in (rename, copy):
                self._weights[makers.index(rewriting)] = 0
        if not self._expires:
            for timing in (expire, persist):
                self._weights[makers.index(timing)] = 0

    def run(self) -> None:
        """All of it; AssertionError, with the events in :attr:`events`, if anything is wrong."""
        for key in self.keys:
            if self.chance.random() < 0.5:
                number = self.chance.choice(list(self.life.mesh.nodes))
                self._happen(("do", number, "XGROUP", "CREATE", key, GROUPS[0], "0", "MKSTREAM"))
        for _ in range(self.steps):
            self._happen(self._event())
        self.life.finish()

    def _happen(self, event: Event) -> None:
        self.events.append(event)
        self.life.run(event)
        if len(self.events) % _CHECK_EVERY == 0:
            for node in self.life.mesh.nodes.values():
                self.life.check(node)
            self.life.check_equals()

    # -- choosing -----------------------------------------------------------------------------

    def _event(self) -> Event:
        chance = self.chance
        numbers = list(self.life.mesh.nodes)
        dice = chance.random()
        number = chance.choice(numbers)
        if dice < 0.55:
            return self._command(number)
        if dice < 0.60:
            return "read", number, chance.randrange(len(self.life.wanderers))
        one, other = chance.sample(numbers, 2)
        if dice < 0.87:
            return "send", one, other, chance.getrandbits(32)
        if dice < 0.93:
            return "row", one, other
        if dice < 0.95:
            return "cut", one, other
        if dice < 0.97 and self._joins:
            if chance.random() < 0.5:
                return "state", one, other
            return "forget", one, chance.getrandbits(32)
        if dice < 0.98 and self._restarts:
            return chance.choice(["snapshot", "restart"]), number
        return "pass", number, chance.choice([1, 1, 2, 5, 30])

    def _command(self, number: int) -> Event:
        chance = self.chance
        node = self.life.node(number)
        if chance.random() < 0.05:
            commands = [
                self._made(chance.choice([add, add, delete_entries, delete, create, destroy]), node)
                for _ in range(chance.randint(2, 4))
            ]
            return "unit", number, *(command for command in commands if command)
        while True:
            (maker,) = chance.choices(self._makers, self._weights)
            others = [each for each in self.life.mesh.nodes if each != number]
            for where in (number, *chance.sample(others, len(others))):  # there may be a target
                command = self._made(maker, self.life.node(where))
                if command is not None:
                    return "do", where, *command

    def _made(
        self, maker: Callable[[History, Node, bytes], Command | None], node: Node
    ) -> Command | None:
        return maker(self, node, self.chance.choice(self.keys))

    def token(self) -> bytes:
        """A value that no other XADD has."""
        self._tokens += 1
        return b"v%d" % self._tokens

    def ids(self, node: Node, key: bytes) -> list[bytes]:
        """The IDs of a key's entries."""
        return [entry_id for entry_id, _ in node.do("XRANGE", key, "-", "+")]

    def some_ids(self, node: Node, key: bytes) -> list[bytes]:
        """Some of them, never none if there are any."""
        ids = sorted(set(self.ids(node, key)), key=id_of)
        return self.chance.sample(ids, min(len(ids), self.chance.randint(1, 3)))

    def group(self, node: Node, *, pending: bool = False) -> tuple[bytes, bytes] | None:
        """A key and a group that are there, mostly."""
        found = []
        for key in KEYS:
            if node.do("EXISTS", key):
                rows = node.do("XINFO", "GROUPS", key)
                found += [(key, row[1]) for row in rows if not pending or row[5]]
        if found and self.chance.random() < 0.95:
            return self.chance.choice(found)
        return None

    def pending_ids(self, node: Node, key: bytes, group: bytes) -> list[bytes]:
        """Some IDs that are pending, in any order."""
        ids = sorted({row[0] for row in node.do("XPENDING", key, group, "-", "+", 100)}, key=id_of)
        dice = self.chance.random()
        if dice < 0.2:
            return ids
        if dice < 0.5:
            return ids[len(ids) // 2 :]  # what is before them stays open
        return self.chance.sample(ids, min(len(ids), self.chance.randint(1, 3)))


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
    return "XGROUP", "CREATE", key, history.chance.choice(GROUPS), start, "MKSTREAM"


def destroy(history: History, node: Node, _key: bytes) -> Command | None:
    found = history.group(node)
    return ("XGROUP", "DESTROY", *found) if found else None


def move(history: History, node: Node, _key: bytes) -> Command | None:
    found = history.group(node)
    start = history.chance.choice(["0", "$", str(node.clock.us // 1000 - 1)])
    return ("XGROUP", "SETID", *found, start) if found else None


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
    (acknowledge, 30), (acknowledge_and_delete, 6), (claim, 6), (claim_some, 2),
    (set_last_id, 3), (configure, 0.3), (expire, 3), (persist, 1), (rename, 1), (copy, 1),
]  # fmt: skip
"""How often each is chosen where nothing is out of the ordinary."""


# -- again, and with less -------------------------------------------------------------------------


def play(history: History, events: Sequence[Event]) -> Exception | None:
    """The same regions with other events; what went wrong."""
    life = Life(history.regions, history.mode, history.conflict)
    try:
        for event in events:
            life.run(event)
            for node in life.mesh.nodes.values():
                life.check(node)
            life.check_equals()
        life.finish()
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1-1000", help="A-B, both included")
    parser.add_argument("--regions", type=int, help="2 to 255; without it, some of each")
    parser.add_argument("--shrink", action="store_true", help="print few events that fail")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first failure")
    chosen = parser.parse_args(arguments)
    low, _, high = chosen.seeds.partition("-")
    reached: Counter[str] = Counter()
    failed = 0
    count = 0
    started = time.monotonic()
    for seed in range(int(low), int(high or low) + 1):
        history = History(seed, chosen.regions)
        count += 1
        try:
            history.run()
        except Exception as problem:
            failed += 1
            say(f"seed {seed}: {type(problem).__name__} at {_place(problem)}: {problem}")
            if chosen.shrink:
                events = shrunk(history)
                say(f"  {history.regions} regions, {history.mode}, {history.conflict}")
                for event in events:
                    say(f"  {event!r},")
                found = play(history, events)
                say("".join(traceback.format_exception(found)[-4:]) if found else "  -> nothing")
            if not chosen.go_on:
                break
        reached.update(history.life.reached)
    spent = time.monotonic() - started
    for name, times in sorted(reached.items()):
        say(f"{times:8} {name}")
    say(f"{count} histories, {failed} failed, {count / spent * 60:.0f} a minute")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
