"""The last effects on each key, as far as some other region may not have applied them.

Two regions can compare a key as soon as neither has applied an effect on it that the other lacks,
however many effects on other keys differ. A region that has applied all effects on a key that
another region knows of needs nothing of that key. Both rules need the last effect of every replica
ID on a key. One version vector for all keys (:attr:`LastEffects.base`) covers what every member has
on its disk and what existed before this process, so only keys that changed since are kept.

Keys that changed longer ago are in a :class:`PackedTable`, because there may be millions while a
member is away.

Vectors in this module may name later effects than the last one on a key, never earlier ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from sys import getsizeof
from typing import Any, Final

import msgspec
from xxhash import xxh3_64_intdigest

from anabranch.keyspace.packed_table import PackedTable, Sweep
from anabranch.keyspace.version_vectors import covers, maximum, raise_to, row_of, vector_of
from anabranch.scheduling import Steps

BUCKETS: Final = 1024
"""The count of buckets; the hash of a key decides its bucket."""

Place = tuple[int, bytes]
"""Database and key."""

_Row = tuple[int, ...]
"""A version vector that takes little memory: replica ID, number, replica ID, number ..."""

UNPACKED_MAX = 4000
"""The most keys that are not packed, except for a batch."""

_PACKED_SHARE: Final = 16
"""Or this part of the packed ones, if that is more: where very many keys change, those that change
again soon are packed only once."""

BATCH = 64
"""Keys that are packed together."""

_PRUNED: Final = 2000
"""Keys that one call of :meth:`LastEffects.prune` drops at most: about half a millisecond."""

_SLOT_BYTES: Final = 100
"""An entry of a dictionary and its share of the free room."""

_NUMBER_BYTES: Final = getsizeof(1 << 20)

_RECENT_BYTES: Final = getsizeof((0, b"", 0)) + _NUMBER_BYTES + _SLOT_BYTES

_KEY_BYTES: Final = getsizeof((0, b"")) + getsizeof((0, 0)) + _NUMBER_BYTES + 2 * _SLOT_BYTES
"""Of a key that is not packed: it also has a mark in its bucket."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, ...]).decode


def bucket_of(place: Place) -> int:
    """The bucket of a key; the same in every region."""
    return xxh3_64_intdigest(place[1], seed=place[0]) % BUCKETS


def _covers(vector: Mapping[int, int], row: _Row) -> bool:
    return all(vector.get(row[at], 0) >= row[at + 1] for at in range(0, len(row), 2))


def _joined(one: bytes, other: bytes) -> bytes:
    return _encode(row_of(maximum(vector_of(_decode(one)), vector_of(_decode(other)))))


class LastEffects:
    """The last effects of every replica ID on keys, and the keys that were changed recently."""

    def __init__(self) -> None:
        self.recent: dict[tuple[int, bytes, int], int] = {}
        """(database, key, replica ID) -> number, until :meth:`absorb`; not the latest one."""
        # The latest one, because writers change a key again and again; 0: there is none.
        self._number = 0
        self._db = 0
        self._key = b""
        self._replica_id = 0
        self.base: dict[int, int] = {}
        """Keys that are not recorded have no later effects than these."""
        self.changed: defaultdict[int, dict[Place, None]] = defaultdict(dict)
        """Changed keys by bucket; the reader removes them."""
        self.on_idle: Callable[[Place], None] = self._unmark
        """Called for a key that is packed or dropped: a reader may remove its mark."""
        self._keys: dict[Place, _Row] = {}  # the one that changed last is the last one
        self._packed: defaultdict[int, PackedTable] = defaultdict(PackedTable)  # by database
        self._buckets: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._sweep = Sweep(self._dropping)
        self._watches: list[dict[Place, None]] = []

    def wrote(self, db: int, key: bytes, replica_id: int, number: int) -> None:
        """An effect has changed a key. That is all the work until :meth:`absorb`."""
        if key != self._key or db != self._db or replica_id != self._replica_id:
            self._note()
            self._db, self._key, self._replica_id = db, key, replica_id
        self._number = number

    def _note(self) -> None:
        if self._number:
            self.recent[self._db, self._key, self._replica_id] = self._number
            self._number = 0

    def absorb(self, most: int = 0) -> bool:
        """Take over keys that were written since the last call, all or at most so many.

        Returns whether some are left.
        """
        self._note()
        recent = self.recent
        if not recent:
            return False
        if most and len(recent) > most:
            for item in list(islice(recent, most)):
                db, key, replica_id = item
                self._record((db, key), replica_id, recent.pop(item))
        else:
            self.recent = {}
            for (db, key, replica_id), number in recent.items():
                self._record((db, key), replica_id, number)
        self._pack()
        return len(self.recent) > 0

    def record(self, place: Place, vector: Mapping[int, int]) -> None:
        """Effects up to these may have changed a key."""
        for replica_id, number in vector.items():
            self._record(place, replica_id, number)
        self._pack()

    def watch(self) -> dict[Place, None]:
        """Begin to put the keys that change into the result, until :meth:`unwatch`.

        Keys that have changed a moment ago may be there, too.
        """
        found: dict[Place, None] = {}
        self._watches.append(found)
        return found

    def unwatch(self, found: dict[Place, None]) -> None:
        """Put no more keys into the result of a :meth:`watch`."""
        self.absorb()
        self._watches = [each for each in self._watches if each is not found]

    def _record(self, place: Place, replica_id: int, number: int) -> None:
        for watch in self._watches:
            watch[place] = None
        bucket = bucket_of(place)
        self.changed[bucket][place] = None
        of_bucket = self._buckets[bucket]
        if number > of_bucket.get(replica_id, 0):
            of_bucket[replica_id] = number
        row = self._keys.pop(place, ())
        if not row or row == (replica_id, row[1]):
            row = replica_id, max(number, row[1] if row else 0)
        else:
            row = tuple(row_of(maximum(vector_of(row), {replica_id: number})))
        self._keys[place] = row

    def mark_changed(self, place: Place) -> None:
        """Record that a key has changed; its effects are recorded separately."""
        self.changed[bucket_of(place)][place] = None
        for watch in self._watches:
            watch[place] = None

    def _unmark(self, place: Place) -> None:
        """Nobody reads the marks yet; who begins to does not need any from before."""
        self.changed[bucket_of(place)].pop(place, None)

    def record_all(self, vector: Mapping[int, int]) -> None:
        """Effects up to these may have changed every key; the caller marks the existing keys."""
        raise_to(self.base, vector)

    def of_key(self, place: Place) -> dict[int, int]:
        """The last effect of each replica ID on a key."""
        self.absorb()
        db, key = place
        packed = self._packed[db].get(key)
        return maximum(
            self.base,
            vector_of(self._keys.get(place, ())),
            {} if packed is None else vector_of(_decode(packed)),
        )

    def of_bucket(self, bucket: int) -> dict[int, int]:
        """The last effect of each replica ID on any key of a bucket."""
        self.absorb()
        return maximum(self.base, self._buckets[bucket])

    def beyond(self, vector: Mapping[int, int]) -> Steps[list[Place] | None]:
        """Keys with effects beyond a version vector, deleted keys included; None if unknown.

        Looks at them in short steps. Keys that change meanwhile may be missing (:meth:`watch`). A
        key may be there twice.
        """
        self.absorb()
        places = []
        for at, (place, row) in enumerate(list(self._keys.items()), 1):
            if not _covers(vector, row):
                places.append(place)
            if at % BATCH == 0:
                yield
        for db, table in list(self._packed.items()):
            for rows in table.pages():
                places += [
                    (db, key) for key, row in rows.items() if not _covers(vector, _decode(row))
                ]
                yield
        return places if covers(vector, self.base) else None

    @property
    def size(self) -> int:
        """An estimate of the bytes that all of this takes."""
        packed = sum(table.size for table in self._packed.values())
        return packed + len(self._keys) * _KEY_BYTES + len(self.recent) * _RECENT_BYTES

    # -- snapshots ----------------------------------------------------------------------------

    def written(self) -> list[Any]:
        """All but the packed keys as plain values, for a snapshot; :meth:`read` takes them back."""
        self.absorb()
        rows = [
            (db, key, [row] if len(row) == 2 else list(vector_of(row).items()))
            for (db, key), row in self._keys.items()
        ]
        return [list(self.base.items()), rows]

    def read(self, written: list[Any]) -> None:
        """Take over what :meth:`written` gave."""
        base, rows = written
        self.record_all(dict(base))
        for db, key, known in rows:
            self.record((db, key), dict(known))

    def packed(self) -> list[tuple[int, list[bytes]]]:
        """The packed keys: databases, and chunks of a :class:`PackedTable`."""
        return [(db, table.chunks) for db, table in self._packed.items()]

    def restore(self, db: int, rows: Mapping[bytes, bytes]) -> None:
        """Take over packed keys. Whoever computes digests does not know any of them yet."""
        self._packed[db].update(rows, _joined)
        for key, row in rows.items():
            raise_to(self._buckets[bucket_of((db, key))], vector_of(_decode(row)))

    # -- packing and dropping -----------------------------------------------------------------

    def _pack(self) -> None:
        """Pack the keys that changed longest ago, if there are many."""
        keys = self._keys
        if len(keys) < UNPACKED_MAX + BATCH:
            return
        packed = sum(map(len, self._packed.values()))
        while len(keys) >= max(UNPACKED_MAX, packed // _PACKED_SHARE) + BATCH:
            rows: defaultdict[int, dict[bytes, bytes]] = defaultdict(dict)
            for place in list(islice(keys, BATCH)):
                row = keys.pop(place)
                self.on_idle(place)
                if not _covers(self.base, row):
                    rows[place[0]][place[1]] = _encode(row)
            for db, some in rows.items():
                self._packed[db].update(some, _joined)

    def prune(self, watermark: Mapping[int, int]) -> None:
        """Drop keys whose effects the watermark covers; of the packed ones in :meth:`sweep`."""
        raise_to(self.base, watermark)
        for place in list(islice(self._keys, _PRUNED)):
            if not _covers(self.base, self._keys[place]):
                break
            del self._keys[place]
            self.on_idle(place)
        self._sweep.begin()

    def sweep(self) -> None:
        """Do a slice of dropping packed keys that the base covers."""
        self._sweep.go_on()

    def _dropping(self) -> Iterator[None]:
        for table in list(self._packed.values()):
            for rows in table.pages():
                table.remove([key for key, row in rows.items() if _covers(self.base, _decode(row))])
                yield
