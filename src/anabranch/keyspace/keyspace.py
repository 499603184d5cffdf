"""The numbered databases of one server."""

from __future__ import annotations

from collections import deque
from weakref import ref

from anabranch.keyspace.database import Database
from anabranch.keyspace.incarnations import Incarnations
from anabranch.keyspace.replica import Replica, covers
from anabranch.keyspace.waiters import Waiters
from anabranch.stream.block import Block

__all__ = ["Keyspace"]


class Keyspace:
    """All databases, and everybody blocked on their keys."""

    __slots__ = ("databases", "incarnations", "ready", "replica", "unsealed", "users", "waiters")

    def __init__(self, count: int = 16) -> None:
        # (database, key) with waiters that changed since they were last served
        self.ready: dict[tuple[int, bytes], None] = {}
        # full blocks that maintenance has not got round to, oldest first, unless they are gone
        self.unsealed: deque[ref[Block]] = deque()
        self.incarnations = Incarnations()
        self.databases = [
            Database(index, self.ready, self.unsealed, self.incarnations) for index in range(count)
        ]
        self.waiters = Waiters(self)
        # ACL users that were set by command, and their lines as ACL LIST writes them; here because
        # they are kept on disk as keys are, and of interest to the ACL commands only
        self.users: dict[bytes, bytes] = {}
        self.replica: Replica | None = None  # with several regions: what is known of them

    def forget_stable(self, stable: dict[int, int]) -> None:
        """Every member has this much on its disk: marks up to there have done their work."""
        replica = self.replica
        assert replica is not None
        replica.stable = stable
        replica.touches.forget(stable)
        for dot in [dot for dot in replica.flushes if covers(stable, dot)]:
            del replica.flushes[dot]
        for db, key in list(replica.marked):
            database = self.databases[db]
            stream = database.values.get(key) or database.remembered.get(key)
            if stream is not None and stream.forget_stable(stable, replica.own):  # type: ignore[union-attr]
                continue
            del replica.marked[db, key]
            if stream is not None and key in database.remembered and stream.is_blank:  # type: ignore[union-attr]
                del database.remembered[key]

    def swap(self, first: int, second: int) -> None:
        """Exchange the contents of two databases; connections and queues stay with the number."""
        one, two = self.databases[first], self.databases[second]
        watched = [
            (database, key)
            for database, other in ((one, two), (two, one))
            for key in database.watchers
            if key in one.values or key in two.values
        ]
        one.exchange(two)
        for database, key in watched:
            database.touch(key)
        for database in (one, two):
            for key in database.waiters:
                if key in one.values or key in two.values:
                    self.ready[database.index, key] = None
