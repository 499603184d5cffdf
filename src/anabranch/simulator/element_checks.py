"""What a command makes of a set or a list in its own region: I-30 of :mod:`checks`.

The formulas take effects as they are. So whether a command makes the right ones is judged where it
runs: a list is compared with a list of Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.values import ListValue, SetValue
from anabranch.simulator.record import Violation

CHECKED: Final = frozenset(
    {
        b"LINSERT", b"LPOP", b"LPUSH", b"LREM", b"LSET", b"LTRIM", b"RENAME", b"RPOP", b"RPUSH",
        b"SADD", b"SPOP", b"SRANDMEMBER",
    }
)  # fmt: skip
"""The commands that are judged."""


class ElementCheck:
    """A command that is about to run. Of keys with a deadline nothing is said."""

    def __init__(self, keyspace: Keyspace, words: Sequence[bytes]) -> None:
        self._keyspace = keyspace
        self._words = words
        database, key = keyspace.databases[0], words[1]
        value = self._value = database.values.get(key)
        self._is_timed = key in database.deadlines
        self._items = list(value.items) if isinstance(value, ListValue) else None
        self._members = set(value.members) if isinstance(value, SetValue) else set[bytes]()
        self._kinds = [] if value is None else value.shared.small_kinds
        self._written = self._own_effects()

    def _own_effects(self) -> int:
        replica = self._keyspace.replica
        return replica.vector.get(replica.own, 0)

    def check(self, reply: Any) -> None:
        """Judge the reply and the data; of a command that was refused, the data only."""
        problem = None if self._is_timed else self._problem(reply)
        if problem is not None:
            raise Violation(30, f"{b' '.join(self._words)!r}: {problem}")

    def _problem(self, reply: Any) -> str | None:
        name, key, *rest = self._words
        value, database = self._value, self._keyspace.databases[0]
        after = database.values.get(key)
        if name == b"RENAME":
            moved = database.values.get(rest[0])
            kinds = [] if moved is None else moved.shared.small_kinds
            if rest[0] != key and value is not None and kinds != self._kinds:
                return f"{self._kinds} are {kinds} under the other name"
        elif name in (b"SPOP", b"SRANDMEMBER"):
            drawn = set(reply if isinstance(reply, list) else [reply]) - {None}
            if not drawn <= self._members:
                return f"{drawn} drawn of {self._members}"
        elif value is None:
            if key in database.deadlines:
                return "it has the deadline of a former value"
        elif name == b"SADD":
            if isinstance(value, SetValue) and self._own_effects() == self._written:
                return "an addition that other regions do not hear of"
        elif self._items is not None:
            found = list(after.items) if isinstance(after, ListValue) else []
            if found != expected(self._items, self._words):
                return f"it made {found} of {self._items}"
        return None


def expected(items: list[bytes], words: Sequence[bytes]) -> list[bytes]:
    """What a command makes of the items of a list."""
    name, _, *rest = words
    found = list(items)
    if name == b"RPUSH":
        found += rest
    elif name == b"LPUSH":
        found[:0] = reversed(rest)
    elif name in (b"LPOP", b"RPOP"):
        count = int(rest[0]) if rest else 1
        keep = max(len(found) - count, 0)
        found = found[len(found) - keep :] if name == b"LPOP" else found[:keep]
    elif name == b"LINSERT" and rest[1] in found:
        found.insert(found.index(rest[1]) + (rest[0] == b"AFTER"), rest[2])
    elif name == b"LSET" and -len(found) <= int(rest[0]) < len(found):
        found[int(rest[0])] = rest[1]
    elif name == b"LREM":
        _take_out(found, int(rest[0]), rest[1])
    elif name == b"LTRIM":
        stop = int(rest[1])
        found = found[int(rest[0]) : None if stop == -1 else stop + 1]
    return found


def _take_out(found: list[bytes], count: int, item: bytes) -> None:
    if count < 0:
        found.reverse()
    for _ in range(abs(count) or len(found)):
        if item in found:
            found.remove(item)
    if count < 0:
        found.reverse()
