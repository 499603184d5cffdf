"""The commands of clients: all commands on streams, in a different mix in every run.

Commands are rows of a table: a weight, and words. Of ``a|b`` one word is chosen, or none where it
is empty. A word in braces is a place for what there is in the region: otherwise most commands
would do nothing.

============================== =================================================================
``{key}``, ``{other}``         a key; where the row has a group, ``{key}`` is that of the group
``{group}``, ``{busy}``        a group that is there, or one with pending entries
``{new}``                      the name of any group
``{ids}``, ``{id}``            some entries of the key, or one; ``{oldest}``, ``{newest}``
``{pending}``                  entries that are pending in the group
``{count}``                    how many words follow
``{given}``, ``{token}``       an ID that a client gives, and a value that no other XADD has
``{payload}``                  the newest DUMP
``{retry}``                    a whole command with an idempotent ID that was sent before
``{1-20}``, ``{now-50}``       a number, and a time in ms
============================== =================================================================
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from anabranch.simulator import looking
from anabranch.simulator.machine import Process
from anabranch.stream.groups.group import Group
from anabranch.stream.stream import Stream

MOVING_SHARE: Final = 0.4
"""The share of runs in which streams are copied, dumped and restored continuously."""

SMALL_SHARE: Final = 0.15
"""The share of runs whose clients use strings, counters, sets and lists, too."""

SMALL_KEYS: Final = (b"s1", b"s2", b"m1", b"l1")
"""The keys of these, under which streams are made now and then."""

MOVED_SHARE: Final = 0.2
"""The share of such commands in these runs."""

LATE_SHARE: Final = 0.5
"""Their share while a group must still deliver an entry before its cursor, which is soon over."""

Words = list[bytes]

_NUMBER: Final = re.compile(rb"\{(\d+)-(\d+)\}")
_TIME: Final = re.compile(rb"\{now([+-]\d+|)\}")


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


class Mix:
    """The rows of a table, with the weights of one run."""

    def __init__(self, table: str, chance: random.Random, factors: Sequence[float] = (1,)) -> None:
        """Rows whose words before the first place are the same have a factor in common."""
        rows = [line.encode().split() for line in table.splitlines() if line.strip()]
        self.rows: list[Words] = [words for _, *words in rows]
        names = [b" ".join(words).partition(b" {")[0] for words in self.rows]
        by_name = {name: chance.choice(factors) for name in dict.fromkeys(names)}
        self._weights = [
            float(row[0]) * by_name[name] for row, name in zip(rows, names, strict=True)
        ]

    def scale(self, factor: float, *words: str) -> None:
        """Choose rows with one of these words so much more often."""
        meant = {word.encode() for word in words}
        for index, row in enumerate(self.rows):
            if meant.intersection(row):
                self._weights[index] *= factor

    def choose(self, chance: random.Random) -> Words:
        """A row."""
        return chance.choices(self.rows, self._weights)[0]


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
        self.keys: Sequence[bytes] = [b"k%d" % n for n in range(1, chance.randint(1, 5) + 1)]
        self.groups: Sequence[bytes] = [b"g%d" % n for n in range(1, chance.randint(1, 3) + 1)]
        self.mode = chance.choice(["strict", "strict", "strict", "semi-strict", "liberal"])
        self.conflict = chance.choice(["collapse", "collapse", "collapse", "keep"])
        self._sent: deque[Words] = deque(maxlen=20)  # with an idempotent ID
        self._tokens = 0
        self._mix = Mix(_MIX, chance, (0.1, 0.3, 1, 1, 3))
        self._in_units = Mix(_IN_UNITS, chance)
        self._of_small = {name: Mix(table, small) for name, table in _SMALL_MIXES.items()}
        self.copies = chance.random() < 0.25
        """Whether RENAME and COPY are used: then entries may exist twice."""
        self.expires = chance.random() < 0.4
        if not self.copies:
            self._mix.scale(0, "RENAME|RENAMENX", "COPY")
        if not self.expires:
            self._mix.scale(0, "PEXPIRE", "PERSIST")
        self.copies = self.copies or self.moves

    def repeat(self) -> None:
        """Producers repeat many messages, and no client changes the limits of idempotent IDs."""
        self.copies = self.moves = False
        self._mix.scale(0, "RENAME|RENAMENX", "COPY", "XCFGSET", "XIDMPRECORD")
        self._mix.scale(0.1, "XADD")
        self._mix.scale(28, "IDMP", "{retry}")

    def command(self, process: Process) -> Words:
        """The next command of a client in a region."""
        if self.moves:
            streams = looking.streams(process.region.keyspace).items()
            late = sorted(key for key, stream in streams if has_late(stream))
            if self._moving.random() < (LATE_SHARE if late else MOVED_SHARE):
                return self._move(process, late)
        mix = self._mix
        keys = self.keys
        if self.has_small and self._small.random() < 0.5:
            name, mix = self._small.choice(list(self._of_small.items()))
            keys = [each for each in SMALL_KEYS for _ in range(9 if each[:1] == name else 1)]
        while (words := self.fill(mix.choose(self.chance), process, keys)) is None:
            pass
        return words

    def _move(self, process: Process, late: list[bytes]) -> Words:
        """COPY, DUMP, or RESTORE of a payload, mostly of another region.

        ``late`` are keys with a group that must still deliver an entry before its cursor.
        """
        moving = self._moving
        streams = looking.streams(process.region.keyspace).items()
        busy = [key for key, stream in streams if is_busy(stream)]
        key = moving.choice(late or sorted(busy) or self.keys)
        target = moving.choice(self.keys)
        dice = moving.random()
        if dice < 0.4 or (dice < 0.7 and not self.payloads):
            return [b"DUMP", key]
        if dice < 0.7:
            return [b"RESTORE", target, b"0", moving.choice(list(self.payloads)), b"REPLACE"]
        return [b"COPY", key, target, b"REPLACE"]

    def unit(self, process: Process) -> list[Words]:
        """Commands between MULTI and EXEC."""
        rows = [self._in_units.choose(self.chance) for _ in range(self.chance.randint(2, 4))]
        return [words for row in rows if (words := self.fill(row, process, self.keys)) is not None]

    def stream(self, process: Process, key: bytes) -> Stream | None:
        """A key's stream, unless there is none."""
        return looking.streams(process.region.keyspace).get(key)

    # -- the places of a row ------------------------------------------------------------------

    def fill(self, row: Sequence[bytes], process: Process, keys: Sequence[bytes]) -> Words | None:
        """The words of a command; None if the region has nothing for a place."""
        if row[-1] == b"{retry}":
            return self.chance.choice(list(self._sent)) if self._sent else None
        is_busy = b"{busy}" in row
        key = group = b""
        if is_busy or b"{group}" in row:
            found = self._groups_in(process, pending=is_busy)
            if not found:
                return None
            key, group = self.chance.choice(found)
        elif b"{key}" in row:
            key = self.chance.choice(keys)
        plain = {b"{key}": key, b"{group}": group, b"{busy}": group}
        words: Words = []
        for word in row:
            chosen = self.chance.choice(word.split(b"|")) if b"|" in word else word
            if chosen in _SEVERAL:
                some = self._several(chosen, process, words)
                if not some:
                    return None
                words += some
            elif chosen == b"{other}":
                words.append(self.chance.choice(keys))
            elif chosen:
                words.append(plain.get(chosen) or self._filled(chosen, process))
        if b"{count}" in words:
            at = words.index(b"{count}")
            words[at] = b"%d" % (len(words) - at - 1)
        if b"IDMP" in words:
            self._sent.append(words)
        return words

    def _filled(self, word: bytes, process: Process) -> bytes:
        """A word with everything in its place that needs no look at the data."""
        chance = self.chance
        if b"{" not in word or word == b"{count}":
            return word
        if word == b"{token}":
            self._tokens += 1
            return b"v%d" % self._tokens
        if word == b"{new}":
            return chance.choice(self.groups)
        now_ms = process.exchange.wall_ms()
        if word == b"{given}":
            ms = b"%d" % (now_ms + chance.choice([-3, 0, 0, 0, 1, 4]))
            ends = [b"-*"] if self.mode == "strict" else [b"", b"-%d" % chance.randint(0, 3)]
            return ms + chance.choice(ends)
        word = _TIME.sub(lambda match: b"%d" % (now_ms + int(match[1] or 0)), word)
        return _NUMBER.sub(lambda match: b"%d" % chance.randint(int(match[1]), int(match[2])), word)

    def _groups_in(self, process: Process, *, pending: bool) -> list[tuple[bytes, bytes]]:
        """Keys and names of the groups that are there."""
        return [
            (key, name)
            for key, stream in sorted(looking.streams(process.region.keyspace).items())
            for name, group in looking.groups(stream)
            if group.pending.count or not pending
        ]

    def _several(self, place: bytes, process: Process, words: Words) -> Words:
        """What there is for a place behind these words: none, one or several."""
        if place == b"{payload}":
            return list(self.payloads)[-1:]
        stream = self.stream(process, words[1])
        if stream is None:
            return []
        if place == b"{pending}":
            group = stream.groups.get(words[2])
            return [] if group is None else [id_text(each) for each in self._pending(group)]
        ids = sorted({entry.entry_id for entry in looking.entries(stream)})
        if place in (b"{id}", b"{ids}"):
            ids = self._few(ids)[: 1 if place == b"{id}" else None]
        elif place == b"{oldest}":
            ids = ids[:1]
        else:
            ids = ids[-1:]
        return [id_text(each) for each in ids]

    def _few(self, ids: list[int]) -> list[int]:
        return sorted(self.chance.sample(ids, min(len(ids), self.chance.randint(1, 3))))

    def _pending(self, group: Group) -> list[int]:
        """All, the newest, or any."""
        lists = group.pending.lists.values()
        ids = sorted({entry_id for each in lists for entry_id in each.entries})
        dice = self.chance.random()
        if dice < 0.4:
            return ids
        return ids[len(ids) // 2 :] if dice < 0.6 else self._few(ids)  # those before stay open


_SEVERAL: Final = frozenset(
    {b"{id}", b"{ids}", b"{newest}", b"{oldest}", b"{payload}", b"{pending}"}
)


def has_late(stream: Stream) -> bool:
    """Whether a group must still deliver an entry before its cursor."""
    groups = stream.groups.values()
    return any(next(each.progress.late(stream.logs), None) for each in groups)


def is_busy(stream: Stream) -> bool:
    """Whether the cursor of some group says little."""
    return any(each.pending.count for each in stream.groups.values()) or has_late(stream)


_MIX: Final = """
22   XADD {key} *|*|*|*|{given} f {token}
4    XADD {key} ||KEEPREF|DELREF|ACKED MAXLEN =|~ {1-20} *|{given} f {token}
6    XADD {key} IDMP p|q i{1-150} * f {token}
8    XADD {retry}
6    XDEL {key} {ids}
3    XDELEX {key} KEEPREF|DELREF|ACKED IDS {count} {ids}
1.4  XTRIM {key} MAXLEN =|~ {0-30} ||KEEPREF|DELREF|ACKED
0.6  XTRIM {key} MINID {now-100} ||KEEPREF|DELREF|ACKED
1    DEL {key}
0.2  FLUSHALL
7    XGROUP CREATE {key} {new} 0|0|$|{now-50} MKSTREAM
1.5  XGROUP DESTROY {key} {group}
2    XGROUP SETID {key} {group} 0|$|{now-100}
1    XGROUP CREATECONSUMER {key} {group} c|d
3    XGROUP DELCONSUMER {key} {busy} c|d
13   XREADGROUP GROUP {group} c|d COUNT {1-5} STREAMS {key} >|>|>|>|0
8    XREADGROUP GROUP {group} c|d STREAMS {key} >|>|>|>|0
2    XREADGROUP GROUP {group} c|d NOACK STREAMS {key} >
2    XREADGROUP GROUP {group} c|d COUNT {1-5} CLAIM 0|100 STREAMS {key} >
25   XACK {key} {busy} {pending}
5    XACKDEL {key} {busy} KEEPREF|DELREF|ACKED IDS {count} {pending}
4.8  XCLAIM {key} {busy} c|d 0 {pending}
1.2  XCLAIM {key} {busy} c|d 0 {pending} LASTID {newest}
2    XAUTOCLAIM {key} {busy} c|d 0 -
3    XNACK {key} {busy} SILENT|FAIL|FATAL IDS {count} {pending}
1    XIDMPRECORD {key} p|q i{1-150} {id}
1.6  XSETID {key} {now+1}-1|{now+5}-1
0.4  XSETID {key} {now+1}-1|{now+5}-1 ENTRIESADDED 4000 MAXDELETEDID {now-2}-0
0.3  XCFGSET {key} IDMP-DURATION 50|100|200
2    PEXPIRE {key} 30|300|1000|5000|60000
1    PERSIST {key}
1    RENAME|RENAMENX {key} {other}
1    COPY {key} {other} |REPLACE
"""
"""How often each is chosen where nothing is out of the ordinary."""

_IN_UNITS: Final = """
2 XADD {key} *|*|*|*|{given} f {token}
1 XDEL {key} {ids}
1 DEL {key}
1 XGROUP CREATE {key} {new} 0|0|$|{now-50} MKSTREAM
1 XGROUP DESTROY {key} {group}
"""

_SMALL_MIXES: Final = {
    b"s": """
30 INCR {key}
5  INCRBYFLOAT {key} 0.1
5  DECRBY {key} 7
12 SET {key} 10|10|word
8  SET {key} 5 PX 40|200 |NX
2  SET {key} 2 KEEPTTL
3  APPEND {key} 1
3  SETRANGE {key} 1 2
2  GETDEL {key}
6  DEL {key}
8  PEXPIRE {key} 60|5000
2  PERSIST {key}
3  XADD {key} * f {token}
1  RENAME {key} {other}
1  COPY {key} {other} REPLACE
""",
    b"m": """
25 SADD {key} a|b|c a|c|d
14 SREM {key} a|b a|e
4  SPOP {key}
2  SPOP {key} 2
3  SMOVE {key} {other} c
4  DEL {key}
3  PEXPIRE {key} 60
2  PERSIST {key}
2  XADD {key} * f {token}
1  RENAME {key} {other}
1  COPY {key} {other} REPLACE
""",
    b"l": """
10 RPUSH {key} a
8  RPUSH {key} b c
6  LPUSH {key} d
3  LPUSHX {key} e f
8  LPOP {key}
3  RPOP {key} 2
5  LINSERT {key} BEFORE b x
5  LINSERT {key} AFTER a y
7  LSET {key} 0|-1 z|w
5  LREM {key} 1|0 a|x
4  LTRIM {key} 0|1 5|-2
4  LMOVE {key} {other} LEFT RIGHT
3  RPOPLPUSH {key} {other}
3  DEL {key}
2  PEXPIRE {key} 60
1  SADD {key} q
1  RENAME {key} {other}
1  COPY {key} {other} REPLACE
""",
}
"""Commands on small values, by how the names begin that such values mostly have."""
