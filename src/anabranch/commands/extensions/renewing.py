"""AB.RENEW: a worker goes on with its entries, and asks which of them it still has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.commands.stream.options import stream_and_group
from anabranch.config.policies import duration_ms
from anabranch.effects import kinds
from anabranch.effects.acknowledging import GroupPlace
from anabranch.engine.arguments import id_list
from anabranch.engine.holding import use_name
from anabranch.engine.homing import check_home
from anabranch.engine.leases import LeasePlace
from anabranch.errors import CommandError
from anabranch.scheduling import Steps
from anabranch.stream.entry_id import MAX_ID, MIN_ID, text
from anabranch.stream.groups.policy import TIME

_AT_ONCE: Final = 200
"""Entries that are renewed in one step: a millisecond."""

if TYPE_CHECKING:
    from anabranch.engine.context import Context
    from anabranch.stream.groups.pending_entry import PendingEntry
    from anabranch.stream.groups.pending_list import Consumer


def renew(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.RENEW key group consumer t [id ...]: the IDs that the consumer still has.

    With a ``time`` lease theirs end ``t`` from now. With another one, or none, their idle time
    begins anew, and it is a sign of life. Without IDs it is about all entries of the consumer.
    """
    key, name = args[1], args[2]
    stream, group = stream_and_group(ctx, key, name)
    check_home(ctx, key, name, group)
    try:
        ahead_ms = duration_ms(args[4].decode("latin-1"))
    except ValueError as objection:
        raise CommandError(f"ERR invalid time for AB.RENEW: {objection}") from None
    ids = id_list(args[5:])
    consumer = group.consumers.get(args[3])
    if consumer is None:
        return ctx.reply([])
    use_name(ctx, key, name, group, args[3])
    consumer.seen_ms = ctx.now_ms
    whose = GroupPlace(ctx.db.index, key, name, stream, group)
    if not ids:
        return ctx.in_slices(args, _renewed(ctx, whose, consumer, ahead_ms))
    rows = [
        (region, entry)
        for entry_id in dict.fromkeys(ids)
        for region, entry in group.pending.with_id(entry_id)
        if entry.consumer is consumer
    ]
    _renew(ctx, whose, consumer, ahead_ms, rows)
    return ctx.reply(list(dict.fromkeys(text(entry.entry_id) for _, entry in rows)))


def _renewed(
    ctx: Context, whose: GroupPlace, consumer: Consumer, ahead_ms: int
) -> Steps[list[bytes]]:
    """Renew all entries of a consumer, some at a time."""
    found: set[int] = set()
    for region, pending in list(consumer.pending.items()):
        start = MIN_ID
        while start <= MAX_ID and _has(ctx, whose, consumer):
            some, upto = pending.some_between(start, MAX_ID, _AT_ONCE)
            start = upto + 1
            _renew(ctx, whose, consumer, ahead_ms, [(region, entry) for entry in some])
            found.update(entry.entry_id for entry in some)
            yield
    return [ctx.reply(list(map(text, sorted(found))))]


def _has(ctx: Context, whose: GroupPlace, consumer: Consumer) -> bool:
    """Whether the group still has the consumer, in a later step.

    Raises CommandError if the group is gone, or another region delivers it now.
    """
    _, group = stream_and_group(ctx, whose.key, whose.name)
    check_home(ctx, whose.key, whose.name, group)
    return group.consumers.get(consumer.name) is consumer


def _renew(
    ctx: Context,
    whose: GroupPlace,
    consumer: Consumer,
    ahead_ms: int,
    entries: list[tuple[int, PendingEntry]],
) -> None:
    """Renew entries of a group, each with its replica ID."""
    if not entries:
        return
    at_ms, policed = ctx.now_ms, whose.group.policed
    if policed is not None and policed.policy.lease.mode == TIME:
        at_ms += ahead_ms - policed.policy.lease.ms
        place = LeasePlace(whose.db, whose.key, whose.name, False)
        ctx.server.leases.look(place, ctx.now_ms + ahead_ms)
    rows = [
        (entry.entry_id, region, max(at_ms, 0), entry.delivery_count) for region, entry in entries
    ]
    ctx.emit(
        kinds.Assign(whose.db, whose.key, whose.name, consumer.name, rows, ctx.now_ms), len(rows)
    )
