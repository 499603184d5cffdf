"""Adds an entry that the server has decided on: a dead letter, or a scheduled entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.errors import CommandError
from anabranch.resp.encode import bulk
from anabranch.stream.entry_id import text
from anabranch.stream.region_log import entry_weight

if TYPE_CHECKING:
    from anabranch.engine.context import Context
    from anabranch.keyspace.database import Database
    from anabranch.stream.stream import Stream

ENTRY_LINE_BYTES: Final = len(b"*2\r\n")  # before the ID


def add_entry(
    ctx: Context, database: Database, key: bytes, stream: Stream | None, count: int, body: bytes
) -> int | None:
    """Add an entry to the stream of a key, or to a new one; returns its ID.

    ``body`` are its ``count`` names and values as bulk strings. None if that is impossible at
    present: the clock of this region is wrong, the last ID is the greatest, other regions take no
    entry of this size.
    """
    try:
        entry_id = ctx.ids.following(0 if stream is None else stream.last_id)
    except CommandError:
        return None
    head = bulk(text(entry_id))
    fragment = b"".join([b"*2\r\n", head, b"*%d\r\n" % count, body])
    if len(fragment) > ctx.effects.added_bytes_max:
        return None
    if stream is None:
        stream = ctx.effects.create_stream(database, key)
    weight = entry_weight(len(fragment) - len(head) - ENTRY_LINE_BYTES, count)
    opens = stream.local.is_full(weight, ctx.node_entries_max, ctx.node_bytes_max)
    ctx.effects.add(database, key, stream, entry_id, fragment, weight, opens)
    ctx.changes += 1
    return entry_id
