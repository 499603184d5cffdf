"""Random command sequences that Redis 7.0 understands, valid and not, from a seed.

A run is a sequence of *episodes*. An episode starts on an empty server with its own
settings, so it stands alone: it can be sent in one pipeline, repeated, and shrunk. Few keys,
groups, consumers and IDs are used, so that commands keep meeting each other's effects.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

EPISODE_COMMANDS = 400
FUTURE_MS = 88888888888888  # IDs made from the clock lie below for centuries: `*` is exact

# Remarks on commands that the comparison acts on; it never changes what is sent.
AFTER_USE = "after-use"  # CREATECONSUMER after a command that may or may not have created it
PROBE_BEFORE = "probe-before"  # XINFO STREAM FULL, then one XREADGROUP, then XINFO again
PROBE_READ = "probe-read"
PROBE_AFTER = "probe-after"
FULL_FIRST = "full-first"  # XINFO STREAM FULL, then XINFO GROUPS of the same key
GROUPS_SECOND = "groups-second"


class Command(NamedTuple):
    """A command's arguments, and a remark for the comparison."""

    args: tuple[bytes, ...]
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Episode:
    """Commands for an empty server."""

    seed: int
    number: int
    resp: int
    config: tuple[tuple[bytes, bytes], ...]
    exact_counters: bool  # nothing in it on which versions count entries-read differently
    commands: tuple[Command, ...]

    def prelude(self) -> list[tuple[bytes, ...]]:
        """What makes the server empty and sets it up; these replies are not compared."""
        return [
            (b"DISCARD",),
            (b"UNWATCH",),
            (b"SELECT", b"0"),
            (b"FLUSHALL",),
            *((b"CONFIG", b"SET", name, value) for name, value in self.config),
        ]


KEYS = (*(b"s",) * 8, *(b"t",) * 5, *(b"u",) * 2, b"k \x00\xff\r\n", b"")
PLAIN_KEYS = (b"string", b"list", b"set")
MISSING_KEY = b"missing"
GROUPS = (b"g", b"g", b"g", b"h", b"h", b"\xff\n'", b"")
CONSUMERS = (b"c1", b"c1", b"c2", b"c2", b"c3", b"\x00c", b"")
NAMES = (b"f", b"field", b"v", b"1", b"", b"\x00\xff\r\n", b"a longer value than most are")
ODD_INTEGERS = (
    *(b"0", b"-1", b"01", b"+1", b"-0", b"", b"abc", b" 1", b"1 ", b"1.5", b"0x10", b"1e2"),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808"),
    *(b"-9223372036854775809", b"18446744073709551615", b"\xff", b"99999999999999999999999"),
)
ODD_IDS = (
    *(b"", b"-", b"+", b"$", b">", b"*", b"0", b"0-0", b"0-1", b"0-*", b"(", b"(-", b"(+"),
    *(b"(0-0", b"(0", b"-7", b"7-", b"7-x", b"7-1-2", b"**", b"*-1", b"7-*", b"x", b"1-01"),
    *(b"07-01", b"7 ", b"(5-", b"((5", b"1" * 128, b"0" * 127 + b"1", b"18446744073709551615"),
    *(b"18446744073709551615-18446744073709551614", b"18446744073709551616-0"),
    *(b"0-18446744073709551615", b"0-18446744073709551616", b"(18446744073709551615"),
    *(b"(18446744073709551615-18446744073709551615", b"-1-1", b"1--1", b"1,1", b"1_1"),
)
LAST_ID = b"18446744073709551615-18446744073709551615"
WORDS = (
    *(b"COUNT", b"BLOCK", b"NOACK", b"STREAMS", b"GROUP", b"MAXLEN", b"MINID", b"LIMIT"),
    *(b"NOMKSTREAM", b"JUSTID", b"FORCE", b"IDLE", b"TIME", b"RETRYCOUNT", b"LASTID", b"FULL"),
    *(b"MKSTREAM", b"ENTRIESREAD", b"ENTRIESADDED", b"MAXDELETEDID", b"=", b"~", b"BAD"),
    *(b"REPLACE", b"DB", b"NX", b"XX", b"GT", b"LT"),
)
# The only BLOCK times that may be sent: wrong ones, and one that ends at once.
BLOCK_TIMES = frozenset([b"1", b"-1", b"abc", b"", b"9223372036854775808", b"1.5", b"01"])


class Generator:
    """All episodes of one seed."""

    def __init__(self, seed: int, commands_per_episode: int = EPISODE_COMMANDS) -> None:
        """Equal seeds and sizes give equal episodes."""
        self.seed = seed
        self.size = commands_per_episode
        self.random = random.Random(seed)

    def episodes(self) -> Iterator[Episode]:
        """Without end."""
        number = 0
        while True:
            yield self.episode(number)
            number += 1

    def episode(self, number: int) -> Episode:
        """The next episode."""
        draw = self.random
        small_nodes = draw.random() < 0.6
        config = [
            (b"stream-node-max-entries", b"%d" % (draw.randint(2, 8) if small_nodes else 100)),
            # Where nodes end by size is an implementation detail; by number it is not.
            (b"stream-node-max-bytes", b"0"),
        ]
        script = _Script(draw, future=draw.random() < 0.4, exact_counters=draw.random() < 0.3)
        script.write(self.size)
        return Episode(
            seed=self.seed,
            number=number,
            resp=draw.choice((2, 3)),
            config=tuple(config),
            exact_counters=script.exact_counters,
            commands=tuple(script.commands),
        )


@dataclass(slots=True)
class _Script:
    """Writes the commands of one episode."""

    random: random.Random
    future: bool
    exact_counters: bool
    commands: list[Command] = field(default_factory=list)
    base: int = 0
    clock: int = 3  # grows with each XADD; IDs are derived from it
    # What the streams probably hold: IDs by key, and (key, group). Only to hit more often.
    recent: dict[bytes, list[bytes]] = field(default_factory=dict)
    groups: list[tuple[bytes, bytes]] = field(default_factory=list)
    deadlines: set[int] = field(default_factory=set)
    in_multi: bool = False

    def write(self, size: int) -> None:
        """Fill `commands` with at least `size` commands."""
        self.base = FUTURE_MS if self.future else 0
        table = [entry for entry in _TABLE if not (self.exact_counters and entry.moves_counters)]
        makers = [entry.make for entry in table]
        weights = [entry.weight for entry in table]
        self.populate()
        while len(self.commands) < size:
            for make in self.random.choices(makers, weights, k=16):
                make(self)

    # --- pieces -------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, values: tuple[bytes, ...]) -> bytes:
        return values[int(self.random.random() * len(values))]

    def key(self) -> bytes:
        """Mostly a stream."""
        roll = self.random.random()
        if roll < 0.95:
            return self.pick(KEYS)
        return self.pick(PLAIN_KEYS) if roll < 0.98 else MISSING_KEY

    def group(self) -> bytes:
        return self.pick(GROUPS) if not self.chance(0.03) else b"nogroup"

    def place(self) -> tuple[bytes, bytes]:
        """A key and a group, mostly one that it has."""
        if self.groups and self.chance(0.9):
            return self.random.choice(self.groups)
        return self.key(), self.group()

    def consumer(self) -> bytes:
        return self.pick(CONSUMERS)

    def some_id(self, key: bytes) -> bytes:
        """A complete or incomplete ID, mostly one that was added to the key lately."""
        roll = self.random.random()
        recent = self.recent.get(key)
        if recent and roll < 0.8:
            return self.random.choice(recent)
        ms = self.base + self.random.randint(0, self.clock // 3 + 3)
        if roll < 0.87:
            return b"%d" % ms
        return b"%d-%d" % (ms, self.random.randint(0, 3))

    def id(self, key: bytes, odd: float = 0.04) -> bytes:
        return self.pick(ODD_IDS) if self.chance(odd) else self.some_id(key)

    def ids(self, key: bytes, most: int = 4, odd: float = 0.02) -> list[bytes]:
        return [self.id(key, odd) for _ in range(self.random.randint(1, most))]

    def range_bound(self, key: bytes, low: bool) -> bytes:
        roll = self.random.random()
        if roll < 0.35:
            return b"-" if low else b"+"
        if roll < 0.85:
            return self.id(key)
        if roll < 0.97:
            return b"(" + self.some_id(key)
        return b"+" if low else b"-"

    def number(self, low: int, high: int, odd: float = 0.04) -> bytes:
        if self.chance(odd):
            return self.pick(ODD_INTEGERS)
        return b"%d" % self.random.randint(low, high)

    def count(self) -> list[bytes]:
        return [b"COUNT", self.number(0 if self.chance(0.1) else 1, 5)]

    def min_idle(self) -> bytes:
        """Small and huge, never near what passes between two commands."""
        if self.chance(0.05):
            return self.pick(ODD_INTEGERS)
        return self.random.choice((b"0", b"0", b"0", b"500000", b"-5"))

    def fields(self) -> list[bytes]:
        return [self.pick(NAMES) for _ in range(2 * self.random.choice((1, 1, 1, 2, 3)))]

    def next_id(self, key: bytes) -> bytes:
        """An ID above those given before."""
        self.clock += self.random.randint(1, 2)
        new = b"%d-%d" % (self.base + self.clock // 3, self.clock % 3)
        recent = self.recent.setdefault(key, [])
        recent.append(new)
        if len(recent) > 12:
            del recent[0]
        return new

    def forget(self, key: bytes) -> None:
        """The key is probably gone."""
        self.recent.pop(key, None)
        self.groups = [place for place in self.groups if place[0] != key]

    def duplicate(self, source: bytes, target: bytes) -> None:
        """The target is probably a copy of the source now."""
        if source != target:
            groups = [(target, group) for key, group in self.groups if key == source]
            ids = list(self.recent.get(source, ()))
            self.forget(target)
            self.groups += groups
            self.recent[target] = ids

    def add(self, *args: bytes, tag: str = "") -> None:
        """Emit a command, now and then spoiled or oddly spelled."""
        words = list(args)
        roll = self.random.random()
        if roll < 0.03 and not tag:
            # A spoiled XADD might trim, a spoiled XGROUP might set the count.
            if not (self.exact_counters and words[0] in (b"XADD", b"XGROUP", b"XCLAIM")):
                self.spoil(words)
        elif roll < 0.08:
            words[0] = words[0].lower() if roll < 0.06 else words[0].title()
        if not _may_block(words):
            self.commands.append(Command(tuple(words), tag))

    def spoil(self, words: list[bytes]) -> None:
        """Make a command probably wrong."""
        at = self.random.randrange(1, len(words)) if len(words) > 1 else 0
        roll = self.random.randrange(8)
        if at == 0:
            words.append(self.pick(WORDS))
        elif roll == 0:
            del words[at]
        elif roll == 1:
            words.insert(at, words[at])
        elif roll == 2:
            other = self.random.randrange(1, len(words))
            words[at], words[other] = words[other], words[at]
        elif roll == 3:
            words.insert(at, self.pick(WORDS))
        elif roll == 4:
            words[at] = self.pick(ODD_IDS)
        elif roll == 5:
            words.append(self.pick(WORDS))
        elif roll == 6:
            del words[at:]
        else:
            words[at] = words[at].swapcase()

    # --- writing ------------------------------------------------------------------

    def populate(self) -> None:
        """Streams with entries and groups with pending entries to begin with."""
        for key in (b"s", b"t"):
            for _ in range(self.random.randint(3, 12)):
                self.add(b"XADD", key, self.next_id(key), *self.fields())
            for group in (b"g", b"h"):
                self.create_group(key, group, b"0")
                self.use(
                    *(b"XREADGROUP", b"GROUP", group, self.consumer()),
                    *(b"COUNT", b"%d" % self.random.randint(1, 6), b"STREAMS", key, b">"),
                )

    def trimming(self, key: bytes) -> list[bytes]:
        """MAXLEN or MINID with what belongs to it."""
        if self.chance(0.6):
            words = [b"MAXLEN"]
            threshold = self.number(0, 12)
        else:
            words = [b"MINID"]
            threshold = self.id(key)
        roll = self.random.random()
        if roll < 0.45:
            words.append(b"~")
        elif roll < 0.65:
            words.append(b"=")
        words.append(threshold)
        if self.chance(0.4 if b"~" in words else 0.03):
            words += [b"LIMIT", self.number(0, 20)]
        return words

    def xadd(self) -> None:
        key = self.key()
        words = [b"XADD", key]
        roll = self.random.random()
        if roll < 0.06:
            words.append(b"NOMKSTREAM")
        if self.chance(0.1) and not self.exact_counters:
            words += self.trimming(key)
        if roll > 0.95:
            words.append(b"NOMKSTREAM")
        roll = self.random.random()
        if roll < (0.35 if self.future else 0.01):
            words.append(b"*")
        elif roll < 0.40:
            self.clock += 3
            words.append(b"%d-*" % (self.base + self.clock // 3))
        elif roll < 0.45:
            self.clock += 3
            words.append(b"%d" % (self.base + self.clock // 3))
        elif roll < 0.49:
            words.append(self.some_id(key))
        elif roll < 0.52:
            words.append(self.pick(ODD_IDS))
        elif roll < 0.521:
            words.append(LAST_ID)
        else:
            words.append(self.next_id(key))
        words += self.fields()
        if self.chance(0.01):
            words.pop()
        self.add(*words)

    def xtrim(self) -> None:
        key = self.key()
        words = self.trimming(key)
        if self.chance(0.03):
            words += self.trimming(key)
        self.add(b"XTRIM", key, *words)

    def xdel(self) -> None:
        key = self.key()
        self.add(b"XDEL", key, *self.ids(key, 2))

    def xsetid(self) -> None:
        key = self.key()
        words = [b"XSETID", key]
        if self.chance(0.9):
            words.append(self.next_id(key) if self.chance(0.5) else self.high_id())
        else:
            words.append(self.id(key))
        if self.chance(0.4):
            words += [b"ENTRIESADDED", self.number(0, 40, odd=0.03)]
            if words[-1] == b"9223372036854775807":  # counters would wrap around in 7.0
                words[-1] = b"1000000"
        if self.chance(0.3):
            words += [b"MAXDELETEDID", self.id(key, 0.02) if self.chance(0.8) else b"0-0"]
        self.add(*words)

    def high_id(self) -> bytes:
        return b"%d-%d" % (self.base + self.clock // 3, 2 + self.random.randint(0, 2))

    # --- reading ------------------------------------------------------------------

    def xlen(self) -> None:
        self.add(b"XLEN", self.key())

    def xrange(self) -> None:
        key = self.key()
        words = [b"XRANGE", key, self.range_bound(key, True), self.range_bound(key, False)]
        if self.chance(0.4):
            words += self.count()
        self.add(*words)

    def xrevrange(self) -> None:
        key = self.key()
        words = [b"XREVRANGE", key, self.range_bound(key, False), self.range_bound(key, True)]
        if self.chance(0.4):
            words += self.count()
        self.add(*words)

    def read_options(self) -> list[bytes]:
        words: list[bytes] = []
        if self.chance(0.6):
            words += self.count()
        if self.chance(0.03):
            words += [b"BLOCK", self.random.choice((b"1", b"1", b"-1", b"abc", b"1.5"))]
        return words

    def xread(self) -> None:
        keys = [self.key() for _ in range(self.random.choice((1, 1, 1, 2, 3)))]
        ids: list[bytes] = []
        for key in keys:
            roll = self.random.random()
            ids.append(b"0" if roll < 0.2 else b"$" if roll < 0.25 else self.id(key))
        if self.chance(0.03):
            ids[-1] = self.pick((b"+", b">", b"-"))
        if self.chance(0.02):
            ids.pop()
        self.add(b"XREAD", *self.read_options(), b"STREAMS", *keys, *ids)

    def xreadgroup(self) -> None:
        (first, group), consumer = self.place(), self.consumer()
        keys = [first]
        if self.chance(0.2):
            others = [key for key, name in self.groups if name == group]
            keys.append(self.random.choice(others or [self.key()]))
        ids: list[bytes] = []
        for key in keys:
            roll = self.random.random()
            ids.append(b">" if roll < 0.7 else b"0" if roll < 0.8 else self.id(key))
        if self.chance(0.02):
            ids[-1] = self.pick((b"$", b"+", b"-"))
        options = self.read_options()
        if self.chance(0.15):
            options.append(b"NOACK")
        if self.chance(0.01):
            ids.pop()
        named = [b"GROUP", group, consumer]
        head = [*named, *options] if self.chance(0.9) else [*options, *named]
        if len(keys) == 1 and ids == [b">"] and not self.in_multi and self.chance(0.3):
            look = (b"XINFO", b"STREAM", keys[0], b"FULL", b"COUNT", b"1")
            self.add(*look, tag=PROBE_BEFORE)
            self.add(b"XREADGROUP", *head, b"STREAMS", *keys, *ids, tag=PROBE_READ)
            self.create_consumer(keys[0], group, consumer, AFTER_USE)
            self.add(*look, tag=PROBE_AFTER)
        else:
            self.use(b"XREADGROUP", *head, b"STREAMS", *keys, *ids)

    # --- groups -------------------------------------------------------------------

    def create_group(self, key: bytes, group: bytes, start: bytes) -> None:
        self.add(b"XGROUP", b"CREATE", key, group, start)
        self.groups.append((key, group))

    def create_consumer(self, key: bytes, group: bytes, consumer: bytes, tag: str) -> None:
        self.add(b"XGROUP", b"CREATECONSUMER", key, group, consumer, tag=tag)

    def use(self, *args: bytes) -> None:
        """Emit a command that may create a consumer, then create it in any case."""
        before = len(self.commands)
        self.add(*args)
        for command in self.commands[before:]:
            for key, group, consumer in consumers_used(command.args):
                self.create_consumer(key, group, consumer, AFTER_USE)

    def group_start(self, key: bytes) -> bytes:
        roll = self.random.random()
        if roll < 0.4:
            return b"0"
        return b"$" if roll < 0.6 else self.id(key)

    def entries_read(self) -> list[bytes]:
        if self.exact_counters or not self.chance(0.25):
            return []
        return [b"ENTRIESREAD", self.number(-1, 12)]

    def xgroup_create(self) -> None:
        key, group = self.key(), self.group()
        words = [b"XGROUP", b"CREATE", key, group, self.group_start(key)]
        if self.chance(0.5):
            words.append(b"MKSTREAM")
        self.add(*words, *self.entries_read())
        if (key, group) not in self.groups:
            self.groups.append((key, group))

    def xgroup_setid(self) -> None:
        key, group = self.place()
        words = [b"XGROUP", b"SETID", key, group, self.group_start(key)]
        self.add(*words, *self.entries_read())

    def xgroup_destroy(self) -> None:
        place = self.place()
        self.add(b"XGROUP", b"DESTROY", *place)
        self.groups = [other for other in self.groups if other != place]

    def xgroup_createconsumer(self) -> None:
        self.create_consumer(*self.place(), self.consumer(), "")

    def xgroup_delconsumer(self) -> None:
        self.add(b"XGROUP", b"DELCONSUMER", *self.place(), self.consumer())

    def xgroup_wrong(self) -> None:
        sub = self.pick((b"FOO", b"", b"CREAT", b"create ", b"\xff", b"SETIDS"))
        self.add(b"XGROUP", sub, *[self.pick(NAMES) for _ in range(self.random.randint(0, 4))])

    # --- pending entries ----------------------------------------------------------

    def xack(self) -> None:
        key, group = self.place()
        self.add(b"XACK", key, group, *self.ids(key))

    def xpending(self) -> None:
        key, group = self.place()
        words = [b"XPENDING", key, group]
        if self.chance(0.7):
            if self.chance(0.3):
                words += [b"IDLE", self.min_idle()]
            low, high = self.range_bound(key, True), self.range_bound(key, False)
            words += [low, high, self.number(0, 8)]
            if self.chance(0.4):
                words.append(self.consumer())
        self.add(*words)

    def xclaim(self) -> None:
        (key, group), consumer = self.place(), self.consumer()
        words = [b"XCLAIM", key, group, consumer, self.min_idle(), *self.ids(key, 5)]
        options: list[list[bytes]] = []
        if self.chance(0.15):
            options.append([b"IDLE", self.number(0, 3) if self.chance(0.3) else b"1000000"])
        if self.chance(0.1):
            options.append([b"TIME", self.number(1, 9)])
        if self.chance(0.2):
            # A delivery count beyond 2^63 shows as a negative number in 7.0.
            options.append([b"RETRYCOUNT", self.pick((b"0", b"1", b"7", b"-1", b"abc", b""))])
        if self.chance(0.25):
            options.append([b"FORCE"])
        if self.chance(0.3):
            options.append([b"JUSTID"])
        if self.chance(0.08) and not self.exact_counters:
            options.append([b"LASTID", self.id(key)])
        self.random.shuffle(options)
        for option in options:
            words += option
        self.use(*words)

    def xautoclaim(self) -> None:
        (key, group), consumer = self.place(), self.consumer()
        start = b"0" if self.chance(0.6) else self.range_bound(key, True)
        words = [b"XAUTOCLAIM", key, group, consumer, self.min_idle(), start]
        if self.chance(0.6):
            words += self.count()
        if self.chance(0.3):
            words.append(b"JUSTID")
        self.use(*words)

    # --- looking ------------------------------------------------------------------

    def xinfo_stream(self) -> None:
        self.add(b"XINFO", b"STREAM", self.key())

    def xinfo_full(self) -> None:
        words = [b"XINFO", b"STREAM", self.key(), b"FULL"]
        if self.chance(0.5):
            words += self.count()
        self.add(*words)

    def xinfo_groups(self) -> None:
        key = self.key()
        if self.in_multi:
            self.add(b"XINFO", b"GROUPS", key)
        else:
            self.add(b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"1", tag=FULL_FIRST)
            self.add(b"XINFO", b"GROUPS", key, tag=GROUPS_SECOND)

    def xinfo_consumers(self) -> None:
        self.add(b"XINFO", b"CONSUMERS", *self.place())

    # --- any key ------------------------------------------------------------------

    def delete(self) -> None:
        name = self.pick((b"DEL", b"UNLINK"))
        keys = [self.key() for _ in range(self.random.choice((1, 1, 2)))]
        self.add(name, *keys)
        for key in keys:
            self.forget(key)

    def look_at_keys(self) -> None:
        name = self.pick((b"EXISTS", b"TOUCH", b"TYPE", b"OBJECT", b"DBSIZE", b"SCAN", b"TYPE"))
        if name == b"DBSIZE":
            self.add(name)
        elif name == b"SCAN":
            words = [name, b"0", b"COUNT", b"1000"]
            if self.chance(0.4):
                words += [b"TYPE", self.pick((b"stream", b"STREAM", b"string", b"list"))]
            if self.chance(0.4):
                words += [b"MATCH", self.pick((b"*", b"s*", b"[st]", b"?", b"k*", b"\\s"))]
            self.commands.append(Command(tuple(words)))
        elif name == b"OBJECT":
            self.add(name, b"ENCODING", self.key())
        elif name == b"TYPE":
            self.add(name, self.key())
        else:
            self.add(name, *[self.key() for _ in range(self.random.randint(1, 4))])

    def rename(self) -> None:
        name, source, target = self.pick((b"RENAME", b"RENAMENX")), self.key(), self.key()
        self.add(name, source, target)
        if name == b"RENAME":
            self.duplicate(source, target)
            if source != target:
                self.forget(source)

    def copy(self) -> None:
        source, target = self.key(), self.key()
        words = [b"COPY", source, target]
        if self.chance(0.4):
            words += [b"DB", self.pick((b"0", b"1", b"1", b"16", b"-1", b"x"))]
        if self.chance(0.6):
            words.append(b"REPLACE")
            if b"DB" not in words:
                self.duplicate(source, target)
        self.add(*words)

    def move(self) -> None:
        self.add(b"MOVE", self.key(), self.pick((b"0", b"1", b"1", b"1", b"99", b"abc")))

    def select(self) -> None:
        self.add(b"SELECT", b"1" if self.chance(0.5) else self.pick((b"0", b"16", b"-1", b"x")))
        for _ in range(self.random.randint(0, 3)):
            self.random.choice((_Script.xadd, _Script.xgroup_create, _Script.copy))(self)
        self.commands.append(Command((b"SELECT", b"0")))

    def swapdb(self) -> None:
        self.add(b"SWAPDB", b"0", self.pick((b"1", b"1", b"0", b"16", b"x")))
        self.groups.clear()
        self.populate()

    def flush(self) -> None:
        self.add(self.pick((b"FLUSHDB", b"FLUSHDB", b"FLUSHALL")))
        self.groups.clear()
        self.populate()

    def expire(self) -> None:
        key = self.key()
        now = 1_700_000_000  # far deadlines are far from this too
        # No two deadlines near each other: GT and LT must not depend on a millisecond.
        step = self.random.randrange(1, 10**6)
        while step in self.deadlines:
            step += 1
        self.deadlines.add(step)
        name, value = self.random.choice(
            (
                (b"EXPIRE", 100_000 + 1000 * step),
                (b"PEXPIRE", (100_000 + 1000 * step) * 1000),
                (b"EXPIREAT", now + 3_000_000_000 + step),
                (b"PEXPIREAT", (now + 3_000_000_000 + step) * 1000 + 5),
            )
        )
        words = [name, key, b"%d" % value]
        if self.chance(0.06):
            words[2] = self.pick((b"0", b"-1", b"abc", b"9223372036854775807", b"01"))
        if self.chance(0.4):
            words.append(self.pick((b"NX", b"XX", b"GT", b"LT", b"BAD")))
        if self.chance(0.05):
            words.append(self.pick((b"NX", b"XX", b"GT", b"LT")))
        self.add(*words)

    def deadline(self) -> None:
        names = (b"TTL", b"PTTL", b"EXPIRETIME", b"PEXPIRETIME", b"PERSIST")
        self.add(self.pick(names), self.key())

    def plain_values(self) -> None:
        roll = self.random.random()
        key = self.pick(PLAIN_KEYS) if self.chance(0.7) else self.key()
        if roll < 0.3:
            self.add(b"SET", key if self.chance(0.5) else b"string", self.pick(NAMES))
        elif roll < 0.55:
            self.add(b"GET", key)
        elif roll < 0.75:
            self.add(b"LPUSH", key, self.pick(NAMES))
        else:
            self.add(b"SADD", key, self.pick(NAMES))

    def unknown(self) -> None:
        name = self.pick((b"XADDD", b"FOO", b"", b"x", b"XNOSUCH", b"\xffX"))
        self.add(name, *[self.pick(NAMES) for _ in range(self.random.randint(0, 3))])

    # --- transactions -------------------------------------------------------------

    def transaction(self) -> None:
        if self.in_multi:
            return
        if self.chance(0.35):
            self.add(b"WATCH", self.key(), self.key())
            if self.chance(0.6):
                self.random.choice(_INSIDE)(self)
        if self.chance(0.05):
            self.add(b"UNWATCH")
        self.add(b"MULTI")
        self.in_multi = True
        for _ in range(self.random.randint(0, 5)):
            self.random.choice(_INSIDE)(self)
        if self.chance(0.03):
            self.add(self.pick((b"MULTI", b"WATCH")), *([b"s"] if self.chance(0.5) else []))
        self.in_multi = False
        self.commands.append(Command((b"DISCARD" if self.chance(0.08) else b"EXEC",)))

    def stray(self) -> None:
        self.add(self.pick((b"EXEC", b"DISCARD", b"UNWATCH", b"PING", b"ECHO")))


def consumers_used(args: tuple[bytes, ...]) -> list[tuple[bytes, bytes, bytes]]:
    """Key, group and consumer of each consumer that the command may create."""
    if args[0].upper() in (b"XCLAIM", b"XAUTOCLAIM"):
        return [(args[1], args[2], args[3])] if len(args) > 3 else []
    if args[0].upper() != b"XREADGROUP":
        return []
    who: tuple[bytes, ...] = ()
    at = 1
    while at < len(args):
        word = args[at].upper()
        if word == b"STREAMS":
            keys = args[at + 1 : at + 1 + (len(args) - at - 1) // 2]
            return [(key, *who) for key in dict.fromkeys(keys)] if len(who) == 2 else []
        if word == b"GROUP":
            who = args[at + 1 : at + 3]
        at += {b"GROUP": 3, b"COUNT": 2, b"BLOCK": 2}.get(word, 1)
    return []


def consumers_are_settled(commands: Sequence[Command]) -> bool:
    """Whether each command that may create consumers is followed by their creation.

    Where it is not, versions differ for a listed reason; shrinking must not go there.
    """
    open_ones: set[tuple[bytes, ...]] = set()
    for command in commands:
        if command.tag == AFTER_USE:
            open_ones.discard(command.args[2:5])
        elif open_ones:
            return False
        else:
            open_ones.update(consumers_used(command.args))
    return True


def _may_block(words: list[bytes]) -> bool:
    """Whether a server might wait for more than a moment."""
    if words[0].upper() not in (b"XREAD", b"XREADGROUP"):
        return False
    for at, word in enumerate(words):
        if word.upper() == b"BLOCK" and (words[at + 1 :] or [b""])[0] not in BLOCK_TIMES:
            return True
    return False


class _Entry(NamedTuple):
    weight: float
    make: Callable[[_Script], None]
    moves_counters: bool = False  # versions differ in what it does to entries-read and lag


_TABLE = (
    _Entry(26, _Script.xadd),
    _Entry(3, _Script.xtrim, moves_counters=True),
    _Entry(4, _Script.xdel, moves_counters=True),
    _Entry(2, _Script.xsetid, moves_counters=True),
    _Entry(1.5, _Script.xlen),
    _Entry(4, _Script.xrange),
    _Entry(4, _Script.xrevrange),
    _Entry(5, _Script.xread),
    _Entry(12, _Script.xreadgroup),
    _Entry(4, _Script.xgroup_create),
    _Entry(2, _Script.xgroup_setid),
    _Entry(0.7, _Script.xgroup_destroy),
    _Entry(1, _Script.xgroup_createconsumer),
    _Entry(1, _Script.xgroup_delconsumer),
    _Entry(0.3, _Script.xgroup_wrong),
    _Entry(4, _Script.xack),
    _Entry(5, _Script.xpending),
    _Entry(5, _Script.xclaim),
    _Entry(4, _Script.xautoclaim),
    _Entry(2, _Script.xinfo_stream),
    _Entry(3, _Script.xinfo_full),
    _Entry(2, _Script.xinfo_groups),
    _Entry(2, _Script.xinfo_consumers),
    _Entry(0.6, _Script.delete),
    _Entry(2, _Script.look_at_keys),
    _Entry(0.7, _Script.rename),
    _Entry(1, _Script.copy),
    _Entry(0.5, _Script.move),
    _Entry(0.5, _Script.select),
    _Entry(0.3, _Script.swapdb),
    _Entry(0.15, _Script.flush),
    _Entry(1, _Script.expire),
    _Entry(1, _Script.deadline),
    _Entry(1, _Script.plain_values),
    _Entry(0.3, _Script.unknown),
    _Entry(2, _Script.transaction),
    _Entry(0.4, _Script.stray),
)
# What may stand in a transaction: nothing that the exact counting would have to leave out.
_INSIDE = (
    *(_Script.xadd, _Script.xadd, _Script.xadd, _Script.xreadgroup, _Script.xreadgroup),
    *(_Script.xread, _Script.xack, _Script.xclaim, _Script.xautoclaim, _Script.xpending),
    *(_Script.xgroup_create, _Script.xgroup_setid, _Script.xgroup_destroy, _Script.xrange),
    *(_Script.xinfo_stream, _Script.xinfo_full, _Script.xinfo_consumers, _Script.delete),
    *(_Script.rename, _Script.copy, _Script.expire, _Script.plain_values, _Script.xlen),
)
