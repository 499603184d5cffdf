"""What policies do for a stream and a group at present: for AB.INFO, and for the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from anabranch.config.policies import POLICIES
from anabranch.engine.leases import LeasePlace
from anabranch.stream.retention import held_back

if TYPE_CHECKING:
    from anabranch.engine.leases import Leases
    from anabranch.stream.groups.group import Group
    from anabranch.stream.retention import HeldBack
    from anabranch.stream.stream import Stream


class LeaseState(NamedTuple):
    """How one consumer holds its entries."""

    consumer: bytes
    pending: int
    connections: list[int]
    """The IDs of its holders, as in CLIENT LIST."""
    ends_in_ms: int | None
    """When its lease ends, 0: it is over; None while a connection holds, and where each entry has
    an end of its own."""


def lease_states(
    leases: Leases, db: int, key: bytes, name: bytes, group: Group, now_ms: int
) -> list[LeaseState]:
    """The consumers of a group; none without a lease or a ``consumer-ttl``."""
    if group.policed is None or not group.policed.policy.watches:
        return []
    policy = group.policed.policy
    found = []
    for consumer in group.consumers.values():
        hold = leases.holds.get(LeasePlace(db, key, name, True, consumer.name))
        connections = [] if hold is None else sorted(hold.sessions)
        end_ms = None if hold is None else hold.lease_end_ms(policy)
        left_ms = None if end_ms is None else max(end_ms - now_ms, 0)
        found.append(LeaseState(consumer.name, consumer.pending_count, connections, left_ms))
    return found


class RetentionState(NamedTuple):
    """What a stream keeps to, and what stays in spite of it."""

    policies: dict[str, str]
    """The texts of those that are in force."""
    held_back: HeldBack


def retention_state(stream: Stream, now_ms: int) -> RetentionState | None:
    """None for a stream of which nothing is removed."""
    retained = stream.retained
    if retained is None:
        return None
    values = retained.policy.values
    texts = {name: POLICIES[name].kind.format(value) for name, value in values.items()}
    return RetentionState(texts, held_back(stream, retained, now_ms))
