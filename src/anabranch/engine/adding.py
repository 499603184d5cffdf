"""Adds an entry that the server has decided on: a dead letter, or a scheduled entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import CommandError
from anabranch.resp.encode import bulk
from anabranch.stream.entry_id import text
from anabranch.stream.region_log import entry_weight

if TYPE_CHECKING:
    from anabranch.engine.context import Context
    from anabranch.keyspace.database import Database
    from anabranch.stream.stream import Stream


def add_entry(
    ctx: Context, database: Database, key: bytes, stream: Stream | None, fields: bytes
) -> int | None:
    """Add an entry to the stream of a key, or to a new one; returns its ID.

    ``fields`` are its names and values, as an array of bulk strings. None if that is impossible at
    present: the clock of this region is wrong, the last ID is the greatest, other regions take no
    entry of this size.
    """
    try:
        entry_id = ctx.ids.following(0 if stream is None else stream.last_id)
    except CommandError:
        return None
    head = bulk(text(entry_id))
    fragment = b"*2\r\n%b%b" % (head, fields)
    if len(fragment) > ctx.effects.added_bytes_max:
        return None
    if stream is None:
        stream = ctx.effects.create_stream(database, key)
    weight = entry_weight(len(fields), int(fields[1 : fields.index(b"\r\n")]))
    opens = stream.local.is_full(weight, ctx.node_entries_max, ctx.node_bytes_max)
    ctx.effects.add(database, key, stream, entry_id, fragment, weight, opens)
    ctx.changes += 1
    return entry_id
