"""Random lives of workers with leases, checked from outside; and mistakes that must be found.

Workers take entries, work for any time, acknowledge, give back, close, or come back; the
server saves and starts again. The watch knows of each entry who was given it and when that worker's
last connection ended, and looks at every hand-over:

- with ``lease connection`` nobody is given an entry while a connection of its consumer is open, or
  before the grace is over;
- with ``heartbeat`` and ``time`` not before the consumer was silent, or the entry out, for long
  enough;
- while a reader waits, an entry is handed out within a second more than the lease says;
- an acknowledged entry is never handed out again, and no entry is lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from anabranch.commands.stream import pending, readgroup
from anabranch.engine import leases
from anabranch.engine.leases import Hold, Leases
from anabranch.engine.session import Session
from anabranch.region.leases import Leasing
from anabranch.stream.groups.policy import GroupPolicy
from tests.support.streams import Streams

GRACE = 1000
BEAT = 3000
UNKNOWN = leases.UNKNOWN_MS
LATE = 1000
NAMES = ("ann", "bob", "eve", "joe")


class Broken(AssertionError):
    """A promise was broken."""


def require(kept: bool, what: str) -> None:
    if not kept:
        raise Broken(what)


class Life:
    """A group with a lease, some workers, and the watch."""

    def __init__(self, seed: int, mode: str) -> None:
        self.rng = random.Random(seed)
        self.mode = mode
        lease = {"connection": GRACE}.get(mode, BEAT)
        self.lease_ms = lease
        self.s = Streams(enable_debug_command="yes")
        self.s.run("XGROUP CREATE s g 0 MKSTREAM", f"AB.POLICY SET s lease {mode}:{lease}")
        self.open: dict[str, list[Session]] = {name: [] for name in NAMES}
        self.mine: dict[Session, set[str]] = {}  # names that a connection has used
        self.waiting: dict[Session, str] = {}
        self.owner: dict[str, str] = {}  # who was given an entry
        self.given: dict[str, int] = {}  # and when its time begins
        self.beat: dict[str, int] = {}
        self.left: dict[str, int] = {}
        self.started = 0
        self.added = 0
        self.acked: set[str] = set()
        self.over: dict[str, int | None] = {}

    @property
    def now(self) -> int:
        return self.s.clock.us // 1000

    # -- what is promised -------------------------------------------------------------------------

    def over_ms(self, entry_id: str) -> int | None:
        """When the lease of an entry is over, as far as is known; None: it is held."""
        name = self.owner[entry_id]
        if self.mode == "time":
            return self.given[entry_id] + BEAT
        unknown = self.started + max(UNKNOWN, self.lease_ms)
        if self.mode == "heartbeat":
            return self.beat[name] + BEAT if name in self.beat else unknown
        if any(name in self.mine[each] for each in self.mine):
            return None
        return self.left[name] + GRACE if name in self.left else unknown

    def handed(self, name: str, ids: list[str]) -> None:
        """A worker was given entries."""
        for entry_id in ids:
            require(entry_id not in self.acked, f"{entry_id} was acknowledged")
            if entry_id in self.owner:
                self.may_go(entry_id)
            self.owner[entry_id] = name
            self.given[entry_id] = self.now
        if ids:
            self.beats(name)

    def may_go(self, entry_id: str) -> None:
        """An entry is taken from the worker that was given it."""
        over, former = self.over.get(entry_id), self.owner[entry_id]
        require(over is not None, f"{entry_id} is taken from {former}, who holds it")
        assert over is not None
        require(over <= self.now, f"{entry_id} is taken from {former} early: {over - self.now}")

    def beats(self, name: str) -> None:
        self.beat[name] = self.now

    def look(self) -> None:
        """Nothing is late, and nothing that is released waits while somebody does."""
        self.over = {each: self.over_ms(each) for each in self.owner}  # before anybody is served
        for session, name in list(self.waiting.items()):
            data = self.s.received(session)
            if data:
                del self.waiting[session]
                self.handed(name, parsed(data))
        for entry_id, owner, *_ in self.s.pending():
            if entry_id not in self.owner:
                require(owner != "" or not self.waiting, f"nobody is given {entry_id}")
                continue
            over = self.over.get(entry_id, self.now)
            if owner == "":
                self.may_go(entry_id)
                require(not self.waiting, f"nobody is given {entry_id}")
                del self.owner[entry_id]
            elif over is not None:
                late = self.now - over
                require(late <= LATE, f"{entry_id} of {self.owner[entry_id]} is late: {late}")

    # -- what happens -----------------------------------------------------------------------------

    def session_of(self, name: str) -> Session:
        if not self.open[name] or self.rng.random() < 0.1:
            session = self.s.connect()
            self.open[name].append(session)
            self.mine[session] = set()
        return self.rng.choice(self.open[name])

    def free(self, session: Session) -> bool:
        return session not in self.waiting

    def use(self, session: Session, name: str) -> None:
        self.mine[session].add(name)

    def add(self) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            self.added += 1
            self.s.run(f"XADD s {self.added}-0 f v")
        self.look()

    def read(self) -> None:
        self.look()
        name = self.rng.choice(NAMES)
        session = self.session_of(name)
        if not self.free(session):
            return
        self.use(session, name)
        block = self.rng.choice(["", "BLOCK 0"])
        line = f"XREADGROUP GROUP g {name} COUNT {self.rng.randrange(1, 4)} {block} STREAMS s >"
        self.beats(name)
        data = self.s.raw(*line.split(), session=session)
        if data:
            self.handed(name, parsed(data))
        elif block:
            self.waiting[session] = name

    def finish(self) -> None:
        """A worker acknowledges an entry, which may not be its own any more, or gives it back."""
        if not self.owner:
            return
        entry_id = self.rng.choice(list(self.owner))
        name = self.owner[entry_id]
        session = self.session_of(name)
        if not self.free(session):
            return
        owners = {row[0]: row[1] for row in self.s.pending()}
        if self.rng.random() < 0.8:
            if self.s.run(f"XACK s g {entry_id}", session=session):
                self.acked.add(entry_id)
                del self.owner[entry_id]
        else:
            self.s.run(f"XNACK s g FAIL IDS 1 {entry_id}", session=session)
            self.owner.pop(entry_id)
        if owners.get(entry_id) == name:
            self.use(session, name)
            self.beats(name)
        self.look()

    def claim(self) -> None:
        """A library claims what was pending for a while: nothing that is held."""
        self.look()
        name = self.rng.choice(NAMES)
        session = self.session_of(name)
        if not self.free(session):
            return
        self.use(session, name)
        self.beats(name)
        found = self.s.run(f"XAUTOCLAIM s g {name} 1500 0 COUNT 2 JUSTID", session=session)[1]
        self.handed(name, [each for each in found if self.owner.get(each) != name])
        for entry_id in found:
            self.given[entry_id] = self.now

    def renew(self) -> None:
        name = self.rng.choice(NAMES)
        session = self.session_of(name)
        if not self.free(session):
            return
        has = self.s.run(f"AB.RENEW s g {name} {BEAT}", session=session)
        if f"{name}" in self.names():
            self.use(session, name)
            self.beats(name)
        for entry_id in has:
            require(self.owner.get(entry_id) == name, f"{name} does not have {entry_id}")
            self.given[entry_id] = self.now

    def names(self) -> set[str]:
        stream = self.s.region.keyspace.databases[0].values[b"s"]
        return {each.decode() for each in stream.groups[b"g"].consumers}  # type: ignore[union-attr]

    def close(self) -> None:
        name = self.rng.choice(NAMES)
        for session in list(self.open[name]) if self.rng.random() < 0.5 else self.open[name][:1]:
            self.open[name].remove(session)
            used = self.mine.pop(session)
            self.waiting.pop(session, None)
            self.s.region.close_session(session)
            for each in used:
                if not any(each in some for some in self.mine.values()):
                    self.left[each] = self.now

    def start_again(self) -> None:
        """All connections end, and the data is read from the disk."""
        self.look()
        for name in NAMES:
            for session in self.open[name]:
                self.s.region.close_session(session)
            self.open[name].clear()
        for each in (self.mine, self.waiting, self.beat, self.left):
            each.clear()
        table = self.s.region.leases
        table.holds.clear()
        table.deadlines.clear()
        table._places.clear()
        self.s.run("DEBUG RELOAD")
        self.started = self.now

    def pass_time(self) -> None:
        for _ in range(self.rng.choice([1, 3, 10, 60])):
            self.s.advance(100)
            self.look()

    def run(self, steps: int = 150) -> None:
        acts: list[tuple[Callable[[], None], int]] = [
            *((self.add, 3), (self.read, 6), (self.finish, 4), (self.claim, 2)),
            *((self.renew, 2), (self.close, 2), (self.start_again, 0), (self.pass_time, 5)),
        ]
        kinds, weights = zip(*acts, strict=True)
        for step in range(steps):
            if step % 60 == 59 and self.rng.random() < 0.5:
                self.start_again()
            self.rng.choices(kinds, weights)[0]()
            self.s.region.leases.check()
        known = {row[0] for row in self.s.run("XPENDING s g - + 100000")}
        delivered = set(self.owner) | self.acked
        require(known >= set(self.owner), "an entry is lost")
        rest = {f"{n}-0" for n in range(1, self.added + 1)} - delivered - known
        self.s.check()
        assert not rest or self.s.run("XREADGROUP GROUP g x STREAMS s >"), "nothing is left over"


def parsed(data: bytes) -> list[str]:
    """The IDs in the reply of an XREADGROUP."""
    from tests.support.region_harness import decode_all

    (reply,) = decode_all(data)
    return [entry[0].decode() for _, entries in reply or [] for entry in entries]


# -- mistakes -----------------------------------------------------------------------------------


def _replaced(target: Any, name: str, change: Callable[..., Any]) -> Any:
    """A method that is called as ``change(original, *arguments)``."""
    original = getattr(target, name)

    def changed(*args: Any, **named: Any) -> Any:
        return change(original, *args, **named)

    return mock.patch.object(target, name, changed)


def _nothing(original: Any, *args: Any, **named: Any) -> None:
    """It is not done."""


def _left_at_once(original: Any, hold: Hold, policy: GroupPolicy) -> int | None:
    """A lease ends with any connection, or with the time since the last sign of life."""
    return hold.used_ms + policy.lease.ms if policy.lease.mode else None


def _one_connection(original: Any, table: Leases, session_id: int, now_ms: int) -> None:
    """The first connection that ends takes the others along."""
    for place in table._places.get(session_id, ()):
        for each in table.holds[place].sessions - {session_id}:
            table._places[each].discard(place)
        table.holds[place].sessions = {session_id}
    original(table, session_id, now_ms)


def _no_grace(original: Any, hold: Hold, policy: GroupPolicy) -> int | None:
    end = original(hold, policy)
    return None if end is None else end - policy.lease.ms


def _too_long(original: Any, hold: Hold, policy: GroupPolicy) -> int | None:
    end = original(hold, policy)
    return None if end is None else end + 2 * LATE


def _always_idle(
    original: Any, group: Any, entry: Any, claimer: bytes, now: int, least: int
) -> Any:
    return entry.consumer is None or now - entry.delivery_ms >= least


def _not_expected(original: Any, table: Leases, *args: Any) -> None:
    """After a start nobody is looked at before it comes back."""


def _at_once_expected(original: Any, table: Leases, place: Any, policy: Any, now_ms: int) -> None:
    """After a start consumers have no time to come back."""
    table.holds.setdefault(place, Hold(now_ms - policy.lease.ms))
    table.look(place, now_ms)


def _never_looked_at(original: Any, table: Leases, place: Any, at_ms: int) -> None:
    original(table, place, at_ms + 5 * LATE)


def _not_given(original: Any, stream: Any, group: Any) -> bool:
    """A blocked reader is not woken by what is released."""
    return bool(stream.has_for(group))


def _none_of_many(original: Any, leasing: Leasing, whose: Any, entries: Any) -> None:
    """Only the first of several entries is released, and the rest is forgotten."""
    some = list(entries)
    original(leasing, whose, some[:1])
    owner = some[0].consumer if some else None
    for each in list(leasing._region.leases.holds):
        if owner is None or each.consumer == owner.name:
            leasing._region.leases.deadlines.pop(each, None)


MISTAKES: dict[str, tuple[str, Callable[[], Any]]] = {
    "a sign of life in place of a connection": (
        "connection",
        lambda: _replaced(Hold, "lease_end_ms", _left_at_once),
    ),
    "one of several connections": (
        "connection",
        lambda: _replaced(Leases, "left", _one_connection),
    ),
    "a connection that ends is not noticed": (
        "connection",
        lambda: _replaced(Leases, "left", _nothing),
    ),
    "no grace": ("connection", lambda: _replaced(Hold, "lease_end_ms", _no_grace)),
    "too long a grace": ("connection", lambda: _replaced(Hold, "lease_end_ms", _too_long)),
    "too long a heartbeat": ("heartbeat", lambda: _replaced(Hold, "lease_end_ms", _too_long)),
    "what is held is idle": ("connection", lambda: _replaced(pending, "_is_idle", _always_idle)),
    "nobody is expected": ("connection", lambda: _replaced(Leases, "expect", _not_expected)),
    "everybody is late after a start": (
        "heartbeat",
        lambda: _replaced(Leases, "expect", _at_once_expected),
    ),
    "looked at too late": ("time", lambda: _replaced(Leases, "look", _never_looked_at)),
    "nobody is woken": ("time", lambda: _replaced(readgroup, "_has_for", _not_given)),
    "only one is released": ("connection", lambda: _replaced(Leasing, "_release", _none_of_many)),
    "released entries are for those who claim": (
        "heartbeat",
        lambda: mock.patch.object(readgroup, "_redeliver", side_effect=lambda *_: []),
    ),
}
"""What could be wrong, and the lease with which it shows."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_found(mistake: str) -> None:
    mode, seeded = MISTAKES[mistake]
    with seeded():
        for seed in range(60):
            try:
                Life(seed, mode).run()
            except Broken:
                return
    pytest.fail("no history shows the mistake")


@pytest.mark.parametrize("mode", ["connection", "heartbeat", "time"])
@pytest.mark.parametrize("seed", range(12))
def test_leases_keep_their_promises(mode: str, seed: int) -> None:
    Life(seed, mode).run()
