"""Blocked commands: which keys each waits for, in which order, until when.

A waiter stays in the queue of each of its keys until it is served, times out or is unblocked. When
one of its keys is signalled its command runs again; the command may answer, fail, or continue to
wait in its place with its original deadline.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

from anabranch.keyspace.waiter import KeyQueue, Waiter
from anabranch.metrics.holdings import DICT_SLOT_BYTES, bytes_of

STALE_TIMERS: Final = 64
"""Obsolete timers are removed when they outnumber the others by more than this."""

WAITER_BYTES: Final = 300
"""A blocked command with its parsed form, its timer and its conditions."""

_KEY_BYTES: Final = DICT_SLOT_BYTES
"""What each key takes beside the arguments and its queue: its place in the table of queues."""


class Waiters:
    """All blocked commands of a server, and their timers."""

    def __init__(self, queues: Sequence[tuple[dict[bytes, KeyQueue], set[bytes]]]) -> None:
        """``queues`` has for each database its ``waiters`` and ``reviewed``."""
        self._queues = queues
        self.active: dict[int, Waiter] = {}
        """By their numbers, in the order in which they began to wait."""
        self._number = 0
        # A heap of times and numbers; stale ones are skipped.
        self._timers: list[tuple[int, int]] = []

    def enqueue(self, waiter: Waiter) -> None:
        """Queue a command after all that wait for its keys already."""
        self._number += 1
        waiter.number = self._number
        self.active[waiter.number] = waiter
        new = 0
        held = WAITER_BYTES + bytes_of(waiter.args) + _KEY_BYTES * len(waiter.keys)
        lone: KeyQueue | None = None
        lone_behind = 0
        queues, _ = self._queues[waiter.db]
        for at, key in enumerate(waiter.keys):
            behind = waiter.behind_at(at)
            queue = queues.get(key)
            if queue is None:
                if lone is None or behind != lone_behind:
                    lone, lone_behind = KeyQueue(waiter, behind), behind
                    held += lone.used_bytes
                queues[key] = lone
            else:
                new -= 0 if queue.is_lone else queue.used_bytes
                queue = queues[key] = queue.joined_by(waiter, behind)
                new += queue.used_bytes
        session = waiter.session
        waiter.held_bytes = held
        session.hold("waiting", waiter.held_bytes)
        session.holdings.change("waiting", new)
        self._arm(waiter.deadline_ms, waiter)
        self._arm(waiter.recheck_ms, waiter)

    def recheck_at(self, waiter: Waiter, at_ms: int) -> None:
        """Run the waiter's command again at a time of day."""
        waiter.recheck_ms = at_ms
        self._arm(at_ms, waiter)

    def _arm(self, at_ms: int, waiter: Waiter) -> None:
        if at_ms:
            heapq.heappush(self._timers, (at_ms, waiter.number))
            if len(self._timers) > 4 * len(self.active) + STALE_TIMERS:
                self._timers[:] = [each for each in self._timers if self._is_armed(each)]
                heapq.heapify(self._timers)

    def _is_armed(self, timer: tuple[int, int]) -> bool:
        """Whether a waiter still uses this timer."""
        waiter = self.active.get(timer[1])
        return waiter is not None and timer[0] in (waiter.deadline_ms, waiter.recheck_ms)

    def remove(self, waiter: Waiter) -> None:
        """Take a command out of every queue."""
        if self.active.pop(waiter.number, None) is None:
            return
        gone = 0
        if waiter.conditions is not None:
            waiter.conditions.pop(waiter, None)
        queues, reviewed = self._queues[waiter.db]
        for at, key in enumerate(waiter.keys):
            queue = queues[key]
            if queue.is_lone:
                del queues[key]
                continue
            gone += queue.used_bytes
            if queue.remove(waiter, waiter.behind_at(at)):
                del queues[key]
            else:
                gone -= queue.used_bytes
        if reviewed:
            reviewed.difference_update([key for key in waiter.keys if key not in queues])
        session = waiter.session
        session.hold("waiting", -waiter.held_bytes)
        session.holdings.change("waiting", -gone)

    def due(self, now_ms: int) -> Iterable[Waiter]:
        """Waiters whose deadline or recheck time has come; each at most once per timer."""
        timers = self._timers
        while timers and timers[0][0] <= now_ms:
            timer = heapq.heappop(timers)
            if self._is_armed(timer):
                yield self.active[timer[1]]

    def next_timer_ms(self) -> int | None:
        """When :meth:`due` will next have something, or None."""
        timers = self._timers
        while timers and timers[0][1] not in self.active:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def blocking_keys(self) -> tuple[int, int]:
        """(keys with waiters, those of them with a waiter that fails without the key)."""
        total = on_nokey = 0
        for queues, _ in self._queues:
            total += len(queues)
            for queue in queues.values():
                on_nokey += queue.fails_without_key
        return total, on_nokey
