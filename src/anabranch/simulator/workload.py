"""The commands of clients: all commands on streams, in a different mix in every run.

Commands name keys, groups and entries that exist in the region; otherwise most would do nothing.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from anabranch.simulator import looking
from anabranch.simulator.process import Process
from anabranch.stream.groups.group import Group
from anabranch.stream.stream import Stream

MOVING_SHARE: Final = 0.2
"""The share of runs in which streams are copied, dumped and restored continuously."""

SMALL_SHARE: Final = 0.15
"""The share of runs whose clients use strings, counters, sets and lists, too."""

SMALL_KEYS: Final = (b"s1", b"s2", b"m1", b"l1")
"""The keys of these, under which streams are made now and then."""

MOVED_SHARE: Final = 0.1
"""The share of such commands in these runs."""

Words = list[bytes]
_Maker = Callable[["Workload", Process, bytes], "Words | None"]


def id_text(entry_id: int) -> bytes:
    """An ID as clients write it."""
    return b"%d-%d" % (entry_id >> 64, entry_id & (1 << 64) - 1)


def parsed_id(text: bytes) -> int:
    """The reverse of :func:`id_text`."""
    ms, _, sequence = text.partition(b"-")
    return int(ms) << 64 | int(sequence)


def parsed_entries(reply: Iterable[Any]) -> list[tuple[int, bytes]]:
    """ID and token of the entries of a reply; not of those that are deleted."""
    return [(parsed_id(entry_id), fields[-1]) for entry_id, fields, *_ in reply or () if fields]


def _words(*parts: object) -> Words:
    return [part if isinstance(part, bytes) else str(part).encode() for part in parts]


class Workload:
    """The clients of a run, and what they ask for."""

    def __init__(self, chance: random.Random, moving: random.Random, small: random.Random) -> None:
        """``moving`` are the streams that are copied elsewhere; few runs have any.

        ``small`` are the small values; few runs have some.
        """
        self.chance = chance
        self._moving = moving
        self._small = small
        self.has_small = small.random() < SMALL_SHARE
        self.moves = moving.random() < MOVING_SHARE
        self.payloads: deque[bytes] = deque(maxlen=3)
        """The newest payloads of DUMP in any region."""
        self.keys = [b"k%d" % number for number in range(1, chance.randint(1, 5) + 1)]
        self.groups = [b"g%d" % number for number in range(1, chance.randint(1, 3) + 1)]
        self.mode = chance.choice(["strict", "strict", "strict", "semi-strict", "liberal"])
        self.conflict = chance.choice(["collapse", "collapse", "collapse", "keep"])
        self.retries = 0.2
        """The share of XADD with an idempotent ID that was used before, mostly elsewhere."""
        self.tagged = 0.2
        """The share of other XADD with an idempotent ID."""
        self.sent: deque[Words] = deque(maxlen=20)
        self._tokens = 0
        self._makers = [maker for maker, _ in _MIX]
        self._weights = [weight * chance.choice([0.1, 0.3, 1, 1, 3]) for _, weight in _MIX]
        self.copies = chance.random() < 0.25
        """Whether RENAME and COPY are used: then entries may exist twice."""
        self.expires = chance.random() < 0.4
        for maker in (_rename, _copy):
            if not self.copies:
                self._weights[self._makers.index(maker)] = 0
        for maker in (_expire, _persist):
            if not self.expires:
                self._weights[self._makers.index(maker)] = 0
        self.copies = self.copies or self.moves

    def repeat(self) -> None:
        """Producers repeat many messages, and no client changes the limits of idempotent IDs."""
        self.retries, self.tagged = 0.5, 0.9
        self.copies = self.moves = False
        for maker in (_rename, _copy, _configure, _record):
            self._weights[self._makers.index(maker)] = 0

    def command(self, process: Process) -> Words:
        """The next command of a client in a region."""
        if self.moves and self._moving.random() < MOVED_SHARE:
            return self._move(process)
        if self.has_small and self._small.random() < 0.5:
            return self._of_a_small_value()
        while True:
            (maker,) = self.chance.choices(self._makers, self._weights)
            words = maker(self, process, self.chance.choice(self.keys))
            if words is not None:
                return words

    def _move(self, process: Process) -> Words:
        """COPY, DUMP, or RESTORE of a payload, mostly of another region."""
        moving = self._moving
        streams = looking.streams(process.region.keyspace).items()
        busy = [key for key, stream in streams if _is_busy(stream)]
        key = moving.choice(sorted(busy) or self.keys)
        target = moving.choice(self.keys)
        dice = moving.random()
        if dice < 0.4 or (dice < 0.7 and not self.payloads):
            return _words("DUMP", key)
        if dice < 0.7:
            return _words("RESTORE", target, 0, moving.choice(list(self.payloads)), "REPLACE")
        return _words("COPY", key, target, "REPLACE")

    def _of_a_small_value(self) -> Words:
        """A command on strings, counters, sets and lists, mostly under a name of their own."""
        chance = self._small
        key = chance.choice(SMALL_KEYS)
        own = key if chance.random() < 0.9 else chance.choice(SMALL_KEYS)
        mix = {b"s": _STRING_MIX, b"m": _SET_MIX, b"l": _LIST_MIX}[own[:1]]
        rest = chance.choices(list(mix), list(mix.values()))[0].split()
        words = _words(rest[0], key, *rest[1:])
        return [chance.choice(SMALL_KEYS) if word == b"KEY" else word for word in words]

    def unit(self, process: Process) -> list[Words]:
        """Commands between MULTI and EXEC."""
        made = [
            self.chance.choice(_IN_UNITS)(self, process, self.chance.choice(self.keys))
            for _ in range(self.chance.randint(2, 4))
        ]
        return [words for words in made if words is not None]

    def token(self) -> bytes:
        """A value that no other XADD has."""
        self._tokens += 1
        return b"v%d" % self._tokens

    def stream(self, process: Process, key: bytes) -> Stream | None:
        """A key's stream, unless there is none."""
        return looking.streams(process.region.keyspace).get(key)

    def some_ids(self, process: Process, key: bytes) -> list[bytes]:
        """IDs of a few of a key's entries."""
        stream = self.stream(process, key)
        if stream is None:
            return []
        ids = sorted({entry.entry_id for entry in looking.entries(stream)})
        return [id_text(each) for each in self._few(ids)]

    def _few(self, ids: list[int]) -> list[int]:
        return sorted(self.chance.sample(ids, min(len(ids), self.chance.randint(1, 3))))

    def group(
        self, process: Process, *, pending: bool = False
    ) -> tuple[bytes, bytes, Group] | None:
        """A key and a group that are there."""
        found = [
            (key, name, group)
            for key, stream in sorted(looking.streams(process.region.keyspace).items())
            for name, group in looking.groups(stream)
            if group.pending.count or not pending
        ]
        return self.chance.choice(found) if found else None

    def pending(self, group: Group) -> list[bytes]:
        """Some IDs that are pending: all, the newest, or any."""
        ids = sorted(
            {entry_id for each in group.pending.lists.values() for entry_id in each.entries}
        )
        dice = self.chance.random()
        if dice < 0.4:
            some = ids
        elif dice < 0.6:
            some = ids[len(ids) // 2 :]  # what is before them stays open
        else:
            some = self._few(ids)
        return [id_text(each) for each in some]


def _is_busy(stream: Stream) -> bool:
    """Whether the cursor of some group says little."""
    groups = stream.groups.values()
    return any(each.pending.count or next(each.progress.late(stream.logs), None) for each in groups)


# -- commands -------------------------------------------------------------------------------------


def _add(work: Workload, process: Process, key: bytes) -> Words:
    chance = work.chance
    if work.sent and chance.random() < work.retries:
        return chance.choice(list(work.sent))
    now_ms = process.exchange.wall_ms()
    ms = now_ms + chance.choice([-3, 0, 0, 0, 1, 4])
    given = [f"{ms}-*"] if work.mode == "strict" else [f"{ms}", f"{ms}-{chance.randint(0, 3)}"]
    spec = chance.choice(["*", "*", "*", "*", *given])
    options: Words = []
    if chance.random() < 0.15:
        policy = chance.choice(["", "", "KEEPREF", "DELREF", "ACKED"])
        options += _words(*policy.split(), "MAXLEN", chance.choice("=~"), chance.randint(1, 20))
    if chance.random() < work.tagged:
        options += _words("IDMP", chance.choice("pq"), f"i{chance.randint(1, 150)}")
        words = _words("XADD", key, *options, "*", "f", work.token())
        work.sent.append(words)
        return words
    return _words("XADD", key, *options, spec, "f", work.token())


def _delete_entries(work: Workload, process: Process, key: bytes) -> Words | None:
    ids = work.some_ids(process, key)
    return _words("XDEL", key, *ids) if ids else None


def _delete_entries_how(work: Workload, process: Process, key: bytes) -> Words | None:
    ids = work.some_ids(process, key)
    how = work.chance.choice(["KEEPREF", "DELREF", "ACKED"])
    return _words("XDELEX", key, how, "IDS", len(ids), *ids) if ids else None


def _trim(work: Workload, process: Process, key: bytes) -> Words:
    chance = work.chance
    how = chance.choice(["", "", "KEEPREF", "DELREF", "ACKED"]).split()
    if chance.random() < 0.3:
        return _words("XTRIM", key, "MINID", process.exchange.wall_ms() - 100, *how)
    return _words("XTRIM", key, "MAXLEN", chance.choice("=~"), chance.randint(0, 30), *how)


def _delete(work: Workload, process: Process, key: bytes) -> Words:
    return _words("DEL", key)


def _flush(work: Workload, process: Process, key: bytes) -> Words:
    return _words("FLUSHALL")


def _create(work: Workload, process: Process, key: bytes) -> Words:
    start = work.chance.choice(["0", "0", "$", str(process.exchange.wall_ms() - 50)])
    return _words("XGROUP", "CREATE", key, work.chance.choice(work.groups), start, "MKSTREAM")


def _destroy(work: Workload, process: Process, key: bytes) -> Words | None:
    found = work.group(process)
    return _words("XGROUP", "DESTROY", *found[:2]) if found else None


def _move(work: Workload, process: Process, key: bytes) -> Words | None:
    found = work.group(process)
    start = work.chance.choice(["0", "$", str(process.exchange.wall_ms() - 100)])
    return _words("XGROUP", "SETID", *found[:2], start) if found else None


def _create_consumer(work: Workload, process: Process, key: bytes) -> Words | None:
    found = work.group(process)
    return (
        _words("XGROUP", "CREATECONSUMER", *found[:2], work.chance.choice("cd")) if found else None
    )


def _delete_consumer(work: Workload, process: Process, key: bytes) -> Words | None:
    found = work.group(process, pending=True)
    if found is None:
        return None
    return _words("XGROUP", "DELCONSUMER", *found[:2], work.chance.choice("cd"))


def _read_group(work: Workload, process: Process, key: bytes) -> Words | None:
    found = work.group(process)
    if found is None:
        return None
    chance = work.chance
    count = _words("COUNT", chance.randint(1, 5)) if chance.random() < 0.6 else []
    noack = _words("NOACK") if chance.random() < 0.1 else []
    start = chance.choice([">", ">", ">", ">", "0"])
    claim = (
        _words("CLAIM", chance.choice([0, 100])) if start == ">" and chance.random() < 0.1 else []
    )
    return _words(
        "XREADGROUP", "GROUP", found[1], chance.choice("cd"), *count, *noack, *claim,
        "STREAMS", found[0], start,
    )  # fmt: skip


def _acknowledge(work: Workload, process: Process, key: bytes) -> Words | None:
    found = work.group(process, pending=True)
    return _words("XACK", *found[:2], *work.pending(found[2])) if found else None


def _say_how(work: Workload, process: Process, command: str, ways: list[str]) -> Words | None:
    found = work.group(process, pending=True)
    if found is None:
        return None
    ids = work.pending(found[2])
    return _words(command, *found[:2], work.chance.choice(ways), "IDS", len(ids), *ids)


def _acknowledge_and_delete(work: Workload, process: Process, key: bytes) -> Words | None:
    return _say_how(work, process, "XACKDEL", ["KEEPREF", "DELREF", "ACKED"])


def _claim(work: Workload, process: Process, key: bytes) -> Words | None:
    found = work.group(process, pending=True)
    if found is None:
        return None
    ids = work.pending(found[2])
    last = _words("LASTID", ids[-1]) if work.chance.random() < 0.2 else []
    return _words("XCLAIM", *found[:2], work.chance.choice("cd"), 0, *ids, *last)


def _claim_some(work: Workload, process: Process, key: bytes) -> Words | None:
    found = work.group(process, pending=True)
    return _words("XAUTOCLAIM", *found[:2], work.chance.choice("cd"), 0, "-") if found else None


def _release(work: Workload, process: Process, key: bytes) -> Words | None:
    return _say_how(work, process, "XNACK", ["SILENT", "FAIL", "FATAL"])


def _record(work: Workload, process: Process, key: bytes) -> Words | None:
    ids = work.some_ids(process, key)
    iid = f"i{work.chance.randint(1, 150)}"
    return _words("XIDMPRECORD", key, work.chance.choice("pq"), iid, ids[0]) if ids else None


def _set_last_id(work: Workload, process: Process, key: bytes) -> Words:
    now_ms = process.exchange.wall_ms()
    counters: Words = []
    if work.chance.random() < 0.2:
        counters = _words("ENTRIESADDED", 4000, "MAXDELETEDID", f"{now_ms - 2}-0")
    return _words("XSETID", key, f"{now_ms + work.chance.randint(0, 5)}-1", *counters)


def _configure(work: Workload, process: Process, key: bytes) -> Words:
    return _words("XCFGSET", key, "IDMP-DURATION", work.chance.choice([50, 100, 200]))


def _expire(work: Workload, process: Process, key: bytes) -> Words:
    return _words("PEXPIRE", key, work.chance.choice([30, 300, 1000, 5000, 60_000]))


def _persist(work: Workload, process: Process, key: bytes) -> Words:
    return _words("PERSIST", key)


def _rename(work: Workload, process: Process, key: bytes) -> Words:
    how = work.chance.choice(["RENAME", "RENAMENX"])
    return _words(how, key, work.chance.choice(work.keys))


def _copy(work: Workload, process: Process, key: bytes) -> Words:
    replace = work.chance.choice(["REPLACE", ""]).split()
    return _words("COPY", key, work.chance.choice(work.keys), *replace)


_STRING_MIX: Final = {
    "INCR": 30, "INCRBYFLOAT 0.1": 5, "DECRBY 7": 5, "SET 10": 8, "SET word": 4, "SET 5 PX 40": 4,
    "SET 1 NX PX 200": 4, "SET 2 KEEPTTL": 2, "APPEND 1": 3, "SETRANGE 1 2": 2, "GETDEL": 2,
    "DEL": 6, "PEXPIRE 60": 4, "PEXPIRE 5000": 4, "PERSIST": 2, "XADD * f v": 3, "RENAME KEY": 1,
    "COPY KEY REPLACE": 1,
}  # fmt: skip
"""Commands on a string, without their key, and how often each is chosen."""

_SET_MIX: Final = {
    "SADD a": 10, "SADD b c": 10, "SADD a b d e": 5, "SREM a": 8, "SREM b e": 6, "SPOP": 4,
    "SPOP 2": 2, "SMOVE KEY c": 3, "DEL": 4, "PEXPIRE 60": 3, "PERSIST": 2, "XADD * f v": 2,
    "RENAME KEY": 1, "COPY KEY REPLACE": 1,
}  # fmt: skip

_LIST_MIX: Final = {
    "RPUSH a": 10, "RPUSH b c": 8, "LPUSH d": 6, "LPUSHX e f": 3, "LPOP": 8, "RPOP 2": 3,
    "LINSERT BEFORE b x": 5, "LINSERT AFTER a y": 5, "LSET 0 z": 4, "LSET -1 w": 3, "LREM 1 a": 3,
    "LREM 0 x": 2, "LTRIM 0 5": 2, "LTRIM 1 -2": 2, "LMOVE KEY LEFT RIGHT": 4,
    "RPOPLPUSH KEY": 3, "DEL": 3, "PEXPIRE 60": 2, "SADD q": 1, "RENAME KEY": 1,
    "COPY KEY REPLACE": 1,
}  # fmt: skip

_IN_UNITS: Final[list[_Maker]] = [_add, _add, _delete_entries, _delete, _create, _destroy]

_MIX: Final[list[tuple[_Maker, float]]] = [
    (_add, 40), (_delete_entries, 6), (_delete_entries_how, 3), (_trim, 2), (_delete, 1),
    (_flush, 0.2), (_create, 7), (_destroy, 1.5), (_move, 2), (_delete_consumer, 3),
    (_read_group, 25), (_acknowledge, 25), (_acknowledge_and_delete, 5), (_claim, 6),
    (_claim_some, 2), (_release, 3), (_create_consumer, 1), (_record, 1), (_set_last_id, 2),
    (_configure, 0.3), (_expire, 2), (_persist, 1), (_rename, 1), (_copy, 1),
]  # fmt: skip
"""How often each is chosen where nothing is out of the ordinary."""
