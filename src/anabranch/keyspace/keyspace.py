"""The numbered databases of one server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from anabranch.keyspace.accounting import Account
from anabranch.keyspace.database import Database
from anabranch.keyspace.deferred_free import DeferredFree
from anabranch.keyspace.incarnations import Incarnations
from anabranch.keyspace.last_positions import BYTES_MAX, LastPositions
from anabranch.keyspace.libraries import Library
from anabranch.keyspace.remembered import Remembered
from anabranch.keyspace.replica import Replica
from anabranch.keyspace.values import Value
from anabranch.keyspace.version_vectors import covers_dot
from anabranch.keyspace.waiter import Waiters
from anabranch.metrics.holdings import DICT_SLOT_BYTES, PAIR_BYTES
from anabranch.stream.compression import BlockCache
from anabranch.stream.shared import Dot, Tombstone
from anabranch.stream.stream import Stream

_MARK_BYTES: Final = PAIR_BYTES + DICT_SLOT_BYTES


class Keyspace:
    """All databases, all clients blocked on keys, and the knowledge of all regions."""

    def __init__(self, count: int = 16, replica: Replica | None = None) -> None:
        """``replica`` is given where several regions write."""
        self.replica: Replica = replica or Replica.alone()
        # (database, key) with waiters that changed since they were last served
        self.ready: dict[tuple[int, bytes], None] = {}
        self.incarnations = Incarnations()
        self.block_cache = BlockCache()
        self.account = Account(self.block_cache)
        self.deferred_free = DeferredFree()
        self.databases = [self._database(index) for index in range(count)]
        self.waiters = Waiters([(each.waiters, each.reviewed) for each in self.databases])
        for each in self.databases:
            each.following.wait = self.waiters.extend
        # The prepared result of the effect that will be applied next
        self.prepared: Value | None = None
        # ACL users that were set by command, and their lines as ACL LIST writes them; they are here
        # because they are stored on the disk as keys are
        self.users: dict[bytes, bytes] = {}
        self.libraries: dict[bytes, Library] = {}

    def _database(self, index: int) -> Database:
        positions = LastPositions(self.incarnations, self.deferred_free)
        remembered = Remembered(self.replica, index, positions)
        return Database(index, self.ready, self.incarnations, self.account, remembered, positions)

    def forget_positions(self, now_ms: int, retention_ms: int) -> None:
        """Drop old ends of deleted streams, and more of them if they take too much memory."""
        for database in self.databases:
            database.last_positions.forget(now_ms, retention_ms)
        while self.last_positions_bytes > BYTES_MAX:
            largest = max(self.databases, key=lambda each: each.last_positions.used_bytes)
            if not largest.last_positions.drop_oldest():
                return

    @property
    def last_positions_bytes(self) -> int:
        """An estimate of the memory of the ends of deleted streams."""
        return sum([each.last_positions.used_bytes for each in self.databases])

    def prune(self, watermark: dict[int, int], *, keeps_tombstones: bool = False) -> None:
        """Drop what is not needed below the watermark: tombstones and tags.

        What is packed follows in :meth:`sweep`. ``keeps_tombstones``: tombstones stay all the same.
        """
        replica = self.replica
        replica.watermark = watermark
        replica.last_effects.prune(watermark)
        replica.conflicts.prune(watermark, replica.vector)
        replica.tombstones_forgotten += replica.unstable_tombstones.prune(watermark)
        if keeps_tombstones:
            return
        for database in self.databases:
            database.policies.prune(watermark)
            database.timetables.prune(watermark)
        for dot in [dot for dot in replica.flushes if covers_dot(watermark, dot)]:
            del replica.flushes[dot]
        for db, key in list(replica.tombstoned):
            database = self.databases[db]
            value = database.values.get(key) or database.remembered.objects.get(key)
            if isinstance(value, Stream):
                if value.prune(watermark, replica.own):
                    continue
                if value.is_blank and key not in database.values:
                    database.remembered.forget(key, value)
            elif value is not None and value.shared.prune(watermark):
                continue
            del replica.tombstoned[db, key]
        for database in self.databases:
            database.remembered.begin_sweep()

    def sweep(self) -> None:
        """Do a slice of :meth:`prune` for what is packed: call this regularly."""
        self.replica.last_effects.sweep()
        for database in self.databases:
            database.remembered.sweep()

    def tombstones_of(self, db: int, key: bytes) -> Mapping[Dot, Tombstone]:
        """The tombstones of a key, existing or only remembered, unless they are packed."""
        database = self.databases[db]
        value = database.values.get(key) or database.remembered.objects.get(key)
        return {} if value is None else value.shared.tombstones

    @property
    def marked_keys(self) -> int:
        """How many keys have tombstones."""
        packed = sum(database.remembered.marked for database in self.databases)
        return len(self.replica.tombstoned) + packed

    @property
    def tombstone_bytes(self) -> int:
        """An estimate of the memory of tombstones, except for those in streams that exist."""
        replica = self.replica
        size = replica.unstable_tombstones.used_bytes + len(replica.tombstoned) * _MARK_BYTES
        return size + sum([database.remembered.used_bytes for database in self.databases])

    def renew_unstable_tombstones(self) -> None:
        """Derive again which tombstones are unstable, after several effects; their order stays."""
        self.replica.unstable_tombstones.renew(self._unstable_tombstones())

    def _unstable_tombstones(self) -> Iterator[Dot]:
        replica = self.replica
        of_keys = [self.tombstones_of(*place) for place in replica.tombstoned]
        packed = [database.remembered.packed_dots() for database in self.databases]
        for dot in chain(replica.flushes, *of_keys, *packed):
            if not covers_dot(replica.watermark, dot):
                yield dot

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
            database.following.renew(database.order)
            if database.policies.rules:  # leases are known by the number of the database
                database.policies.rebind_all(database.values, database.order)
            for key in database.waiters:
                if key in one.values or key in two.values:
                    database.review(key)
                    database.signal(key)
