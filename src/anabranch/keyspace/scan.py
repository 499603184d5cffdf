"""The order in which SCAN visits a database, so that its cursors survive every change.

Keys are in 65 536 buckets by the leading bits of a fixed hash. A cursor is the number of the next
bucket, and nothing is kept between calls. A key never changes its bucket, whatever is added or
removed and however often the server restarts, so a key that exists during a whole iteration is
returned exactly once. The cost of a page depends on its size, not on the size of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from xxhash import xxh32_intdigest

__all__ = ["CURSOR_END", "KeyOrder"]

CURSOR_END = 0
"""Starts an iteration and ends it."""

_BUCKET_BITS = 16
_SHIFT = 32 - _BUCKET_BITS
_FEW_BUCKETS = 1 << 10  # to choose one of more of them, numbers are drawn until one is in use


class KeyOrder:
    """The keys of one database in scanning order."""

    __slots__ = ("_buckets", "_used")

    def __init__(self) -> None:
        # Dictionaries, not lists: keys chosen to collide must not make removal slow.
        self._buckets: dict[int, dict[bytes, None]] = {}
        self._used = bytearray()  # 1 for each bucket with a key; empty before the first key

    @staticmethod
    def _number(key: bytes) -> int:
        return xxh32_intdigest(key) >> _SHIFT

    def add(self, key: bytes) -> None:
        """A key was created."""
        number = self._number(key)
        bucket = self._buckets.get(number)
        if bucket is None:
            self._buckets[number] = {key: None}
            if not self._used:
                self._used = bytearray(1 << _BUCKET_BITS)
            self._used[number] = 1
        else:
            bucket[key] = None

    def add_all(self, keys: Iterable[bytes]) -> None:
        """Several keys were created."""
        buckets = self._buckets
        for key in keys:
            bucket = buckets.get(xxh32_intdigest(key) >> _SHIFT)
            if bucket is None:
                self.add(key)
            else:
                bucket[key] = None

    def remove_all(self, keys: Iterable[bytes]) -> None:
        """Several keys were removed."""
        buckets = self._buckets
        for key in keys:
            number = xxh32_intdigest(key) >> _SHIFT
            bucket = buckets[number]
            del bucket[key]
            if not bucket:
                del buckets[number]
                self._used[number] = 0

    def remove(self, key: bytes) -> None:
        """A key was removed."""
        self.remove_all((key,))

    def clear(self) -> None:
        """All keys were removed."""
        self._buckets = {}
        self._used = bytearray()

    def page(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """At least ``count`` keys from a cursor on, and the next cursor."""
        keys: list[bytes] = []
        number = self._used.find(1, cursor)
        while number >= 0:
            if len(keys) >= count:
                # Bucket 0 is first whenever it exists, so a next bucket is never CURSOR_END.
                return number, keys
            keys += self._buckets[number]
            number = self._used.find(1, number + 1)
        return CURSOR_END, keys

    def any_key(self, random_below: Callable[[int], int]) -> bytes | None:
        """A random key; the probability depends on its bucket's size. None without keys."""
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

    def check(self, keys: set[bytes]) -> None:
        """Assert that exactly these keys are kept, each in its bucket."""
        kept = [key for bucket in self._buckets.values() for key in bucket]
        assert len(kept) == len(keys)
        assert set(kept) == keys
        assert self._used.count(1) == len(self._buckets)
        for number, bucket in self._buckets.items():
            assert bucket
            assert self._used[number]
            assert all(self._number(key) == number for key in bucket)
