"""The policies of one consumer group, as values, and what they need beside them.

Both are of this process alone: they follow from the rules of the keyspace
(``keyspace/policies.py``) and from the group, are in no file and no effect, and are made again at
every start.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Container, Mapping
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from anabranch.config.policies import CONNECTION, HEARTBEAT, NO_LEASE, TIME, Lease, Room
from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.groups.ordering import Ordering
from anabranch.stream.groups.pending import MAX_DELIVERIES
from anabranch.stream.groups.pending_list import first_of

if TYPE_CHECKING:
    from anabranch.stream.groups.pending import GroupPending
    from anabranch.stream.groups.pending_entry import PendingEntry

__all__ = ["CONNECTION", "HEARTBEAT", "TIME", "Attempt", "GroupPolicy", "Lease", "Policed"]

PAST_MAX: Final = 10_000
"""Entries of a group whose past is known; then that of the oldest ones is forgotten."""

_FORGOTTEN: Final = 500
"""So many of them."""

_LOOKED_AT: Final = 500
"""Entries that are looked at in one step: half a millisecond."""

ATTEMPTS_MAX: Final = 5
"""Attempts with one entry that are remembered, the newest ones."""


class Attempt(NamedTuple):
    """What became of one delivery of an entry that is still pending."""

    consumer: bytes
    delivered_ms: int
    ended_ms: int
    reason: bytes


class GroupPolicy:
    """The values in force for a group. Values that nobody has set are the defaults of Redis."""

    __slots__ = (
        "acks_all",
        "backoff",
        "consumer_ttl_ms",
        "dead_letter",
        "deliveries_max",
        "halts",
        "home",
        "key_field",
        "lease",
        "redelivers",
        "room",
        "texts",
        "waiting_max",
        "watches",
    )

    def __init__(self, texts: Mapping[str, str], values: Mapping[str, Any]) -> None:
        """``texts`` and ``values`` are those that were set, by the names of policies."""
        self.texts = dict(texts)
        self.lease: Lease = values.get("lease", NO_LEASE)
        self.consumer_ttl_ms: int = values.get("consumer-ttl", 0)
        self.watches = bool(self.lease.mode) or self.consumer_ttl_ms > 0
        """Whether it matters which connections use the names of consumers."""
        dead = values.get("dead-letter", "").encode("utf-8", "surrogateescape")
        self.dead_letter: bytes | None = dead or None
        self.deliveries_max: int = values.get("max-deliveries", 0)
        """After so many deliveries an entry is given up; 0: it is not, except for XNACK FATAL."""
        field = values.get("key-field", "").encode("utf-8", "surrogateescape")
        self.key_field: bytes | None = field or None
        self.waiting_max: int = values.get("key-waiting", 10_000)
        self.halts: bool = field != b"" and values.get("on-poison") == "halt"
        """Whether a key stops at an entry that is given up."""
        if not self.deliveries_max and (self.dead_letter is not None or self.halts):
            self.deliveries_max = MAX_DELIVERIES
        self.backoff: tuple[int, ...] = values.get("backoff", ())
        self.room: Room = values.get("max-pending", Room(False, 0))
        first = bool(self.lease.mode) or bool(self.backoff)
        first = values["redeliver"] == "first" if "redeliver" in values else first
        self.redelivers: bool = first or self.key_field is not None
        """Whether plain reads are given released entries before new ones."""
        self.home: int = values.get("home-region", 0)
        """The region in which the group is delivered at first; 0: in every region."""
        self.acks_all: bool = self.home > 0 or values.get("acks") == "all"
        """Whether acknowledgements travel that have pending entries before them."""

    def gives_up(self, delivery_count: int) -> bool:
        """Whether an entry that was delivered so often is not to be delivered again."""
        return 0 < self.deliveries_max <= delivery_count

    def is_halted(self, entry: PendingEntry) -> bool:
        """Whether an entry that has a key was given up, and stops the key."""
        return self.halts and entry.consumer is None and entry.delivery_count == MAX_DELIVERIES

    def due_ms(self, entry: PendingEntry) -> int:
        """From when on a released entry may be handed out: some time after its release."""
        delays = self.backoff
        if not delays or not entry.delivery_ms:
            return 0
        return entry.delivery_ms + delays[min(max(entry.delivery_count, 1), len(delays)) - 1]


class Policed:
    """What a group with policies has beside them: ``group.policed`` is None without any."""

    __slots__ = (
        *("_delayed", "_delayed_below", "_number", "halted", "holds_back", "order", "owed"),
        *("past", "policy", "ripe", "told"),
    )

    def __init__(self, policy: GroupPolicy) -> None:
        self.policy = policy
        self.order: Ordering | None = None
        if policy.key_field is not None:
            self.order = Ordering(policy.key_field, self.offer, self.withdraw)
        self.holds_back = policy.room.most > 0 or self.order is not None
        """Whether readers may wait although there are entries: until others leave a consumer."""
        self.halted: dict[PendingEntry, None] = {}
        """Entries that stop their keys, as far as it is their turn."""
        self.owed = False
        """Whether the odd entry of a read goes to a released one: of two reads it goes to one."""
        self.past: dict[PendingEntry, list[Attempt]] = {}
        """Of entries that were released: earlier deliveries, as far as this process knows them."""

        self.told: dict[int, int] = {}
        """With ``acks all``, by replica ID: other regions were told what had been held back up to
        this number. Later acknowledgements are told at once."""
        self._delayed: list[tuple[int, int, int, PendingEntry]] = []
        # A heap, by the time of its end, and the order of release.
        self._delayed_below = MIN_ID  # of the others only what was released since is in the heap
        self._number = 0
        self.ripe: OrderedDict[PendingEntry, None] = OrderedDict()
        """With a backoff: released entries whose delay is over, and some that were taken since.
        With an order: released entries whose turn it is, and whose delay is over."""

    def offer(self, entry: PendingEntry, has_key: bool) -> None:
        """It is the turn of a released entry: nothing of its key is before it."""
        if has_key and self.policy.is_halted(entry):
            self.halted[entry] = None
            if self.order is not None:
                self.order.suspects.append(entry)
                self.order.must_look = True
        elif self.policy.due_ms(entry):
            self.delay(entry)
            if self.order is not None:
                self.order.must_look = True
        else:
            self.ripe[entry] = None

    def withdraw(self, entry: PendingEntry) -> None:
        """It is not the turn of an entry any more."""
        self.ripe.pop(entry, None)
        self.halted.pop(entry, None)

    def released(self, entry: PendingEntry) -> None:
        """An entry was released in a group without an order."""
        if self.policy.backoff:
            self.delay(entry)

    def delay(self, entry: PendingEntry) -> None:
        """An entry was released in a group with a backoff."""
        self._number += 1
        due_ms = self.policy.due_ms(entry)
        heapq.heappush(self._delayed, (due_ms, entry.stamp, self._number, entry))

    def delay_some(self, pending: GroupPending) -> bool:
        """Delay some of what had been released before there was a backoff.

        Returns whether all of it is delayed, which it is at once with an order.
        """
        if self.order is None and self._delayed_below <= MAX_ID:
            some = first_of(pending.lists, self._delayed_below, MAX_ID, _LOOKED_AT)
            for entry in some:
                if entry.consumer is None:
                    self.delay(entry)
            is_last = len(some) < _LOOKED_AT
            self._delayed_below = MAX_ID + 1 if is_last else some[-1].entry_id + 1
        return self.order is not None or self._delayed_below > MAX_ID

    def shrink(self, count: int) -> bool:
        """Free some of what nobody will ask for any more; returns whether others are left."""
        del self._delayed[-count:]
        return bool(self._delayed) or (self.order is not None and self.order.shrink(count))

    def next_due_ms(self) -> int | None:
        """When the next delay ends."""
        return self._delayed[0][0] if self._delayed else None

    def ripen(
        self, released: Container[PendingEntry], now_ms: int, most: int
    ) -> dict[PendingEntry, None]:
        """The entries whose delay is over, in that order; the first one was not taken since.

        If more than ``most`` are known, others are not looked for; -1: all are. Of many entries
        that were taken before their delay was over, each call passes over some.
        """
        delayed, ripe = self._delayed, self.ripe
        looked_at = 0
        while delayed and delayed[0][0] <= now_ms:
            if most >= 0 and (len(ripe) > most or looked_at >= most + _LOOKED_AT):
                break
            looked_at += 1
            entry = heapq.heappop(delayed)[3]
            if entry not in released or self.policy.due_ms(entry) > now_ms:
                continue
            if self.order is None or self.order.may_go(entry):
                ripe[entry] = None
        gone = takewhile(
            lambda entry: entry not in released or self.policy.due_ms(entry) > now_ms, ripe
        )
        for entry in list(gone):
            del ripe[entry]
        return ripe

    def share(self, count: int, new: int) -> int:
        """How many released entries a read of ``count`` may have while ``new`` ones wait.

        At most half, so that what always fails cannot starve the group.
        """
        half = count // 2
        if count % 2:
            self.owed = not self.owed
            half += self.owed
        return max(half, count - new)

    def note(self, entry: PendingEntry, attempt: Attempt) -> None:
        """A consumer loses an entry, or gives it back."""
        past = self.past
        attempts = past.pop(entry, [])
        attempts.append(attempt)
        if len(attempts) > ATTEMPTS_MAX:
            del attempts[0]
        past[entry] = attempts
        if len(past) > PAST_MAX:  # many at once: a search for the first steps over removed ones
            for oldest in list(islice(past, _FORGOTTEN)):
                del past[oldest]
