"""Digests of all keys and of the buckets of keys, kept up to date a little at a time.

A key's digest (:mod:`anabranch.keyspace.agreement`) is computed again only when the key has
changed, and of a long stream only the changed parts. The digest of a bucket is the sum over its
keys. So regions find differences among any number of keys by comparing 1,024 sums, and then the
keys of a few buckets.
"""

from __future__ import annotations

from typing import Final

from xxhash import xxh3_128_intdigest

from anabranch.keyspace.agreement import agreement_digest, prepared
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.last_effects import BUCKETS, Place, bucket_of
from anabranch.keyspace.values import Value

DIGEST_BYTES: Final = 16

SLICE: Final = 1200
"""The work of one slice; a unit is one digested entry, about a microsecond."""

_KEY_WORK: Final = 20
_MODULUS: Final = 1 << 128


class KeyDigests:
    """The digests of one keyspace of a region among several."""

    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._last_effects = keyspace.replica.last_effects
        self._keys: list[dict[Place, int]] = [{} for _ in range(BUCKETS)]
        self._sums = [0] * BUCKETS
        self._at = 0
        self._due = 0  # keys of that bucket to refresh before the next bucket
        self.passed = 0
        """The count of buckets that :meth:`advance` has finished; a round over all buckets covers
        every earlier change."""
        self.retake()
        self._last_effects.on_idle = self._drop_deleted

    @property
    def databases(self) -> int:
        """The count of databases."""
        return len(self._keyspace.databases)

    def retake(self) -> None:
        """Compute all digests again: any key may have changed, been created or removed."""
        changed = self._last_effects.changed
        for bucket, known in enumerate(self._keys):
            changed[bucket].update(dict.fromkeys(known))
        for database in self._keyspace.databases:
            for key in database.values:
                place = database.index, key
                changed[bucket_of(place)][place] = None

    def advance(self, work: int = SLICE) -> None:
        """Refresh digests of changed keys, bucket by bucket, in endless rounds."""
        self._last_effects.absorb()
        changed = self._last_effects.changed
        for _ in range(BUCKETS):
            places = changed[self._at]
            while places and self._due > 0:
                left = self._refresh(self._at, work)
                if left <= 0:
                    return
                self._due -= 1
                work = left
            self._at = (self._at + 1) % BUCKETS
            self._due = len(changed[self._at])  # later changes are for the next round
            self.passed += 1

    def refresh(self, bucket: int, work: int = SLICE) -> int:
        """Refresh the changed keys of a bucket; returns the rest of ``work``, 0 if none."""
        self._last_effects.absorb()
        while self._last_effects.changed[bucket] and work > 0:
            work = self._refresh(bucket, work)
        return work

    def prepare(self, place: Place, work: int = SLICE) -> int:
        """Do work in advance for :meth:`digest_of`; returns what is left of ``work``."""
        value = self._value(place)
        return work if value is None else work - _KEY_WORK - prepared(value, work)

    def _drop_deleted(self, place: Place) -> None:
        """Refresh a key if it does not exist: nobody may ask for digests for a long time."""
        if self._value(place) is None:
            bucket = bucket_of(place)
            if self._last_effects.changed[bucket].pop(place, self) is not self:
                self._update(bucket, place, None)

    def _refresh(self, bucket: int, work: int) -> int:
        """Refresh the key that has waited longest, as far as ``work`` reaches; returns the rest."""
        places = self._last_effects.changed[bucket]
        place = next(iter(places))
        value = self._value(place)
        work -= _KEY_WORK
        if value is not None and work > 0:
            work -= prepared(value, work)
        if work > 0:
            del places[place]
            self._update(bucket, place, value)
        return work

    def _value(self, place: Place) -> Value | None:
        return self._keyspace.databases[place[0]].values.get(place[1])

    def _update(self, bucket: int, place: Place, value: Value | None) -> None:
        known = self._keys[bucket]
        older = known.pop(place, None)
        total = self._sums[bucket]
        if older is not None:
            total -= _share(place, older)
        if value is not None:
            deadline = self._keyspace.databases[place[0]].deadlines.get(place[1])
            known[place] = digest = agreement_digest(value, deadline)
            total += _share(place, digest)
        self._sums[bucket] = total % _MODULUS

    def sum_of(self, bucket: int) -> int | None:
        """The digest of a bucket, 0 without keys; None if a key has changed since its refresh."""
        self._last_effects.absorb()
        return None if self._last_effects.changed[bucket] else self._sums[bucket]

    def keys_of(self, bucket: int) -> dict[Place, int]:
        """The keys of a bucket and their digests at their last refresh."""
        return self._keys[bucket]

    def digest_of(self, place: Place) -> int | None:
        """The present digest of a key, however long that takes; None if the key does not exist."""
        self._last_effects.absorb()
        bucket = bucket_of(place)
        if self._last_effects.changed[bucket].pop(place, self) is not self:
            self._update(bucket, place, self._value(place))
        return self._keys[bucket].get(place)

    def last_effects_in(self, bucket: int) -> dict[int, int]:
        """The last effect of each replica ID on the keys of a bucket, or later ones."""
        return self._last_effects.of_bucket(bucket)

    def last_effects_on_key(self, place: Place) -> dict[int, int]:
        """The last effect of each replica ID on a key, or later ones."""
        return self._last_effects.of_key(place)


def _share(place: Place, digest: int) -> int:
    """What a key adds to the sum of its bucket."""
    db, key = place
    return xxh3_128_intdigest(digest.to_bytes(DIGEST_BYTES, "little") + key, seed=db)
