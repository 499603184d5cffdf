"""The last effects on each key, as far as some other region may not have applied them.

Two regions can compare a key as soon as neither has applied an effect on it that the other lacks,
however many effects on other keys differ. A region that has applied all effects on a key that
another region knows of needs nothing of that key. Both rules need the last effect of every replica
ID on a key. One version vector for all keys (:attr:`LastEffects.base`) covers what every member has
on its disk and what existed before this process, so only keys that changed since are kept.

Vectors in this module may name later effects than the last one on a key, never earlier ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from xxhash import xxh3_64_intdigest

from anabranch.keyspace.version_vectors import covers, maximum, raise_to

__all__ = ["BUCKETS", "LastEffects", "Place", "bucket_of"]

BUCKETS: Final = 1024
"""The count of buckets; the hash of a key decides its bucket."""

Place = tuple[int, bytes]
"""Database and key."""

_SWEPT: Final = 2000
"""Keys that one call of :meth:`LastEffects.prune` examines: about half a millisecond."""


def bucket_of(place: Place) -> int:
    """The bucket of a key; the same in every region."""
    return xxh3_64_intdigest(place[1], seed=place[0]) % BUCKETS


class LastEffects:
    """The last effects of every replica ID on keys, and the keys that were changed recently."""

    def __init__(self) -> None:
        self.recent: dict[tuple[int, bytes, int], int] = {}
        """(database, key, replica ID) -> number, until :meth:`absorb`: the only cost of a write."""
        self.base: dict[int, int] = {}
        """Keys that are not recorded have no later effects than these."""
        self.changed: defaultdict[int, dict[Place, None]] = defaultdict(dict)
        """Changed keys by bucket; the reader removes them."""
        self._keys: dict[Place, dict[int, int]] = {}
        self._buckets: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._swept = 0

    def absorb(self) -> None:
        """Take over the keys that were written since the last call."""
        recent, self.recent = self.recent, {}
        for (db, key, replica_id), number in recent.items():
            self.record((db, key), {replica_id: number})

    def record(self, place: Place, vector: Mapping[int, int]) -> None:
        """Effects up to these may have changed a key."""
        bucket = bucket_of(place)
        self.changed[bucket][place] = None
        for known in (self._keys.setdefault(place, {}), self._buckets[bucket]):
            for replica_id, number in vector.items():
                if number > known.get(replica_id, 0):
                    known[replica_id] = number

    def mark_changed(self, place: Place) -> None:
        """Record that a key has changed; its effects are recorded separately."""
        self.changed[bucket_of(place)][place] = None

    def record_all(self, vector: Mapping[int, int]) -> None:
        """Effects up to these may have changed every key; the caller marks the existing keys."""
        raise_to(self.base, vector)

    def of_key(self, place: Place) -> dict[int, int]:
        """The last effect of each replica ID on a key."""
        self.absorb()
        return maximum(self.base, self._keys.get(place, {}))

    def of_bucket(self, bucket: int) -> dict[int, int]:
        """The same for all keys of a bucket."""
        self.absorb()
        return maximum(self.base, self._buckets[bucket])

    def beyond(self, vector: Mapping[int, int]) -> list[Place] | None:
        """Keys with effects beyond a version vector, deleted keys included; None if unknown."""
        self.absorb()
        if not covers(vector, self.base):
            return None
        return [place for place, known in self._keys.items() if not covers(vector, known)]

    def written(self) -> list[Any]:
        """All of this as plain values, for a snapshot; :meth:`read` takes them back."""
        self.absorb()
        rows = [[*place, list(known.items())] for place, known in self._keys.items()]
        return [list(self.base.items()), rows]

    def read(self, written: list[Any]) -> None:
        """Take over what :meth:`written` gave."""
        base, rows = written
        self.record_all(dict(base))
        for db, key, known in rows:
            self.record((db, key), dict(known))

    def prune(self, watermark: Mapping[int, int]) -> None:
        """Drop keys whose effects the watermark covers."""
        raise_to(self.base, watermark)
        names = list(islice(self._keys, self._swept, self._swept + _SWEPT))
        done = [place for place in names if covers(self.base, self._keys[place])]
        for place in done:
            del self._keys[place]
        self._swept = self._swept + len(names) - len(done) if len(names) == _SWEPT else 0
