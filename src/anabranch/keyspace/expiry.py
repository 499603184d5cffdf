"""Deadlines of keys, in a form that quickly finds those that have passed.

A dictionary from key to deadline, plus a heap of the same deadlines. A changed or removed deadline
stays in the heap until it is reached, or until such leftovers outnumber the rest. Heap items that
the dictionary does not confirm are skipped.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from sys import getsizeof
from typing import Final, Generic, TypeVar

from anabranch.metrics.holdings import DICT_SLOT_BYTES, OBJECT_BYTES, PAIR_BYTES

_SWEEP_MIN = 64
"""Below this number of leftovers the heap is not rebuilt."""

_FREED = 500
"""Deadlines that are freed in one step."""

_DEADLINE_BYTES: Final = DICT_SLOT_BYTES + getsizeof(1 << 41)
_HEAP_BYTES: Final = PAIR_BYTES + 8 + OBJECT_BYTES


_K = TypeVar("_K")


class Deadlines(dict[_K, int], Generic[_K]):
    """Key -> wall-clock millisecond at which the key is gone, or due. Keys can be ordered.

    Set a deadline by ``[key] = ms``, remove it by ``pop``. Do not use other writing methods of a
    dictionary: they do not update the heap.
    """

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[int, _K]] = []

    def __setitem__(self, key: _K, at_ms: int) -> None:
        super().__setitem__(key, at_ms)
        if len(self._heap) > 2 * len(self) + _SWEEP_MIN:
            self._heap = [(at_ms, key) for key, at_ms in self.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (at_ms, key))

    def clear(self) -> None:
        """Remove all deadlines."""
        super().clear()
        self._heap.clear()

    @property
    def used_bytes(self) -> int:
        """The memory of the deadlines; the keys are shared with the database."""
        return len(self) * _DEADLINE_BYTES + len(self._heap) * _HEAP_BYTES

    def first_due(self, now_ms: int) -> _K | None:
        """The key whose deadline passed first, None if none has passed; O(log n), amortised.

        Returns the same key again until its deadline is removed.
        """
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            at_ms, key = heap[0]
            if self.get(key) == at_ms:
                return key
            heapq.heappop(heap)
        return None

    def first_ms(self) -> int | None:
        """The earliest deadline; None if there is none."""
        heap = self._heap
        while heap:
            at_ms, key = heap[0]
            if self.get(key) == at_ms:
                return at_ms
            heapq.heappop(heap)
        return None

    def earliest(self, count: int) -> list[tuple[int, _K]]:
        """So many deadlines with their keys, the earliest first; O(count log count), amortised."""
        found: dict[_K, int] = {}
        first = self.first_ms()
        heap = self._heap
        front = [] if first is None else [(heap[0], 0)]
        while front and len(found) < count:
            (at_ms, key), index = heapq.heappop(front)
            if self.get(key) == at_ms:
                found[key] = at_ms
            for below in range(2 * index + 1, min(2 * index + 3, len(heap))):
                heapq.heappush(front, (heap[below], below))
        return [(at_ms, key) for key, at_ms in found.items()]

    def freed(self) -> Iterator[bool]:
        """Free all of it in steps (:meth:`anabranch.keyspace.deferred_free.DeferredFree.defer`)."""
        while self:
            for _ in range(min(_FREED, len(self))):
                self.popitem()
            yield True
        while self._heap:
            del self._heap[-_FREED:]
            yield True

    def check(self) -> None:
        """Assert every invariant."""
        assert {(at_ms, key) for key, at_ms in self.items()} <= set(self._heap)
        assert len(self._heap) <= 2 * len(self) + _SWEEP_MIN + 1 or not self
