"""What commands tell and ask of leases and of other policies.

Who uses the name of a consumer, what a connection has lost, and, for AB.INFO and the page, what is
in force at present.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from anabranch.config.policies import POLICIES
from anabranch.engine.leases import LeasePlace
from anabranch.stream.retention import held_back

if TYPE_CHECKING:
    from anabranch.engine.context import Context
    from anabranch.engine.leases import Leases
    from anabranch.stream.groups.group import Group
    from anabranch.stream.retention import HeldBack
    from anabranch.stream.stream import Stream


def use_name(ctx: Context, key: bytes, name: bytes, group: Group, consumer: bytes) -> None:
    """The connection uses the name of a consumer of a group that has policies."""
    policed = group.policed
    if policed is not None and policed.policy.watches:
        place = LeasePlace(ctx.db.index, key, name, True, consumer)
        ctx.server.leases.use(ctx.session.id, place, policed.policy, ctx.now_ms)


def still_held(
    ctx: Context, key: bytes, name: bytes, group: Group, ids: Iterable[int]
) -> list[int]:
    """The IDs without entries that the connection has lost, before it acknowledges or releases.

    Lost is an entry that was released from a consumer of which the connection is a holder, and that
    another consumer has now. By the others the connection uses the names of their consumers.
    """
    found: list[int] = []
    policed = group.policed
    assert policed is not None
    leases, session_id = ctx.server.leases, ctx.session.id
    for entry_id in ids:
        is_lost = False
        for _, entry in group.pending.with_id(entry_id):
            owner = entry.consumer
            if owner is None:
                continue
            place = LeasePlace(ctx.db.index, key, name, True, owner.name)
            past = policed.past.get(entry)
            former = past[-1].consumer if past else None
            if (
                former is not None
                and former != owner.name
                and not leases.holds_name(session_id, place)
                and leases.holds_name(session_id, place._replace(consumer=former))
            ):
                is_lost = True
            elif policed.policy.watches:
                leases.use(session_id, place, policed.policy, ctx.now_ms)
        if not is_lost:
            found.append(entry_id)
    return found


# -- what policies do at present, for AB.INFO and the page -------------------------------------


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
