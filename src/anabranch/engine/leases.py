"""Who holds pending entries by a lease, and when to look again: of this process alone, no state.

A *holder* of a consumer is a connection that has used the consumer's name on a group that has a
lease or a ``consumer-ttl``: by reading, claiming, renewing, or by acknowledging or releasing an
entry that the consumer has. Commands report that (:mod:`anabranch.engine.holding`). The region
looks at what is due, and releases entries (:mod:`anabranch.region.leases`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from anabranch.keyspace.expiry import Deadlines
from anabranch.stream.groups.policy import CONNECTION, HEARTBEAT, TIME

if TYPE_CHECKING:
    from anabranch.stream.groups.policy import GroupPolicy

UNKNOWN_MS: Final = 10_000
"""How long a consumer of which nothing is known has to show itself, after a start for example;
longer if its lease says so."""


class LeasePlace(NamedTuple):
    """Where there is something to look at: a consumer, or (an empty name) a group as a whole."""

    db: int
    key: bytes
    group: bytes
    is_consumer: bool
    consumer: bytes = b""


class Hold:
    """The holders of one consumer, and its last signs of life as wall-clock times."""

    __slots__ = ("left_ms", "sessions", "used_ms")

    def __init__(self, used_ms: int) -> None:
        self.sessions: set[int] = set()
        self.used_ms = used_ms
        """When its name was last used."""
        self.left_ms = used_ms
        """When its last holder closed."""

    def lease_end_ms(self, policy: GroupPolicy) -> int | None:
        """When the lease of its entries ends; None: not as far as this is known."""
        if policy.lease.mode == CONNECTION:
            return None if self.sessions else self.left_ms + policy.lease.ms
        if policy.lease.mode == HEARTBEAT:
            return self.used_ms + policy.lease.ms
        return None

    def life_end_ms(self, policy: GroupPolicy, seen_ms: int) -> int | None:
        """When the consumer is to be removed by ``consumer-ttl``; None: not as far as known."""
        if not policy.consumer_ttl_ms or self.sessions:
            return None
        return max(self.used_ms, self.left_ms, seen_ms) + policy.consumer_ttl_ms


class Leases:
    """The holders of all consumers, by place and by connection, and what to look at when."""

    __slots__ = ("_places", "deadlines", "holds")

    def __init__(self) -> None:
        self.holds: dict[LeasePlace, Hold] = {}
        self._places: dict[int, set[LeasePlace]] = {}  # by session ID
        self.deadlines: Deadlines[LeasePlace] = Deadlines()

    def use(self, session_id: int, place: LeasePlace, policy: GroupPolicy, now_ms: int) -> None:
        """A connection uses the name of a consumer."""
        hold = self.holds.get(place)
        if hold is None:
            hold = self.holds[place] = Hold(now_ms)
        hold.used_ms = now_ms
        mode = policy.lease.mode
        if mode == HEARTBEAT:  # it may be looked at later only, as one that nobody knew of
            self.look(place, now_ms + policy.lease.ms)
        elif mode == TIME:
            self.look(LeasePlace(place.db, place.key, place.group, False), now_ms + policy.lease.ms)
        if session_id not in hold.sessions:
            hold.sessions.add(session_id)
            self._places.setdefault(session_id, set()).add(place)

    def look(self, place: LeasePlace, at_ms: int) -> None:
        """Look at a place at a time, or earlier if that is planned already."""
        known = self.deadlines.get(place)
        if known is None or at_ms < known:
            self.deadlines[place] = at_ms

    def left(self, session_id: int, now_ms: int) -> None:
        """A connection has ended."""
        for place in self._places.pop(session_id, ()):
            hold = self.holds.get(place)
            if hold is not None:
                hold.sessions.discard(session_id)
                if not hold.sessions:
                    hold.left_ms = now_ms
                    self.look(place, now_ms)

    def expect(self, place: LeasePlace, policy: GroupPolicy, now_ms: int) -> None:
        """A consumer has entries, or a life, and nobody knows of holders: it must show itself."""
        hold = self.holds.get(place)
        if hold is None:
            hold = self.holds[place] = Hold(now_ms)
            hold.used_ms = hold.left_ms = now_ms + max(UNKNOWN_MS - policy.lease.ms, 0)
        self.look(place, now_ms)

    def drop(self, place: LeasePlace) -> None:
        """There is nothing to look at any more, and no holder."""
        self.deadlines.pop(place, None)
        hold = self.holds.get(place)
        if hold is not None and not hold.sessions:
            del self.holds[place]

    def holds_name(self, session_id: int, place: LeasePlace) -> bool:
        """Whether a connection is a holder of a consumer."""
        return place in self._places.get(session_id, ())

    def check(self) -> None:
        """Assert that both sides of each link are there."""
        by_place = {(id_, place) for place, hold in self.holds.items() for id_ in hold.sessions}
        by_session = {(id_, place) for id_, some in self._places.items() for place in some}
        assert by_place == by_session
        self.deadlines.check()
