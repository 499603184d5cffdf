"""Order per key against a model: ``python -m tests.simulator.ordered --histories 100000``.

Consumers read, acknowledge out of order, give back and claim; entries are deleted and trimmed,
leases end, entries fail until they are given up, keys halt and go on; the server starts again from
a snapshot or its log, the key is renamed, copied, dumped and restored. The model knows the key of
each entry, and judges what it sees from outside, after each command:

======== ===========================================================================================
one      no two entries of a key are with consumers
order    nobody is given an entry while an earlier one of its key is there
waits    a reader that gets less than it asked for, or waits, leaves nothing that it could have had
lost     what the group has passed is pending, or somebody has had it
halted   ``AB.SKIP LIST`` shows the keys that have stopped, and no others
lag      is unknown, or the number of entries that the group has not passed
drained  in the end everything was handed out, the entries of a key in the order of their IDs
======== ===========================================================================================

Everything follows from the seed.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import cache
from typing import Any, Final, NamedTuple

import pytest

from anabranch.commands.table import COMMANDS
from anabranch.config.settings import Settings
from anabranch.effects import kinds
from anabranch.effects.apply import apply
from anabranch.engine.session import Session
from anabranch.keyspace.keyspace import Keyspace
from anabranch.stream.groups.pending import MAX_DELIVERIES
from anabranch.stream.stream import Stream
from tests.simulator.ordered_mistakes import MISTAKES
from tests.support import region_harness
from tests.support.recording import Recording
from tests.support.region_harness import Harness

__all__ = ["OrderedRun", "failures", "seed_that_finds"]

KEYS: Final = ("a", "b", "c", "long" * 20)
CONSUMERS: Final = ("ann", "bob", "eve")
BACKOFF_MS: Final = 500
LEASE_MS: Final = 2000
_WORDS: Final = {
    *("ab.policy", "ab.redrive", "ab.skip", "copy", "del", "dump", "rename", "restore", "xack"),
    *(
        "xackdel",
        "xadd",
        "xautoclaim",
        "xclaim",
        "xdel",
        "xdelex",
        "xgroup",
        "xinfo",
        "xnack",
        "xrange",
        "xreadgroup",
        "xtrim",
    ),
}
_USED: Final = [command for command in COMMANDS if command.name in _WORDS]


@cache
def _checked(**settings: Any) -> Settings:
    return Settings(**settings)


def _settings(**settings: Any) -> Settings:
    """A copy takes less time than to check the settings again."""
    return copy(_checked(**settings))


class Seen(NamedTuple):
    """A pending entry."""

    consumer: bytes | None
    count: int
    delivery_ms: int


def require(kept: bool, promise: str, what: object) -> None:
    """Raise unless a promise was kept."""
    if not kept:
        raise AssertionError(f"{promise}: {what}")


class OrderedRun:
    """The run of a seed. AssertionError if a promise is broken."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(f"{seed}/ordered")
        with pytest.MonkeyPatch.context() as patch:  # a table of few commands is made quickly
            patch.setattr(region_harness, "COMMANDS", _USED)
            patch.setattr(region_harness, "Settings", _settings)
            self.server = Harness(stream_node_max_entries=chance.choice([100, 2]), databases=1)
        self.effects: list[kinds.Effect] = []
        self.server.region.effects.record = Recording(self.effects)
        self.reached = Counter[str]()
        self.name = "h0"
        self.renamed = 0
        self.key_of: dict[int, str | None] = {}
        self.live: set[int] = set()
        self.done: set[int] = set()
        self.handed = Counter[int]()
        self.fatal: set[int] = set()
        self.forgotten: set[int] = set()
        """Deleted entries that a consumer has, whose keys are not known after a start."""
        self.firsts: dict[str, list[int]] = {}
        self.is_disturbed = False
        """Something was put back behind what was handed out."""
        self.pending: dict[int, Seen] = {}
        self.last = 0
        self.reader: tuple[Session, str, int] | None = None  # that waits: with which name and COUNT
        self.waiting_max = chance.choice([1, 2, 3, 100])
        self.deliveries_max = chance.choice([0, 0, 1, 2])
        self.halts = chance.random() < 0.5
        self.has_dead = chance.random() < 0.7
        self.backoff = chance.random() < 0.3
        self.has_lease = chance.random() < 0.3
        self.room = chance.choice([0, 0, 0, 2])
        self.is_wide = random.Random(f"{seed}/ordered/wide").random() > 0.6

    # -- the run ---------------------------------------------------------------------------------

    def run(self) -> None:
        """All of it."""
        words: list[object] = ["key-field", "k", "key-waiting", self.waiting_max]
        words += ["on-poison", "halt" if self.halts else "skip"]
        words += ["max-deliveries", self.deliveries_max] if self.deliveries_max else []
        words += ["dead-letter", "dead"] if self.has_dead else []
        words += ["backoff", f"{BACKOFF_MS}ms"] if self.backoff else []
        words += ["lease", f"time:{LEASE_MS}ms"] if self.has_lease else []
        words += ["max-pending", f"consumer:{self.room}"] if self.room else []
        self.do("AB.POLICY", "SET", "PATTERN", "h*", *words)
        self.do("XGROUP", "CREATE", self.name, "g", "0", "MKSTREAM")
        actions = _ACTIONS if self.chance.random() < 0.7 else (*_ACTIONS, *_DISTURBING)
        actions = (*actions, *_RARE) if self.is_wide else actions
        weights = [weight for _, weight in actions]
        for _ in range(self.chance.choice([10, 25, 50])):
            (action, _) = self.chance.choices(actions, weights)[0]
            getattr(self, action)()
            self._look()
        self._drain()

    def do(self, *words: object) -> Any:
        """The reply of a command."""
        return self.server.do(*words)

    def _some(self, ids: Iterable[int]) -> int | None:
        found = sorted(ids)
        return self.chance.choice(found) if found else None

    def _owned(self) -> list[int]:
        return [each for each, seen in self.pending.items() if seen.consumer is not None]

    # -- what happens ------------------------------------------------------------------------------

    def add(self) -> None:
        number = len(self.key_of) + 1
        key = self.chance.choice(KEYS) if self.chance.random() < 0.9 else None
        self.key_of[number] = key
        self.live.add(number)
        field = ("other", "k" * 3) if key is None else ("k", key)
        self.do("XADD", self.name, f"{number}-0", "n", number, *field)

    def read(self) -> None:
        consumer, count = self.chance.choice(CONSUMERS), self.chance.choice([1, 2, 4])
        noack = ["NOACK"] if self.chance.random() < 0.1 else []
        words = ["XREADGROUP", "GROUP", "g", consumer, "COUNT", count, *noack]
        reply = self.do(*words, "STREAMS", self.name, ">")
        given = self._given(reply, bool(noack))
        require(len(given) <= count, "waits", f"{given} are more than {count}")
        self.observe()
        self._judge(given)
        if len(given) < count and not (noack and given):  # what that has freed may come later
            self._nothing_left(consumer if not noack else None, got_some=bool(given))
        self.reached["read"] += len(given) > 0
        self.reached["read without a receipt"] += bool(noack and given)

    def wait(self) -> None:
        if self.reader is None:
            session, name = self.server.connect(), self.chance.choice(CONSUMERS)
            count = self.chance.choice([1, 3])
            self.reader = session, name, count
            words = ["XREADGROUP", "GROUP", "g", name, "COUNT", count, "BLOCK", 0]
            self._hear(self.server.do(*words, "STREAMS", self.name, ">", session=session))

    def claim(self) -> None:
        consumer, entry_id = self.chance.choice(CONSUMERS), self._some(self.pending)
        way = self.chance.random()
        if way < 0.4:
            self.do("XAUTOCLAIM", self.name, "g", consumer, 0, 0, "COUNT", 3)
            self.reached["autoclaim"] += 1
        elif way < 0.6:
            words = ["XREADGROUP", "GROUP", "g", consumer, "COUNT", 2, "CLAIM", 0]
            self._given(self.do(*words, "STREAMS", self.name, ">"), False)
        elif entry_id is not None:
            self.do("XCLAIM", self.name, "g", consumer, 0, f"{entry_id}-0")
            self.reached["claim"] += 1

    def acknowledge(self) -> None:
        entry_id = self._some(self._owned() if self.chance.random() < 0.9 else self.pending)
        if entry_id is not None and self.do("XACK", self.name, "g", f"{entry_id}-0"):
            self.done.add(entry_id)

    def give_back(self) -> None:
        entry_id = self._some(self._owned() if self.chance.random() < 0.9 else self.pending)
        if entry_id is not None:
            mode = self.chance.choice(["FAIL", "FAIL", "SILENT", "FATAL"])
            if mode == "FATAL":
                self.fatal.add(entry_id)
            self.do("XNACK", self.name, "g", mode, "IDS", 1, f"{entry_id}-0")
            self.reached[mode] += 1

    def delete(self) -> None:
        entry_id = self._some(self.live)
        if entry_id is not None:
            self.do("XDEL", self.name, f"{entry_id}-0")
            self.live.discard(entry_id)
            self._forget_if_unknown()

    def trim(self) -> None:
        kept = self.chance.choice([3, 6])
        self.do("XTRIM", self.name, "MAXLEN", kept)
        self.live = set(sorted(self.live)[-kept:])
        self._forget_if_unknown()

    def pass_time(self) -> None:
        for _ in range(self.chance.choice([1, 3, 12])):
            self.server.advance(200)

    def drop(self) -> None:
        """An entry is deleted, and taken from who has it."""
        entry_id = self._some(self.live | set(self.pending))
        if entry_id is None:
            return
        words: list[object] = ["DELREF", "IDS", 1, f"{entry_id}-0"]
        if self.chance.random() < 0.5:
            self.do("XDELEX", self.name, *words)
        elif self.do("XACKDEL", self.name, "g", *words) == [-1]:
            return  # it was not pending
        self.live.discard(entry_id)
        self.done.add(entry_id)
        self._forget_if_unknown()
        self.reached["dropped"] += 1

    def limit(self) -> None:
        """Other limits; readers hear of them some moments later."""
        self.observe()
        unknown = {each for each in self._owned() if each not in self.live}
        before = self._stream().groups[b"g"].policed
        self.room = self.chance.choice([0, 1, 3])
        self.waiting_max = self.chance.choice([1, 3, 100])
        words: list[object] = ["key-waiting", self.waiting_max]
        words += ["max-pending", f"consumer:{self.room}" if self.room else "none"]
        self.do("AB.POLICY", "SET", "PATTERN", "h*", *words)
        if self._stream().groups[b"g"].policed is not before:  # otherwise the limits are the same
            self.forgotten |= unknown
        self.server.advance(150)
        self.reached["limited"] += 1

    def leave(self) -> None:
        consumer = self.chance.choice(CONSUMERS)
        if self.reader is None or (self.is_wide and self.reader[1] != consumer):
            self.observe()
            self.do("XGROUP", "DELCONSUMER", self.name, "g", consumer)
            gone = [e for e, seen in self.pending.items() if seen.consumer == consumer.encode()]
            self.done.update(gone)

    def skip(self) -> None:
        for value, entry_id in self._listed() if self.halts else ():
            if self.do("AB.SKIP", self.name, "g", value) != 1:
                # A reader that waits may be given it again, once another key goes on.
                require(self.is_disturbed and self.reader is not None, "halted", value)
                continue
            self.done.add(entry_id)
            self.reached["skipped"] += 1

    def redrive(self) -> None:
        """Of dead letters whose entries exist: others would be added anew."""
        letters = {row[0]: int(row[1][3][:-2]) for row in self.do("XRANGE", "dead", "-", "+")}
        letters = {letter: number for letter, number in letters.items() if number in self.live}
        if letters:
            self.observe()
            before = dict(self.pending)
            self.do("AB.REDRIVE", "dead", "IDS", len(letters), *letters)
            self.observe()
            for number in letters.values():
                if number in self.pending and not self.pending[number].count:
                    self.handed[number] = 0
                    self.fatal.discard(number)
                    self.reached["redriven"] += 1
            again = set(self.pending) - set(before)
            self.done -= again
            self.is_disturbed |= bool(again)

    def start_again(self) -> None:
        """From a snapshot, or from all effects."""
        if self.reader is not None:
            return
        self._forget()
        region = self.server.region
        if self.chance.random() < 0.5:
            self.server.host.persistence.reload(save=True)
        else:
            keyspace = Keyspace(len(region.keyspace.databases))
            for effect in self.effects:
                if isinstance(effect, kinds.Remove):
                    effect.located = None  # is not in the log
                apply(keyspace, effect)
            region.replace_contents(keyspace)
        self.reached["started again"] += 1

    def move(self) -> None:
        """Go on under another name."""
        if self.reader is not None:
            return
        way = self.chance.randrange(3)
        if way:
            self._forget()
        self.renamed += 1
        old, self.name = self.name, f"h{self.renamed}"
        if way == 0:
            self.do("RENAME", old, self.name)
        elif way == 1:
            self.do("COPY", old, self.name)
        else:
            self.do("RESTORE", self.name, 0, self.do("DUMP", old))
        self.do("DEL", old)
        self.do("DEL", "dead")  # its letters name the old key
        self.reached["moved"] += 1

    def go_back(self) -> None:
        """XGROUP SETID: everything behind it is to be delivered again."""
        to = self.chance.randint(0, self.last)
        self.do("XGROUP", "SETID", self.name, "g", f"{to}-0")
        self.done = {each for each in self.done if each <= to}
        self.is_disturbed = True
        self.reached["set back"] += 1

    def pass_over(self) -> None:
        """XCLAIM LASTID: what is before it and not pending is not delivered any more."""
        to = self.chance.randint(self.last, len(self.key_of))
        self.do("XCLAIM", self.name, "g", "ann", 0, "999999-0", "LASTID", f"{to}-0")
        self.done.update(each for each in self.key_of if each <= to and each not in self.pending)
        self.is_disturbed = True
        self.reached["passed over"] += 1

    def force(self) -> None:
        """XNACK or XCLAIM with FORCE: an entry is pending again, or before its time."""
        entry_id = self._some(self.live - set(self.pending))
        if entry_id is None:
            return
        self.is_disturbed = True
        if self.chance.random() < 0.5:
            self.do("XNACK", self.name, "g", "SILENT", "IDS", 1, f"{entry_id}-0", "FORCE")
        else:
            self.do("XCLAIM", self.name, "g", "ann", 0, f"{entry_id}-0", "FORCE")
        self.observe()
        if entry_id in self.pending:
            self.done.discard(entry_id)

    def _forget(self) -> None:
        self.observe()
        self.forgotten.update(each for each in self._owned() if each not in self.live)

    def _forget_if_unknown(self) -> None:
        """Nobody has read since a start: what is gone by then has no key."""
        if self._stream().groups[b"g"].pending.order is None:
            self._forget()

    # -- what is seen ------------------------------------------------------------------------------

    def _stream(self) -> Stream:
        value = self.server.region.keyspace.databases[0].values[self.name.encode()]
        assert isinstance(value, Stream)
        return value

    def _ids(self) -> set[int]:
        return {e >> 64 for block, low, high in self._stream().spans(0, 1 << 127)
                for e in block.ids[low:high]}  # fmt: skip

    def observe(self) -> None:
        """What is pending, and how far the group has come."""
        group = self._stream().groups[b"g"]
        self.pending = {
            entry_id >> 64: Seen(
                None if entry.consumer is None else entry.consumer.name,
                entry.delivery_count,
                entry.delivery_ms,
            )
            for some in group.pending.lists.values()
            for entry_id, entry in some.entries.items()
        }
        for entry_id, seen in self.pending.items():
            if seen.count < MAX_DELIVERIES:  # claims are deliveries
                self.handed[entry_id] = max(self.handed[entry_id], seen.count)
        self.last = group.progress.last_delivered_id >> 64

    def _given(self, reply: Any, noack: bool) -> list[int]:
        """The IDs of a reply of XREADGROUP."""
        rows = reply[0][1] if reply else []
        given = [int(row[0].split(b"-")[0]) for row in rows]
        for entry_id in given:
            self.handed[entry_id] += 1
            key = self.key_of.get(entry_id)
            if key is not None and self.handed[entry_id] == 1:
                self.firsts.setdefault(key, []).append(entry_id)
            if noack:
                self.done.add(entry_id)
        return given

    def _hear(self, reply: Any) -> None:
        """The reader that waits may have got something."""
        if reply:
            given = self._given(reply, False)
            self.reader = None
            self.observe()
            self._judge([each for each in given if each in self.pending])
            self.reached["woken"] += 1

    def _look(self) -> None:
        """Judge everything after a command."""
        before = self._owned()
        if self.reader is not None:
            session = self.reader[0]
            replies = self.server.replies(session)
            self._hear(replies[0] if replies else None)
        self.observe()
        self._judge([each for each in self._owned() if each not in before])
        if self.reader is not None:
            self._nothing_left(self.reader[1])
        if not self.is_disturbed:
            for entry_id in self.live:
                if entry_id <= self.last and entry_id not in self.pending:
                    is_known = entry_id in self.done or self._may_be_given_up(entry_id)
                    require(is_known, "lost", entry_id)
        listed = set(self._listed()) if self.halts else set()
        at_most = self._halted(knows_ghosts=True)  # XDEL tells of ghosts, XTRIM does not
        require(not self.halts or self._halted() <= listed <= at_most, "halted", listed)
        if self.chance.random() < 0.2:  # these take long
            self._look_at_lag()
            self._stream().check()

    def _look_at_lag(self) -> None:
        rows = self.do("XINFO", "GROUPS", self.name)[0]
        lag = dict(zip(rows[::2], rows[1::2], strict=True))[b"lag"]
        if lag is not None and not self.is_disturbed:
            require(lag == sum(each > self.last for each in self._ids()), "lag", lag)

    def _may_be_given_up(self, entry_id: int) -> bool:
        """Whether it may have been acknowledged by a policy."""
        if self.halts and self.key_of[entry_id] is not None:
            return False
        is_fatal = entry_id in self.fatal and (self.has_dead or self.deliveries_max > 0)
        is_fatal |= entry_id in self.fatal and self.halts
        return is_fatal or 0 < self.deliveries_max <= self.handed[entry_id]

    # -- judging -----------------------------------------------------------------------------------

    def _is_owned(self, entry_id: int) -> bool:
        seen = self.pending.get(entry_id)
        return seen is not None and seen.consumer is not None and entry_id not in self.forgotten

    def _others(self, entry_id: int) -> list[int]:
        """The others of its key that are there."""
        key = self.key_of.get(entry_id)
        if key is None:
            return []
        return [
            each
            for each, other in self.key_of.items()
            if other == key
            and each != entry_id
            and (self._is_owned(each) or (each in self.live and self._is_there(each)))
        ]

    def _is_there(self, entry_id: int) -> bool:
        return entry_id in self.pending or entry_id > self.last

    def _judge(self, given: Sequence[int]) -> None:
        """What somebody was given just now."""
        for entry_id in given:
            for other in self._others(entry_id):
                require(not self._is_owned(other), "one", (entry_id, other))
                is_before = other < entry_id and other not in self.done
                if self.is_disturbed:  # what is pending goes before what is to be delivered again
                    is_before = is_before and other in self.pending
                require(not is_before, "order", (entry_id, other))

    def _is_due(self, entry_id: int) -> bool:
        seen = self.pending[entry_id]
        if not self.backoff or not seen.delivery_ms:
            return True
        return seen.delivery_ms + BACKOFF_MS <= self.server.clock.us // 1000

    def _is_poison(self, seen: Seen) -> bool:
        return self.halts and seen.consumer is None and seen.count == MAX_DELIVERIES

    def _heads(self, *, knows_ghosts: bool = False) -> Iterable[tuple[int, Seen]]:
        """What is pending without a consumer, exists, and waits for no other one."""
        for entry_id, seen in self.pending.items():
            if seen.consumer is None and entry_id in self.live:
                others = [each for each in self._others(entry_id) if each in self.pending]
                others += [] if knows_ghosts else self._delayed_ghosts(entry_id)
                if not any(self._is_owned(each) or each < entry_id for each in others):
                    yield entry_id, seen

    def _delayed_ghosts(self, entry_id: int) -> list[int]:
        """Deleted entries of its key whose backoff is not over: that they are gone is seen then."""
        return [
            each
            for each, seen in self.pending.items()
            if self.key_of[each] == self.key_of[entry_id] is not None
            and (seen.consumer is None and each not in self.live and not self._is_due(each))
        ]

    def _halted(self, *, knows_ghosts: bool = False) -> set[tuple[str, int]]:
        return {
            (key, entry_id)
            for entry_id, seen in self._heads(knows_ghosts=knows_ghosts)
            if self._is_poison(seen) and (key := self.key_of.get(entry_id)) is not None
        }

    def _listed(self) -> list[tuple[str, int]]:
        rows = [
            dict(zip(row[::2], row[1::2], strict=True))
            for row in self.do("AB.SKIP", "LIST", self.name, "g")
        ]
        return [(row[b"value"].decode(), int(row[b"id"].split(b"-")[0])) for row in rows]

    def _nothing_left(self, consumer: str | None, *, got_some: bool = False) -> None:
        """A reader got less than it wanted: there is nothing that it could have had."""
        if got_some and self.is_disturbed:
            return  # what was delivered again made room
        owned = [e for e in self._owned() if self.pending[e].consumer == (consumer or "").encode()]
        if self.room and consumer and len(owned) >= self.room:
            return
        for entry_id, seen in self._heads():
            is_halted = self._is_poison(seen) and self.key_of.get(entry_id) is not None
            if is_halted or not self._is_due(entry_id) or entry_id > self.last:
                continue
            require(False, "waits", f"{entry_id} could be handed out")
        first = min((each for each in self.live if each > self.last), default=None)
        if first is not None:
            others = [each for each in self._others(first) if each in self.pending]
            others += self._delayed_ghosts(first)
            others += [first] if self._is_owned(first) else []  # the group was set back behind it
            is_first = not others and not got_some
            require(not is_first, "waits", f"{first} is new, and waits for nobody")
            waiting = sum(seen.consumer is None for seen in self.pending.values())
            is_full = waiting >= self.waiting_max
            is_full |= got_some or self.is_disturbed
            require(is_full, "waits", f"{first} could wait in its line")

    # -- the end -----------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Everything is handed out in the end."""
        if self.reader is not None:
            self.server.region.close_session(self.reader[0])
            self.reader = None
        for _ in range(4 * len(self.key_of) + 10):
            self.skip()
            self.observe()
            for entry_id in self._owned():
                self.do("XACK", self.name, "g", f"{entry_id}-0")
                self.done.add(entry_id)
            if self.backoff or self.has_lease:
                self.server.advance(BACKOFF_MS + 100)
            self.read()
            self._look()
            if not self.pending and self.last >= max(self.live, default=0):
                break
        self.observe()
        left = [each for each in self.live if self._is_there(each) and each not in self.done]
        require(not left, "drained", left)
        if not self.is_disturbed:
            for key, ids in self.firsts.items():
                require(ids == sorted(ids), "drained", (key, ids))


_ACTIONS: Final = (
    ("add", 30), ("read", 20), ("wait", 4), ("claim", 5), ("acknowledge", 16), ("give_back", 8),
    ("delete", 2), ("trim", 1), ("pass_time", 4), ("leave", 1), ("skip", 2), ("redrive", 2),
    ("start_again", 2), ("move", 1),
)  # fmt: skip
_DISTURBING: Final = (("go_back", 2), ("force", 4))
_RARE: Final = (("drop", 4), ("limit", 2), ("pass_over", 1))


def failures(seeds: Iterable[int]) -> tuple[dict[int, str], Counter[str]]:
    """What goes wrong in the runs of these seeds, and what they come to."""
    failed: dict[int, str] = {}
    reached: Counter[str] = Counter()
    for seed in seeds:
        run = OrderedRun(seed)
        try:
            run.run()
        except Exception as problem:
            failed[seed] = f"{type(problem).__name__}: {problem}"
        reached += run.reached
    return failed, reached


def seed_that_finds(build_in: Callable[[pytest.MonkeyPatch], None], seeds: Iterable[int]) -> int:
    """The first of these seeds whose run shows a mistake, and holds without it; 0 without."""
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch:
            build_in(patch)
            is_found = bool(failures([seed])[0])
        if is_found and not failures([seed])[0]:
            return seed
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run many histories, and print what failed and what was reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--mistakes", action="store_true", help="find the seeded mistakes instead")
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.first, chosen.first + chosen.histories)
    if chosen.mistakes:
        found = {name: seed_that_finds(patch, seeds) for name, patch in MISTAKES.items()}
        sys.stdout.writelines(f"{seed:6} {name}\n" for name, seed in found.items())
        return int(not all(found.values()))
    gc.disable()
    failed: dict[int, str] = {}
    reached: Counter[str] = Counter()
    started = time.process_time()
    for seed in seeds:
        some, more = failures([seed])
        failed |= some
        reached += more
        if seed % 100 == 0:
            gc.collect()
        sys.stdout.writelines(f"seed {number}: {what}\n" for number, what in some.items())
    sys.stdout.writelines(f"{times:8} {name}\n" for name, times in sorted(reached.items()))
    spent = time.process_time() - started
    sys.stdout.write(f"{len(seeds)} histories, {len(failed)} failed, {spent:.0f} s of CPU\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
