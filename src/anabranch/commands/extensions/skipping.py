"""AB.SKIP: the keys of a group that an entry has stopped (``on-poison halt``), and how they go on.

The entry that stops a key is pending without a consumer, with the greatest delivery count. Skipping
acknowledges it, so that the next entry of its key is delivered. ``AB.REDRIVE`` tries it once more.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from anabranch.commands.stream.options import stream_and_group
from anabranch.effects.acknowledging import GroupPlace
from anabranch.engine import texts
from anabranch.engine.arguments import listed_count
from anabranch.engine.releasing import acknowledge
from anabranch.errors import CommandError
from anabranch.resp.encode import integer as integer_reply
from anabranch.stream.entry_id import text
from anabranch.stream.groups.ordering import value_of
from anabranch.stream.turns import settle_order

if TYPE_CHECKING:
    from anabranch.engine.context import Context
    from anabranch.stream.groups.group import Group
    from anabranch.stream.groups.pending_entry import PendingEntry
    from anabranch.stream.groups.policy import Policed
    from anabranch.stream.stream import Stream


def _in_order(ctx: Context, key: bytes, name: bytes) -> tuple[Stream, Group, Policed]:
    """A stream and a group that can have stopped keys."""
    stream, group = stream_and_group(ctx, key, name)
    policed = group.policed
    if policed is None or policed.order is None:
        raise CommandError(
            b"ERR the group '%b' has no policy key-field: none of its keys can be stopped"
            % texts.shown(name)
        )
    if not settle_order(stream, group):
        raise CommandError("ERR the pending entries of the group are still looked at: try again")
    order = policed.order
    while gone := [
        each
        for each in (*policed.ripe, *filter(policed.halted.__contains__, order.suspects))
        if each.consumer is None and stream.find_pending(group, each) is None
    ]:
        order.deleted(gone)  # what they had before them may have stopped its key
        ctx.db.signal(key)
    return stream, group, policed


def skip(ctx: Context, args: list[bytes]) -> bytes:
    """AB.SKIP key group value [value ...]; replies how many of these keys were stopped."""
    stream, group, policed = _in_order(ctx, args[1], args[2])
    order = policed.order
    assert order is not None
    found: list[PendingEntry] = []
    for value in dict.fromkeys(args[3:]):
        entry = order.first_of(value)
        if entry is not None and entry in policed.halted:
            found.append(entry)
    if found:
        acknowledge(ctx, GroupPlace(ctx.db.index, args[1], args[2], stream, group), found)
    return integer_reply(len(found))


def skip_list(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.SKIP LIST key group [COUNT n]: the stopped keys, those that were stopped first."""
    count = listed_count(args[4:])
    stream, group, policed = _in_order(ctx, args[2], args[3])
    order, field = policed.order, policed.policy.key_field
    assert order is not None
    assert field is not None
    rows: list[dict[str, object]] = []
    for entry in islice(policed.halted, count):
        found = stream.find_pending(group, entry)
        if found is not None:
            value = value_of(bytes(found[1].fragment(found[2])), field)
            waiting = order.behind(entry)
            rows.append(
                {
                    "value": value,
                    "id": text(entry.entry_id),
                    "waiting": waiting,
                }
            )
    return ctx.long_reply(args, rows)
