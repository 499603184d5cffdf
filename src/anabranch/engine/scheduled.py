"""Adds scheduled entries that are due, and says when they are due next.

What is added and what is noted of it are effects of one turn, which the log has as a whole or not
at all, and other regions apply as a whole: so an entry is added once, whatever ends the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.effects import kinds
from anabranch.engine.adding import add_entry
from anabranch.errors import CommandError
from anabranch.keyspace.timetables import GONE_MS, MISSED, ScheduledEntry
from anabranch.stream.stream import Stream

if TYPE_CHECKING:
    from anabranch.engine.context import Context
    from anabranch.keyspace.database import Database

_MISSED_AFTER_MS: Final = 10_000
"""A time of a cron line is missed if the server comes later than this."""

_RETRY_MS_MIN: Final = 1000
_RETRY_MS_MAX: Final = 3_600_000
"""When to try again what cannot be added: after as long as it is late."""

_Row = tuple[bytes, int, int, int, int, int]


def add_due(ctx: Context, database: Database, key: bytes, owner: int, most: int) -> None:
    """Add up to so many entries of a key that are due by now, the earliest first."""
    timetables = database.timetables
    rows: list[_Row] = []
    for at_ms, handle in timetables.handles[key][owner].earliest(most):
        if at_ms > ctx.now_ms:
            break
        entry = timetables.entries[key, handle]
        ctx.stats.scheduled_late_ms = late_ms = ctx.now_ms - entry.at_ms
        row = _added(ctx, database, key, handle, entry)
        if row is None:
            wait_ms = min(max(late_ms, _RETRY_MS_MIN), _RETRY_MS_MAX)
            timetables.look(key, handle, ctx.now_ms + wait_ms)
            ctx.stats.scheduled_failed += 1
        else:
            rows.append(row)
    if rows:
        ctx.emit(kinds.AdvanceScheduled(database.index, key, rows))


def _added(
    ctx: Context, database: Database, key: bytes, handle: bytes, entry: ScheduledEntry
) -> _Row | None:
    """Add one entry, unless its time is to be skipped, and say what becomes of it.

    None if that is impossible at present.
    """
    is_wanted, next_ms, number = True, GONE_MS, 0
    if entry.recurrence is not None:
        cron, zone, missed_by = entry.recurrence
        missed = MISSED[missed_by]
        is_wanted = missed != b"skip" or ctx.now_ms - entry.at_ms <= _MISSED_AFTER_MS
        after_ms = entry.at_ms if missed == b"all" else ctx.now_ms
        try:
            next_ms = ctx.server.host.next_by_cron(cron, zone, after_ms) or GONE_MS
        except CommandError:
            return None
    if is_wanted:
        added = put_in(ctx, database, key, entry)
        if added is None:
            return None
        number = added[1]
    return (handle, *entry.identity, entry.at_ms, next_ms, number)


def put_in(
    ctx: Context, database: Database, key: bytes, entry: ScheduledEntry
) -> tuple[int, int] | None:
    """Add what is scheduled; returns its ID, and the number of the effect among regions.

    The number is 0 if its idempotent ID is known already. None if that is impossible at present.
    """
    stream = ctx.lookup_in(database, key)
    if stream is not None and type(stream) is not Stream:
        return None
    if stream is not None and entry.tag is not None:
        known = stream.producers.find(*entry.tag, ctx.now_ms)
        if known is not None:
            ctx.emit(kinds.CountDuplicate(database.index, key))
            return known, 0
    entry_id = add_entry(ctx, database, key, stream, entry.fields)
    if entry_id is None:
        return None
    number = ctx.replica.vector.get(ctx.replica.own, 0)
    ctx.stats.scheduled_added += 1
    if entry.tag is not None:
        made = database.values[key]
        assert type(made) is Stream
        ctx.effects.remember(database, key, made, *entry.tag, entry_id)
    return entry_id, number
