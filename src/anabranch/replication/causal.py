"""Batches that have arrived and wait: for an earlier number, a cause, or the rest of a unit.

A unit is a run of batches of one replica ID of which all but the last have the flag ``CONTINUES``;
it is applied as one. It is ready when it follows what is applied of its replica ID and everything
it depends on is applied. Callers pass the version vectors; nothing is applied here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from sys import getsizeof
from typing import Final, NamedTuple

from anabranch.keyspace.memory import scaled
from anabranch.metrics.holdings import OBJECT_BYTES
from anabranch.oplog.batch import Batch

_SAMPLES: Final = 10
"""Batches, and parts of each, that are measured for an estimate of all."""


class Held(NamedTuple):
    """A batch that waits for its causes, and where it came from."""

    batch: Batch
    raw: bytes
    source: int
    """The region that sent it."""
    since_ms: float


class MissingEffects(NamedTuple):
    """Effects for which a batch waits."""

    replica_id: int
    upto: int
    source: int
    """The region that sent the waiting batch, and so must have these effects."""
    since_ms: float
    """When the waiting batch arrived."""


class CausalBuffer:
    """The waiting batches, by replica ID, ascending and without overlaps."""

    def __init__(self) -> None:
        self._held: dict[int, list[Held]] = {}
        self._run_end: dict[int, int] = {}  # by replica ID: up to where the queue has no gap
        self._count = 0
        self.bytes_of: Counter[int] = Counter()
        """Waiting bytes, by the region that sent them."""

    def __len__(self) -> int:
        return self._count

    @property
    def used_bytes(self) -> int:
        """The memory of all of them, estimated from some."""
        return sum([scaled(queue, _held_bytes, _SAMPLES) for queue in self._held.values()])

    def add(self, held: Held) -> bool:
        """Keep a batch; false if it, or a part of it, is already here."""
        batch = held.batch
        queue = self._held.setdefault(batch.replica_id, [])
        if queue and batch.first == queue[-1].batch.last + 1:  # as it is usual
            if self._run_end[batch.replica_id] == batch.first - 1:
                self._run_end[batch.replica_id] = batch.last
            queue.append(held)
            self._count += 1
            self.bytes_of[held.source] += len(held.raw)
            return True
        at = bisect_left(queue, batch.first, key=lambda other: other.batch.first)
        if at and queue[at - 1].batch.last >= batch.first:
            return False
        if at < len(queue) and queue[at].batch.first <= batch.last:
            return False
        queue.insert(at, held)
        if at == 0:
            self._run_end[batch.replica_id] = batch.last
        if at == 0 or batch.first == self._run_end[batch.replica_id] + 1:
            self._follow(batch.replica_id, at)
        self._count += 1
        self.bytes_of[held.source] += len(held.raw)
        return True

    def reach(self, replica_id: int, applied: int) -> int:
        """The last number up to which there is no gap; ``applied`` effects are applied."""
        queue = self._held.get(replica_id)
        if not queue or queue[0].batch.first > applied + 1:
            return applied
        end = self._run_end[replica_id]
        if end >= applied:
            return end
        for held in queue:  # what is applied came another way as well
            if held.batch.first > applied + 1:
                break
            applied = max(applied, held.batch.last)
        return applied

    def _follow(self, replica_id: int, at: int) -> None:
        """Find the end of the run without a gap, which contains this batch."""
        queue = self._held[replica_id]
        end = queue[at].batch.last
        while at + 1 < len(queue) and queue[at + 1].batch.first == end + 1:
            at += 1
            end = queue[at].batch.last
        self._run_end[replica_id] = end

    def last(self) -> dict[int, int]:
        """The last number that waits, by replica ID."""
        return {
            replica_id: queue[-1].batch.last for replica_id, queue in self._held.items() if queue
        }

    def ending(self, replica_id: int, number: int) -> bytes | None:
        """The bytes of the batch that waits and ends with a number."""
        queue = self._held.get(replica_id, [])
        at = bisect_left(queue, number, key=lambda held: held.batch.last)
        return queue[at].raw if at < len(queue) and queue[at].batch.last == number else None

    def next_units(self, vector: Mapping[int, int], numbers: int = 0) -> list[Held]:
        """Units of one replica ID that can be applied one after the other; empty if there is none.

        One unit, and more of them while all have at most so many numbers. They stay
        until :meth:`remove`.
        """
        for replica_id in self._held:
            units, whole = self._head(replica_id, vector)
            if whole and next(_lacking(units, vector), None) is None:
                self._add_following(units, vector, numbers)
                return units
        return []

    def _add_following(self, units: list[Held], vector: Mapping[int, int], numbers: int) -> None:
        """Add the units behind a first one that can be applied after it.

        A unit of several batches is long: it is applied alone.
        """
        first = units[0].batch
        expected = units[-1].batch.last + 1
        for held in islice(self._held[first.replica_id], len(units), None):
            batch = held.batch
            if (
                batch.first != expected
                or batch.last - first.first >= numbers
                or batch.continues
                or next(_lacking([held], vector), None) is not None
            ):
                break
            units.append(held)
            expected = batch.last + 1

    def remove(self, units: list[Held]) -> None:
        """Remove units that are applied now."""
        self._drop(units[0].batch.replica_id, len(units))

    def missing(self, vector: Mapping[int, int]) -> Iterator[MissingEffects]:
        """The effects for which the first batch of every replica ID waits."""
        for replica_id, queue in self._held.items():
            if not queue:
                continue
            first = queue[0]
            if first.batch.first > vector.get(replica_id, 0) + 1:
                yield MissingEffects(
                    replica_id, first.batch.first - 1, first.source, first.since_ms
                )
                continue
            unit, _ = self._head(replica_id, vector)
            for cause, number in _lacking(unit, vector):
                yield MissingEffects(cause, number, first.source, first.since_ms)

    def lacks_cause(self, replica_id: int, vector: Mapping[int, int]) -> bool:
        """Whether the next unit of a replica ID is here, but not all effects that it needs."""
        unit, _ = self._head(replica_id, vector)
        return next(_lacking(unit, vector), None) is not None

    def lacks_rest(self, replica_id: int, vector: Mapping[int, int]) -> bool:
        """Whether the next unit of a replica ID has arrived only in part."""
        unit, whole = self._head(replica_id, vector)
        return bool(unit) and not whole

    def drop_applied(self, vector: Mapping[int, int]) -> None:
        """Drop batches that are applied."""
        for replica_id, queue in self._held.items():
            applied = vector.get(replica_id, 0)
            self._drop(replica_id, sum(held.batch.first <= applied for held in queue))

    def drop(self, replica_id: int) -> None:
        """Drop everything of a replica ID."""
        self._drop(replica_id, len(self._held.get(replica_id, ())))

    def replica_ids(self) -> list[int]:
        """The replica IDs of which something waits for a cause."""
        return [replica_id for replica_id, queue in self._held.items() if queue]

    def oldest_ms(self, source: int | None = None) -> float | None:
        """When the oldest waiting batch (of one sender) arrived; None if none waits."""
        return min(
            (
                held.since_ms
                for queue in self._held.values()
                for held in queue
                if source is None or held.source == source
            ),
            default=None,
        )

    def count_of(self, source: int) -> int:
        """The count of waiting batches of one sender."""
        return sum(held.source == source for queue in self._held.values() for held in queue)

    def _head(self, replica_id: int, vector: Mapping[int, int]) -> tuple[list[Held], bool]:
        """The batches of the next unit, and whether the unit is complete."""
        unit: list[Held] = []
        expected = vector.get(replica_id, 0) + 1
        for held in self._held.get(replica_id, ()):
            if held.batch.first != expected:
                break
            unit.append(held)
            expected = held.batch.last + 1
            if not held.batch.continues:
                return unit, True
        return unit, False

    def _drop(self, replica_id: int, count: int) -> None:
        queue = self._held.get(replica_id, [])
        self._count -= len(queue[:count])
        for held in queue[:count]:
            self.bytes_of[held.source] -= len(held.raw)
        del queue[:count]
        if count and queue and queue[0].batch.first > self._run_end[replica_id]:
            self._follow(replica_id, 0)


def _held_bytes(held: Held) -> int:
    batch = held.batch
    size = getsizeof(held) + getsizeof(batch) + getsizeof(batch.dependencies) + getsizeof(held.raw)
    return size + len(batch) * OBJECT_BYTES + _nested_bytes(batch.effects)


def _nested_bytes(value: object) -> int:
    """The memory of a decoded value, estimated from some of its parts."""
    size = getsizeof(value) + OBJECT_BYTES // 2
    return size + (scaled(value, _nested_bytes, _SAMPLES) if isinstance(value, list) else 0)


def _lacking(unit: list[Held], vector: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    for held in unit:
        for replica_id, number in held.batch.dependencies.items():
            if vector.get(replica_id, 0) < number:
                yield replica_id, number
