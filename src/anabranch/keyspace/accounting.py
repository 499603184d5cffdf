"""How much memory the keys of a server use: a running sum, without a walk over all keys.

A key is counted when it is bound and unbound, at first with an estimate for an empty value. A value
that an effect changes is put on a list once; :meth:`Account.measure_changed` measures some values
of the list with the estimate of ``MEMORY USAGE`` and corrects the sum. So a change costs one test
of a flag. Values that are not measured yet are extrapolated from those that were measured last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from sys import getsizeof
from typing import Final

from anabranch.keyspace.memory import KEY_BYTES, value_bytes
from anabranch.keyspace.values import StringValue, Value
from anabranch.stream.compression import BlockCache
from anabranch.stream.stream import Stream

UNBOUND: Final = -1
"""The counted bytes of a value to which no key is bound."""

_EMPTY_STREAM_BYTES: Final = value_bytes(Stream(0, 0))
_SAMPLES: Final = 5

_BYTES_BESIDE_NAME: Final = KEY_BYTES + getsizeof(b"")
"""The estimated bytes of a key without the bytes of its name."""


class Account:
    """The sum over all keys of a keyspace."""

    def __init__(self, block_cache: BlockCache) -> None:
        self._block_cache = block_cache
        self._counted_bytes = 0
        self._due: deque[Value] = deque()  # changed since they were measured
        self._growth_bytes = 0  # average growth of the values that were measured last
        self.beside_bytes = 0
        """The last measured bytes beside the keys: tags of idempotent producers."""

    @property
    def used_bytes(self) -> int:
        """The estimated bytes of all keys and values."""
        growth = max(self._growth_bytes, 0) * len(self._due)
        return self._counted_bytes + growth + self.beside_bytes + self._block_cache.held

    @property
    def due(self) -> int:
        """How many values have changed since they were measured."""
        return len(self._due)

    def block_filled(self, count: int) -> None:
        """A block of so many bytes is full: it may be packed from now on."""
        self._block_cache.filled += count

    def bind(self, key: bytes, value: Value) -> None:
        """A key is bound to a value that no other key is bound to."""
        value.counted_bytes = _EMPTY_STREAM_BYTES if type(value) is Stream else 0
        self._counted_bytes += value.counted_bytes + _BYTES_BESIDE_NAME + len(key)
        if not value.is_due:
            self.changed(value)

    def unbind(self, key: bytes, value: Value) -> None:
        """A key is unbound from its value."""
        self._counted_bytes -= value.counted_bytes + _BYTES_BESIDE_NAME + len(key)
        value.counted_bytes = UNBOUND

    def bind_strings(
        self, new: Collection[bytes], strings: list[StringValue], older: Collection[Value]
    ) -> None:
        """New strings are bound to ``new`` keys and to those of ``older`` values.

        Some of the strings may be among the older values.
        """
        for string in strings:
            string.counted_bytes = 0
            string.is_due = True
        self._due.extend(strings)
        self._counted_bytes += _bytes_of_keys(new) - _unbound_bytes(older)

    def unbind_all(self, keys: Collection[bytes], values: Collection[Value]) -> None:
        """Several keys are unbound from their values."""
        self._counted_bytes -= _bytes_of_keys(keys) + _unbound_bytes(values)

    def changed(self, value: Value) -> None:
        """Measure the value later; call this only if ``value.is_due`` is false."""
        value.is_due = True
        self._due.append(value)

    def measure_changed(self, count: int, ticks_ns: Callable[[], int], at_most_ns: int) -> None:
        """Measure changed values: at most so many, and until the time limit."""
        due = self._due
        if not due:
            return
        end_ns = ticks_ns() + at_most_ns
        growth = measured = 0
        while due and measured < count:
            value = due.popleft()
            value.is_due = False
            if value.counted_bytes == UNBOUND:  # the key was removed
                continue
            growth += self.measure(value)
            measured += 1
            if type(value) is Stream and value.retained is not None:
                value.retained.look()
            if ticks_ns() > end_ns:
                break
        if measured:
            self._growth_bytes = growth // measured

    def measure(self, value: Value) -> int:
        """Measure the value of a key at once; returns by how much it has grown."""
        size = value_bytes(value, _SAMPLES)
        growth = size - value.counted_bytes
        self._counted_bytes += growth
        value.counted_bytes = size
        return growth

    def saved(self, value: Value, size: int) -> None:
        """A value uses so many bytes less, which is known without measuring it."""
        if value.counted_bytes != UNBOUND:
            size = min(size, value.counted_bytes)
            value.counted_bytes -= size
            self._counted_bytes -= size

    def exchange(self, other: Account) -> None:
        """Swap with the account of another keyspace, whose keys are swapped with ours."""
        for name in ("_counted_bytes", "_due", "_growth_bytes"):
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, theirs)
            setattr(other, name, mine)

    def check(self, databases: list[dict[bytes, Value]]) -> None:
        """Assert that the sum is that of these keys."""
        total = sum(
            value.counted_bytes + KEY_BYTES + getsizeof(key)
            for values in databases
            for key, value in values.items()
        )
        assert total == self._counted_bytes
        assert all(value.counted_bytes >= 0 for values in databases for value in values.values())


def _unbound_bytes(values: Collection[Value]) -> int:
    """The counted bytes of values that are unbound from their keys."""
    counted = 0
    for value in values:
        counted += value.counted_bytes
        value.counted_bytes = UNBOUND
    return counted


def _bytes_of_keys(keys: Collection[bytes]) -> int:
    return _BYTES_BESIDE_NAME * len(keys) + sum(map(len, keys))
