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
from anabranch.keyspace.following import Following
from anabranch.keyspace.incarnations import Incarnations
from anabranch.keyspace.last_positions import LastPositions, ends_of
from anabranch.keyspace.policies import Policies
from anabranch.keyspace.remembered import Remembered
from anabranch.keyspace.scan import KeyOrder
from anabranch.keyspace.timetables import Timetables
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

    def __init__(
        self,
        index: int,
        ready: dict[tuple[int, bytes], None],
        incarnations: Incarnations,
        account: Account,
        remembered: Remembered,
        last_positions: LastPositions,
    ) -> None:
        self.index = index
        self.values: dict[bytes, Value] = {}
        self.remembered = remembered  # with several regions: keys that do not exist
        self.last_positions = last_positions  # of streams that do not exist
        self.deadlines: Deadlines[bytes] = Deadlines()
        self.order = KeyOrder(self.values)
        self.policies = Policies()
        self.timetables = Timetables()
        self.following = Following()  # patterns that readers follow
        self.watchers: dict[bytes, set[Watcher]] = {}
        self.waiters: dict[bytes, KeyQueue] = {}
        # Keys with waiters of which something was removed or set back since they were last served:
        # whoever fails without the key must look, whatever the present value is
        self.reviewed: set[bytes] = set()
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

        What is there then may not tell: it may be there again. The same if a group was set back:
        what is new for it was not signalled.
        """
        if key in self.waiters:
            self.reviewed.add(key)

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
            self.reviewed.add(key)
            self.ready[self.index, key] = None
        if self.policies.rules or self.policies.is_rebinding:
            self.policies.bind(key, self.values.get(key))

    def put(self, key: bytes, value: Value) -> None:
        """Bind a key to a value; removes an older value and its deadline."""
        older = self.values.get(key)
        if older is None:
            self.order.add(key)
        else:
            self._ended(key, older)
            self.account.unbind(key, older)
        self.values[key] = value
        self.account.bind(key, value)
        self.deadlines.pop(key, None)
        if self.following.patterns and type(value) is Stream:
            self.following.added(key)
        self.changed(key)

    def discard(self, key: bytes) -> Value | None:
        """Unbind a key; returns its value."""
        value = self.unbind(key)
        if value is not None:
            self._ended(key, value)
        return value

    def unbind(self, key: bytes) -> Value | None:
        """Unbind a key, if the caller remembers more of its stream than where its logs ended."""
        value = self.values.pop(key, None)
        if value is not None:
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
                self._ended(key, before)
            values[key] = string
        self.account.bind_strings(new, strings, older)
        self._drop_deadlines(keys)
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
                self._ended(key, value)
        self.account.unbind_all(found, gone)
        self._drop_deadlines(found)
        self.order.changed(found)
        self._all_changed(found)
        return gone

    def _ended(self, key: bytes, value: Value) -> None:
        """A key has lost its value: a stream that is made again goes on where this one ended."""
        if type(value) is Stream:
            self.last_positions.note(key, value)

    def begin_of(self, key: bytes) -> int:
        """Where the positions of a new stream of a key begin, on a server of its own."""
        value = self.values.get(key)
        ends = ends_of(value) if type(value) is Stream else self.last_positions.of(key)
        return ends[0].position if ends else self.incarnations.next

    def incarnation_for(self, key: bytes, value: Value) -> int:
        """The incarnation of a value that is going to replace that of a key.

        Its oldest entries that were not trimmed get the positions behind those of the key.
        """
        if type(value) is not Stream:
            return 0
        return self.begin_of(key) - max(value.local.base, value.local.trimmed)

    def begin(self, key: bytes, stream: Stream, incarnation: int) -> None:
        """Let the positions of the stream of a key begin there; on a server of its own."""
        stream.begin_at(incarnation)
        for end in self.last_positions.of(key):
            if end.position == incarnation + stream.local.base:
                stream.local.known_from = end.known_from - incarnation

    def _drop_deadlines(self, keys: Collection[bytes]) -> None:
        """Several keys have lost their values, and lose their deadlines."""
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
        self.last_positions.note_all(gone)
        self.deadlines.clear()
        self.order.clear(self.values)
        return gone

    def exchange(self, other: Database) -> None:
        """Swap contents with another database; watchers and waiters stay where they are."""
        self.values, other.values = other.values, self.values
        self.deadlines, other.deadlines = other.deadlines, self.deadlines
        self.order, other.order = other.order, self.order
        self.last_positions, other.last_positions = other.last_positions, self.last_positions
        self.policies, other.policies = other.policies, self.policies
        self.timetables, other.timetables = other.timetables, self.timetables
        assert not self.remembered, "several regions have no SWAPDB"

    def check(self) -> None:
        """Assert every invariant of a database."""
        assert self.deadlines.keys() <= self.values.keys()
        assert not any(key in self.values for key in self.remembered)
        self.deadlines.check()
        self.policies.check()
        self.timetables.check()
        self.order.check()
        for queue in self.waiters.values():
            queue.check()
