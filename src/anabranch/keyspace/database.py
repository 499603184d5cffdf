"""One numbered database: keys, deadlines, and the connections that observe a key.

There are two kinds of observers: *watchers* (WATCH: the transaction must not run) and *waiters*
(blocked commands: the key may be readable now). Each change makes one dictionary look-up for them,
so keys without observers cost almost nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from anabranch.keyspace.accounting import Account
from anabranch.keyspace.expiry import Deadlines
from anabranch.keyspace.incarnations import Incarnations
from anabranch.keyspace.remembered import Remembered
from anabranch.keyspace.scan import KeyOrder
from anabranch.keyspace.values import Value, string_values
from anabranch.keyspace.waiter import KeyQueue
from anabranch.stream.stream import Stream


class Watcher(Protocol):
    """A connection with WATCHed keys."""

    watch_broken: bool


class Database:
    """Keys of one database. Changed through ``effects`` only.

    Keys are bound and unbound by :meth:`put`, :meth:`discard` and :meth:`clear` and in no other
    way, because they update ``order``.
    """

    __slots__ = (
        "account",
        "deadlines",
        "incarnations",
        "index",
        "order",
        "ready",
        "remembered",
        "values",
        "waiters",
        "watchers",
    )

    def __init__(
        self,
        index: int,
        ready: dict[tuple[int, bytes], None],
        incarnations: Incarnations,
        account: Account,
        remembered: Remembered,
    ) -> None:
        self.index = index
        self.values: dict[bytes, Value] = {}
        self.remembered = remembered  # with several regions: keys that do not exist
        self.deadlines = Deadlines()
        self.order = KeyOrder(self.values)
        self.watchers: dict[bytes, set[Watcher]] = {}
        self.waiters: dict[bytes, KeyQueue] = {}
        self.ready = ready  # these four are shared by all databases, see Keyspace
        self.incarnations = incarnations
        self.account = account

    def touch(self, key: bytes) -> None:
        """A key's value changed: break transactions that watch it."""
        watching = self.watchers.get(key)
        if watching:
            for watcher in watching:
                watcher.watch_broken = True
            watching.clear()  # once is enough: further changes need not look at them

    def signal(self, key: bytes) -> None:
        """A key may serve those blocked on it."""
        if key in self.waiters:
            self.ready[self.index, key] = None

    def review(self, key: bytes) -> None:
        """A key, a group or a consumer was removed: whoever needs it must look at the next signal.

        What is there then may not tell: it may be there again.
        """
        if key in self.waiters:
            self.waiters[key].is_replaced = True

    def grown(self, key: bytes) -> None:
        """Something was added to a value: both :meth:`touch` and :meth:`signal`."""
        if key in self.watchers:
            self.touch(key)
        if key in self.waiters:
            self.ready[self.index, key] = None

    def changed(self, key: bytes) -> None:
        """The value was replaced, created or removed: :meth:`grown`, and :meth:`review`."""
        if key in self.watchers:
            self.touch(key)
        if key in self.waiters:
            self.waiters[key].is_replaced = True
            self.ready[self.index, key] = None

    def put(self, key: bytes, value: Value) -> None:
        """Bind a key to a value; removes an older value and its deadline."""
        older = self.values.get(key)
        if older is None:
            self.order.add(key)
        else:
            self.incarnations.retire(older)
            self.account.unbind(key, older)
        self.values[key] = value
        self.account.bind(key, value)
        self.deadlines.pop(key, None)
        self.changed(key)

    def discard(self, key: bytes) -> Value | None:
        """Unbind a key; returns its value."""
        value = self.values.pop(key, None)
        if value is not None:
            self.incarnations.retire(value)
            self.account.unbind(key, value)
            self.order.remove(key)
            self.deadlines.pop(key, None)
            self.changed(key)
        return value

    def put_strings(self, keys: list[bytes], data: list[bytes]) -> list[Value]:
        """Bind keys to strings, one after the other, as :meth:`put` does; returns older values."""
        values = self.values
        strings = string_values(data)
        new: list[bytes] = []
        older: list[Value] = []
        for key, string in zip(keys, strings, strict=True):
            before = values.get(key)
            if before is None:
                new.append(key)
            else:
                older.append(before)
            values[key] = string
        self.account.bind_strings(new, strings, older)
        self._retired(keys, older)
        self.order.changed(new)
        self._all_changed(keys)
        return older

    def discard_all(self, keys: Sequence[bytes]) -> list[Value]:
        """Unbind those of the keys that exist, as :meth:`discard` does; returns their values."""
        pop = self.values.pop
        found: list[bytes] = []
        gone: list[Value] = []
        for key in keys:
            value = pop(key, None)
            if value is not None:
                found.append(key)
                gone.append(value)
        self.account.unbind_all(found, gone)
        self._retired(found, gone)
        self.order.changed(found)
        self._all_changed(found)
        return gone

    def _retired(self, keys: Collection[bytes], values: Collection[Value]) -> None:
        """Several keys have lost their values, and lose their deadlines."""
        for value in values:
            if type(value) is Stream:
                self.incarnations.retire(value)
        if self.deadlines:
            for key in keys:
                self.deadlines.pop(key, None)

    def _all_changed(self, keys: Collection[bytes]) -> None:
        if self.watchers or self.waiters:
            for key in keys:
                self.changed(key)

    def clear(self) -> dict[bytes, Value]:
        """Unbind every key; returns the values."""
        for key in self.watchers:
            if key in self.values:
                self.touch(key)
        for key in self.waiters:
            if key in self.values:
                self.review(key)
                self.signal(key)
        gone, self.values = self.values, {}
        self.account.unbind_all(gone, gone.values())
        self._retired(gone, gone.values())
        self.deadlines.clear()
        self.order.clear(self.values)
        return gone

    def exchange(self, other: Database) -> None:
        """Swap contents with another database; watchers and waiters stay where they are."""
        self.values, other.values = other.values, self.values
        self.deadlines, other.deadlines = other.deadlines, self.deadlines
        self.order, other.order = other.order, self.order
        assert not self.remembered, "several regions have no SWAPDB"

    def check(self) -> None:
        """Assert every invariant of a database."""
        assert self.deadlines.keys() <= self.values.keys()
        assert not any(key in self.values for key in self.remembered)
        self.deadlines.check()
        self.order.check()
        for queue in self.waiters.values():
            queue.check()
