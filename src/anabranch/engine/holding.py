"""What commands tell and ask of leases: who uses the name of a consumer, and what was lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from anabranch.engine.leases import LeasePlace

if TYPE_CHECKING:
    from anabranch.engine.context import Context
    from anabranch.stream.groups.group import Group


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
