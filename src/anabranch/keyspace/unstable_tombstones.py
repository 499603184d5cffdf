"""The effects that have left tombstones which some member may lack.

While a member is away there may be millions of them, so each takes 16 bytes: two arrays for each
replica ID, with the numbers of the effects and when they arrived.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import chain
from sys import getsizeof

from anabranch.stream.shared import Dot


class UnstableTombstones:
    """A set of dots; the oldest is the one that arrived first, as far as that is known."""

    def __init__(self) -> None:
        self._numbers: dict[int, array[int]] = {}  # by replica ID, ascending
        self._arrivals: dict[int, array[int]] = {}  # a running count for each of them
        self._arrived = 0

    def __len__(self) -> int:
        return sum(map(len, self._numbers.values()))

    @property
    def used_bytes(self) -> int:
        """The memory of both arrays of each replica ID."""
        return sum([2 * getsizeof(numbers) for numbers in self._numbers.values()])

    @property
    def oldest(self) -> Dot | None:
        """The dot that arrived first; None if there is none."""
        if not self._numbers:
            return None
        replica_id = min(self._arrivals, key=lambda each: self._arrivals[each][0])
        return replica_id, self._numbers[replica_id][0]

    def add(self, dot: Dot) -> None:
        """Add a dot; the dots of a replica ID mostly come in the order of their numbers."""
        replica_id, number = dot
        numbers = self._numbers.setdefault(replica_id, array("Q"))
        arrivals = self._arrivals.setdefault(replica_id, array("Q"))
        at = len(numbers)
        if at and number <= numbers[-1]:
            at = bisect_left(numbers, number)
            if numbers[at] == number:
                return
        numbers.insert(at, number)
        arrivals.insert(at, self._arrived)
        self._arrived += 1

    def update(self, replica_id: int, numbers: list[int]) -> None:
        """Add dots of one replica ID, in any order; fast if their numbers ascend in long runs."""
        self._hold(replica_id, chain(self._numbers.get(replica_id, ()), numbers))
        self._arrived += 1

    def _hold(self, replica_id: int, numbers: Iterable[int]) -> None:
        """Hold exactly these dots of a replica ID; those that are new have arrived now."""
        known = dict(
            zip(self._numbers.get(replica_id, ()), self._arrivals.get(replica_id, ()), strict=True)
        )
        wanted = array("Q", dict.fromkeys(sorted(numbers)))
        if wanted:
            self._numbers[replica_id] = wanted
            self._arrivals[replica_id] = array("Q", [known.get(n, self._arrived) for n in wanted])

    def prune(self, watermark: Mapping[int, int]) -> int:
        """Drop the dots that a version vector covers; returns how many."""
        dropped = 0
        for replica_id in list(self._numbers):
            numbers = self._numbers[replica_id]
            covered = bisect_right(numbers, watermark.get(replica_id, 0))
            dropped += covered
            if covered == len(numbers):
                del self._numbers[replica_id], self._arrivals[replica_id]
            elif covered:
                del numbers[:covered], self._arrivals[replica_id][:covered]
        return dropped

    def renew(self, dots: Iterable[Dot]) -> None:
        """Hold exactly these dots. Those that were held before arrived before the others."""
        found: dict[int, set[int]] = {}
        for replica_id, number in dots:
            found.setdefault(replica_id, set()).add(number)
        for replica_id in list(self._numbers):
            if replica_id not in found:
                del self._numbers[replica_id], self._arrivals[replica_id]
        for replica_id, wanted in found.items():
            self._hold(replica_id, wanted)
        self._arrived += 1
