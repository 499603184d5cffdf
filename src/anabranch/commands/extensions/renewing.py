"""AB.RENEW: a worker goes on with its entries, and asks which of them it still has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.commands.stream.options import stream_and_group
from anabranch.config.policies import duration_ms
from anabranch.effects import kinds
from anabranch.engine.arguments import id_list
from anabranch.engine.holding import use_name
from anabranch.engine.homing import check_home
from anabranch.engine.leases import LeasePlace
from anabranch.errors import CommandError
from anabranch.stream.entry_id import MAX_ID, MIN_ID, text
from anabranch.stream.groups.policy import TIME

if TYPE_CHECKING:
    from anabranch.engine.context import Context
    from anabranch.stream.groups.pending_entry import PendingEntry


def renew(ctx: Context, args: list[bytes]) -> bytes:
    """AB.RENEW key group consumer t [id ...]: the IDs that the consumer still has.

    With a ``time`` lease theirs end ``t`` from now. With another one, or none, their idle time
    begins anew, and it is a sign of life. Without IDs it is about all entries of the consumer.
    """
    key, name = args[1], args[2]
    _, group = stream_and_group(ctx, key, name)
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
    entries: list[PendingEntry] = []
    if ids:
        for entry_id in dict.fromkeys(ids):
            found = group.pending.with_id(entry_id)
            entries += [entry for _, entry in found if entry.consumer is consumer]
    else:
        entries = list(consumer.between(MIN_ID, MAX_ID))
    at_ms = ctx.now_ms
    policed = group.policed
    if policed is not None and policed.policy.lease.mode == TIME:
        at_ms += ahead_ms - policed.policy.lease.ms
        place = LeasePlace(ctx.db.index, key, name, False)
        ctx.server.leases.look(place, ctx.now_ms + ahead_ms)
    rows = [
        (each.entry_id, group.pending.region_of(each), max(at_ms, 0), each.delivery_count)
        for each in entries
    ]
    if rows:
        ctx.emit(kinds.Assign(ctx.db.index, key, name, args[3], rows, ctx.now_ms))
        ctx.changes += len(rows)
    return ctx.reply(list(dict.fromkeys(text(each.entry_id) for each in entries)))
