"""Blocked commands: which keys each waits for, in which order, until when."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from anabranch.compiling import mypyc_attr
from anabranch.keyspace.values import Value
from anabranch.metrics.holdings import DICT_BYTES, DICT_SLOT_BYTES, PAIR_BYTES, bytes_of
from anabranch.scheduling import Steps, in_one_go
from anabranch.stream.stream import Stream

_FEW: Final = 8

_KEYS_AT_ONCE: Final = 1000
"""Keys whose queues a command leaves in one step: a fraction of a millisecond."""

Condition = Callable[["Value | None"], bool]
"""Whether running a command again can end its wait, judged by the present value of a signalled key
(None: no such key). Equal conditions are judged together."""


class Waiter:
    """One blocked command of one connection.

    ``keys`` are distinct keys of database ``db``. The command waits until one of them meets
    ``wants``; if that is None, until one is a stream whose last ID is greater than the one that
    ``behind`` has for it. ``deadline_ms`` of 0 waits for ever; at ``recheck_ms`` (0: never) the
    command runs again although no key was signalled (a pending entry comes of age). ``request`` is
    what a reading command has parsed, and does not parse again. ``late_reply`` makes the reply of
    a time-out in place of ``timeout_reply``. ``is_lasting``: it is a subscription, and stays in its
    queues while its connection goes on; ``is_behind`` and ``is_due`` then say that it must look at
    all of its keys, and that it will run again soon. ``fails_without_key`` is set for
    XREADGROUP, which fails when its key is removed. ``changed`` is set when the command runs again:
    the keys that may differ from what it saw last (None: all), among others. ``number`` and
    ``held_bytes`` are given by :class:`anabranch.keyspace.waiter.Waiters`.
    """

    def __init__(
        self,
        session: Any,
        args: list[bytes],
        db: int,
        keys: list[bytes],
        deadline_ms: int,
        timeout_reply: bytes,
    ) -> None:
        self.session = session
        self.args = args
        self.db = db
        self.keys = keys
        self.deadline_ms = deadline_ms
        self.timeout_reply = timeout_reply
        self.late_reply: Callable[[], bytes] | None = None
        self.is_lasting = False
        self.is_behind = False
        self.is_due = False
        self.wants: Condition | None = None
        self.behind: list[int] = []
        self.fails_without_key = False
        self.recheck_ms = 0
        self.request: Any = None
        self.changed: Collection[bytes] | None = None
        self.number = 0
        self.held_bytes = 0
        self.conditions: dict[Waiter, Any] | None = None

    def wait_for(self, conditions: dict[Waiter, Any], condition: Any) -> None:
        """Be in a table of those who wait for other things than keys, until the wait ends."""
        self.conditions = conditions
        conditions[self] = condition

    def places(self, keys: list[bytes]) -> Sequence[int]:
        """The places of those of the keys in its request that it must look at."""
        changed = self.changed
        if changed is None:
            return range(len(keys))
        return [at for at, key in enumerate(keys) if key in changed]

    def behind_at(self, at: int) -> int:
        """The ID that an entry of the key at this place must be behind, 0 if ``wants`` decides."""
        return self.behind[at] if self.wants is None else 0


_QUEUE_BYTES: Final = 200
_PLACE_BYTES: Final = PAIR_BYTES + DICT_SLOT_BYTES
"""What each waiter of a queue takes in it."""


@mypyc_attr(acyclic=True)
class KeyQueue:
    """The commands that are blocked on one key, in lanes: those of a lane wait for the same.

    So a change costs a look at each lane, however many wait in it. Readers that wait for an entry
    behind an ID are in the order of these IDs: a change costs those nothing whose ID is greater.
    A *lone* queue contains one command and is never changed: it is the queue of each of the keys
    for which nobody else waits, so a command that waits for thousands of keys needs one.
    """

    def __init__(self, waiter: Waiter, behind: int) -> None:
        self._lanes: dict[Condition, dict[int, Waiter]] = {}
        self._readers: dict[int, dict[int, Waiter]] = {}  # lanes by the ID to be behind
        self._behind: list[int] = []  # these IDs, ascending
        self._count = 0
        self._add(waiter, behind)
        self.is_lone = True

    def joined_by(self, waiter: Waiter, behind: int) -> KeyQueue:
        """The queue of a key for which one more waits, for an entry behind an ID or what it wants.

        It is this queue, or if this one is lone, a new one.
        """
        queue = self
        if self.is_lone:
            (first,) = self.waiters()
            queue = KeyQueue(first, self._behind[0] if self._behind else 0)
            queue.is_lone = False
        queue._add(waiter, behind)
        return queue

    def _add(self, waiter: Waiter, behind: int) -> None:
        self._count += 1
        wants = waiter.wants
        lane = self._readers.get(behind) if wants is None else self._lanes.get(wants)
        if lane is not None:
            lane[waiter.number] = waiter
        elif wants is None:
            self._readers[behind] = {waiter.number: waiter}
            insort(self._behind, behind)
        else:
            self._lanes[wants] = {waiter.number: waiter}

    def has(self, waiter: Waiter) -> bool:
        """Whether a command, which waits for a condition, is in the queue."""
        lane = self._lanes.get(waiter.wants) if waiter.wants is not None else None
        return lane is not None and waiter.number in lane

    def sort(self) -> None:
        """Restore the order of the lanes after a command has joined that began to wait earlier."""
        for wants, lane in self._lanes.items():
            self._lanes[wants] = dict(sorted(lane.items()))

    def remove(self, waiter: Waiter, behind: int) -> bool:
        """Remove a command; returns whether the queue, which is not lone, is empty then."""
        self._count -= 1
        wants = waiter.wants
        lane = self._readers[behind] if wants is None else self._lanes[wants]
        if len(lane) > 1:
            del lane[waiter.number]
        elif wants is None:
            del self._readers[behind]
            del self._behind[bisect_left(self._behind, behind)]
        else:
            del self._lanes[wants]
        return not self._count

    @property
    def used_bytes(self) -> int:
        """What the queue takes beside its waiters."""
        lanes = len(self._lanes) + len(self._readers)
        return _QUEUE_BYTES + DICT_BYTES * lanes + _PLACE_BYTES * self._count

    @property
    def fails_without_key(self) -> bool:
        """Whether one of the commands fails when the key is removed."""
        for lane in self._lanes.values():
            for waiter in lane.values():
                if waiter.fails_without_key:
                    return True
                break  # those of a lane are alike
        return False

    def called(
        self, value: Callable[[], Value | None], *, is_reviewed: bool = False
    ) -> Iterator[Waiter]:
        """Those that must run again, in the order in which they blocked.

        ``value`` reads the key: each of them may change it. ``is_reviewed``: all who fail without
        the key must look, whatever the present value is.
        """
        now = value()
        sources: list[Iterator[Waiter]] = []
        if type(now) is Stream:
            reached = self._behind[: bisect_left(self._behind, now.last_id)]
            sources = [iter(list(self._readers[behind].values())) for behind in reached]
        for wants, lane in self._lanes.items():
            if is_reviewed and _first(lane).fails_without_key:
                sources.append(iter(list(lane.values())))
            elif wants(now):
                sources.append(_served(lane, wants, value))
        if len(sources) == 1:
            return sources[0]
        return heapq.merge(*sources, key=_number)

    def waiters(self) -> list[Waiter]:
        """All of them, in the order in which they blocked."""
        lanes = [*self._lanes.values(), *self._readers.values()]
        return sorted([each for lane in lanes for each in lane.values()], key=_number)

    def check(self) -> None:
        """Assert every invariant of a queue."""
        assert self._behind == sorted(self._readers)
        lanes = [*self._lanes.values(), *self._readers.values()]
        assert all(lanes)
        assert self._count == sum(map(len, lanes))
        for lane in lanes:
            assert list(lane) == sorted(lane)
            assert len({each.fails_without_key for each in lane.values()}) == 1


def _served(
    lane: dict[int, Waiter], wants: Condition, value: Callable[[], Value | None]
) -> Iterator[Waiter]:
    """Those of a lane, until there is nothing left for the next one."""
    # The first few are enough as a rule; a list of all costs as much as the lane is long.
    last = 0
    for most in (_FEW, len(lane)):
        for waiter in list(islice(lane.values(), most)):
            if waiter.number > last:
                if not wants(value()):
                    return
                last = waiter.number
                yield waiter


def _first(lane: dict[int, Waiter]) -> Waiter:
    return next(iter(lane.values()))


def _number(waiter: Waiter) -> int:
    return waiter.number


STALE_TIMERS: Final = 64
"""Obsolete timers are removed when they outnumber the others by more than this."""

WAITER_BYTES: Final = 300
"""A blocked command with its parsed form, its timer and its conditions."""

_KEY_BYTES: Final = DICT_SLOT_BYTES
"""What each key takes beside the arguments and its queue: its place in the table of queues."""


class Waiters:
    """All blocked commands of a server, and their timers.

    A waiter stays in the queue of each of its keys until it is served, times out or is unblocked.
    When one of its keys is signalled its command runs again; the command may answer, fail, or
    continue to wait in its place with its original deadline.
    """

    def __init__(self, queues: Sequence[tuple[dict[bytes, KeyQueue], set[bytes]]]) -> None:
        """``queues`` has for each database its ``waiters`` and ``reviewed``."""
        self._queues = queues
        self.active: dict[int, Waiter] = {}
        """By their numbers, in the order in which they began to wait."""
        self._number = 0
        self._lasting = 0
        self.carry_out: Callable[[Steps[None]], None] = in_one_go
        """Does what takes long, in steps."""
        # A heap of times and numbers; stale ones are skipped.
        self._timers: list[tuple[int, int]] = []

    def enqueue(self, waiter: Waiter) -> None:
        """Queue a command after all that wait for its keys already."""
        self._number += 1
        waiter.number = self._number
        self.active[waiter.number] = waiter
        self._lasting += waiter.is_lasting
        held, shared = self._join(waiter, 0)
        self.hold(waiter, WAITER_BYTES + bytes_of(waiter.args) + held, shared)
        self._arm(waiter.deadline_ms, waiter)
        self._arm(waiter.recheck_ms, waiter)

    def extend(self, waiter: Waiter, keys: Iterable[bytes]) -> None:
        """Let a command wait for more keys, unless it does; what it wants is a condition."""
        queues, _ = self._queues[waiter.db]
        first = len(waiter.keys)
        for key in keys:
            queue = queues.get(key)
            if queue is None or not queue.has(waiter):
                waiter.keys.append(key)
        held, shared = self._join(waiter, first)
        self.hold(waiter, held, shared)
        for key in waiter.keys[first:]:
            if not queues[key].is_lone:
                queues[key].sort()

    def _join(self, waiter: Waiter, first: int) -> tuple[int, int]:
        """Join the queues of its keys, from this place on.

        Returns the bytes that it holds, and how many more those hold who wait in these queues.
        """
        new = 0
        held = _KEY_BYTES * (len(waiter.keys) - first)
        lone: KeyQueue | None = None
        lone_behind = 0
        queues, _ = self._queues[waiter.db]
        for at in range(first, len(waiter.keys)):
            key, behind = waiter.keys[at], waiter.behind_at(at)
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
        return held, new

    def hold(self, waiter: Waiter, size: int, shared: int = 0) -> None:
        """Count so many bytes more of a command that waits, and ``shared`` ones of several."""
        waiter.held_bytes += size
        waiter.session.hold("waiting", size, shared)

    @property
    def blocked(self) -> int:
        """How many connections cannot go on."""
        return len(self.active) - self._lasting

    def requeue(self, waiter: Waiter) -> None:
        """Let a command wait behind all others that wait for its keys."""
        self.remove(waiter)
        self.enqueue(waiter)

    def expire_at(self, waiter: Waiter, deadline_ms: int) -> None:
        """End a wait at a time of day, 0 for never."""
        waiter.deadline_ms = deadline_ms
        self._arm(deadline_ms, waiter)

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
        self._lasting -= waiter.is_lasting
        if waiter.conditions is not None:
            waiter.conditions.pop(waiter, None)
        keys = waiter.keys
        if len(keys) > _KEYS_AT_ONCE:
            self.carry_out(self._leaving(waiter))
        else:
            self.hold(waiter, -waiter.held_bytes, -self._leave(waiter, keys, 0))

    def _leaving(self, waiter: Waiter) -> Steps[None]:
        """Take a command with very many keys out of their queues, some in each step."""
        for first in range(0, len(waiter.keys), _KEYS_AT_ONCE):
            some = waiter.keys[first : first + _KEYS_AT_ONCE]
            self.hold(waiter, 0, -self._leave(waiter, some, first))
            yield
        self.hold(waiter, -waiter.held_bytes)

    def _leave(self, waiter: Waiter, keys: list[bytes], first: int) -> int:
        """Take a command out of the queues of some of its keys, which begin at a place.

        Returns how many bytes less those hold who wait in these queues.
        """
        gone = 0
        queues, reviewed = self._queues[waiter.db]
        for at, key in enumerate(keys, first):
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
            reviewed.difference_update([key for key in keys if key not in queues])
        return gone

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
