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
from anabranch.keyspace.scan import KeyOrder
from anabranch.keyspace.values import Value
from anabranch.keyspace.waiter import Waiter
from anabranch.stream.stream import Stream

__all__ = ["Database", "Watcher"]


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
    ) -> None:
        self.index = index
        self.values: dict[bytes, Value] = {}
        # With several regions: keys that do not exist, but of which something must be remembered
        self.remembered: dict[bytes, Stream] = {}
        self.deadlines = Deadlines()
        self.order = KeyOrder(self.values)
        self.watchers: dict[bytes, set[Watcher]] = {}
        self.waiters: dict[bytes, dict[Waiter, None]] = {}  # FIFO per key
        self.ready = ready  # these four are shared by all databases, see Keyspace
        self.incarnations = incarnations
        self.account = account

    def touch(self, key: bytes) -> None:
        """A key's value changed: break transactions that watch it."""
        if self.watchers:
            for watcher in self.watchers.get(key, ()):
                watcher.watch_broken = True

    def signal(self, key: bytes) -> None:
        """A key may serve, or must fail, those blocked on it."""
        if key in self.waiters:
            self.ready[self.index, key] = None

    def changed(self, key: bytes) -> None:
        """Both :meth:`touch` and :meth:`signal`: the value was replaced, created or removed."""
        if key in self.watchers:
            self.touch(key)
        if key in self.waiters:
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

    def put_all(self, values: dict[bytes, Value]) -> list[Value]:
        """Bind several keys, as :meth:`put` does; returns the older values."""
        get = self.values.get
        new: list[bytes] = []
        replaced: list[bytes] = []
        older: list[Value] = []
        for key in values:
            value = get(key)
            if value is None:
                new.append(key)
            else:
                replaced.append(key)
                older.append(value)
        self._unbound(replaced, older)
        self.values.update(values)
        self.order.changed(new)
        self.account.bind_all(values)
        self._all_changed(values)
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
        self._unbound(found, gone)
        self.order.changed(found)
        self._all_changed(found)
        return gone

    def _unbound(self, keys: Collection[bytes], values: Collection[Value]) -> None:
        """Several keys lose their values, and their deadlines."""
        for value in values:
            if type(value) is Stream:
                self.incarnations.retire(value)
        self.account.unbind_all(keys, values)
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
                self.ready[self.index, key] = None
        gone, self.values = self.values, {}
        self._unbound(gone, gone.values())
        self.deadlines.clear()
        self.order.clear(self.values)
        return gone

    def exchange(self, other: Database) -> None:
        """Swap contents with another database; watchers and waiters stay where they are."""
        self.values, other.values = other.values, self.values
        self.deadlines, other.deadlines = other.deadlines, self.deadlines
        self.order, other.order = other.order, self.order
        self.remembered, other.remembered = other.remembered, self.remembered

    def check(self) -> None:
        """Assert every invariant of a database."""
        assert self.deadlines.keys() <= self.values.keys()
        assert self.remembered.keys().isdisjoint(self.values)
        self.deadlines.check()
        self.order.check()
