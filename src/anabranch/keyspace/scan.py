"""The order in which SCAN visits a database, so that its cursors survive every change.

Keys are in 65 536 buckets by the leading bits of a fixed hash. A cursor is the number of the next
bucket, and nothing is kept between calls. A key never changes its bucket, whatever is added or
removed and however often the server restarts, so a key that exists during a whole iteration is
returned exactly once. The cost of a page depends on its size, not on the size of the database.

When one command creates or removes very many keys, the buckets follow in steps, so that no client
waits for them (:meth:`KeyOrder.settle`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice

from xxhash import xxh32_intdigest

CURSOR_END = 0
"""Starts an iteration and ends it."""

_BUCKET_BITS = 16
_SHIFT = 32 - _BUCKET_BITS
_FEW_BUCKETS = 1 << 10  # to choose one of more of them, numbers are drawn until one is in use
_AT_ONCE = 1000  # keys that are settled in one step: about half a millisecond
_UNSETTLED_MAX = 1 << 18  # keys that wait for that; beyond, who changes keys waits


class KeyOrder:
    """The keys of one database in scanning order."""

    def __init__(self, keys: Collection[bytes]) -> None:
        """``keys`` are always the keys that exist."""
        self._keys = keys
        # Keys that were created or removed: their buckets are as they were before
        self._unsettled: deque[Iterator[bytes]] = deque()
        self._waiting = 0  # the count of those keys
        self.changes = 0
        """The count of changes of very many keys so far; the latest may be unsettled."""
        # Dictionaries, not lists: keys chosen to collide must not make removal slow.
        self._buckets: dict[int, dict[bytes, None]] = {}
        self._used = bytearray()  # 1 for each bucket with a key; empty before the first key

    @staticmethod
    def _number(key: bytes) -> int:
        return xxh32_intdigest(key) >> _SHIFT

    def add(self, key: bytes) -> None:
        """Put a key that was created into its bucket."""
        number = self._number(key)
        bucket = self._buckets.get(number)
        if bucket is None:
            self._buckets[number] = {key: None}
            if not self._used:
                self._used = bytearray(1 << _BUCKET_BITS)
            self._used[number] = 1
        else:
            bucket[key] = None

    def remove(self, key: bytes) -> None:
        """Take a key that was removed out of its bucket."""
        number = self._number(key)
        bucket = self._buckets.get(number)
        if bucket is not None and key in bucket:  # it is not there if it was never settled
            del bucket[key]
            if not bucket:
                del self._buckets[number]
                self._used[number] = 0

    def changed(self, keys: Collection[bytes]) -> None:
        """Several keys were created or removed; with very many :attr:`is_settled` becomes false."""
        if len(keys) <= _AT_ONCE:
            self._settle(keys)
            return
        self._unsettled.append(iter(keys))
        self._waiting += len(keys)
        self.changes += 1
        while self._waiting > _UNSETTLED_MAX:
            self.settle()

    @property
    def is_settled(self) -> bool:
        """Whether pages have all keys that exist, and no others."""
        return not self._unsettled

    def is_settled_upto(self, changes: int) -> bool:
        """Whether pages have what the first so many changes of many keys created or removed."""
        return self.changes - len(self._unsettled) >= changes

    def settle(self) -> bool:
        """Put some keys into their buckets, or take them out; returns whether others are left."""
        if self._unsettled:
            some = list(islice(self._unsettled[0], _AT_ONCE))
            self._settle(some)
            self._waiting -= len(some)
            if len(some) < _AT_ONCE:
                self._unsettled.popleft()
        return not self.is_settled

    def _settle(self, keys: Iterable[bytes]) -> None:
        for key in keys:  # it may have been created or removed again, so look where it is now
            if key in self._keys:
                self.add(key)
            else:
                self.remove(key)

    def clear(self, keys: Collection[bytes]) -> None:
        """All keys were removed; ``keys`` are those that exist from now on."""
        self._keys = keys
        self._unsettled.clear()
        self._waiting = 0
        self._buckets = {}
        self._used = bytearray()

    def page(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """At least ``count`` keys from a cursor on, and the next cursor.

        Unless :attr:`is_settled`, new keys may be missing, and there may be keys that were removed.
        """
        keys: list[bytes] = []
        number = self._used.find(1, cursor)
        while number >= 0:
            if len(keys) >= count:
                # Bucket 0 is first whenever it exists, so a next bucket is never CURSOR_END.
                return number, keys
            keys += self._buckets[number]
            number = self._used.find(1, number + 1)
        return CURSOR_END, keys

    def pages(self, count: int) -> Iterator[list[bytes]]:
        """All keys in pages of at least ``count``; keys may come and go between two pages.

        A key that is there all the time is in one page. The last page may be empty.
        """
        cursor = CURSOR_END
        while True:
            cursor, keys = self.page(cursor, count)
            yield keys
            if cursor == CURSOR_END:
                return

    def any_key(self, random_below: Callable[[int], int]) -> bytes | None:
        """A random key; the probability depends on its bucket's size. None without keys.

        Unless :attr:`is_settled`, it may be a removed key, or None although there are keys.
        """
        if not self._buckets:
            return None
        if len(self._buckets) <= _FEW_BUCKETS:
            bucket = list(self._buckets.values())[random_below(len(self._buckets))]
        else:
            number = random_below(1 << _BUCKET_BITS)
            while not self._used[number]:
                number = random_below(1 << _BUCKET_BITS)
            bucket = self._buckets[number]
        return list(bucket)[random_below(len(bucket))]

    def check(self) -> None:
        """Assert that exactly the keys that exist are kept, each in its bucket."""
        while self.settle():
            pass
        kept = [key for bucket in self._buckets.values() for key in bucket]
        assert len(kept) == len(self._keys)
        assert set(kept) == set(self._keys)
        assert self._used.count(1) == len(self._buckets)
        for number, bucket in self._buckets.items():
            assert bucket
            assert self._used[number]
            assert all(self._number(key) == number for key in bucket)
