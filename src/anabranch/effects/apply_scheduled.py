"""Applies effects on scheduled entries; decides nothing."""

from __future__ import annotations

from anabranch.effects import kinds
from anabranch.effects.apply_producers import collapse
from anabranch.effects.streams import known_stream
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import region_of
from anabranch.keyspace.timetables import Addition, Recurrence, ScheduledEntry
from anabranch.keyspace.version_vectors import covers_dot


def schedule_entry(keyspace: Keyspace, effect: kinds.ScheduleEntry) -> None:
    """Note what is to be added, and when."""
    again = None if effect.recurrence is None else Recurrence(*effect.recurrence)
    identity = effect.stamp_ms, keyspace.replica.dot[0]
    entry = ScheduledEntry(identity, effect.at_ms, effect.fields, again, effect.tag)
    keyspace.databases[effect.db].timetables.set(effect.name, effect.handle, entry)


def advance_scheduled(keyspace: Keyspace, effect: kinds.AdvanceScheduled) -> None:
    """Note when entries are due next, or that they are gone; keep one of two additions."""
    replica = keyspace.replica
    timetables = keyspace.databases[effect.db].timetables
    ended = None if covers_dot(replica.watermark, replica.dot) else replica.dot
    for handle, stamp_ms, replica_id, at_ms, next_ms, number in effect.rows:
        identity = stamp_ms, replica_id
        timetables.advance(effect.name, handle, identity, next_ms, ended=ended)
        if not number:
            continue
        is_taken_over = region_of(replica.replica_id) != region_of(replica_id)
        addition = Addition(is_taken_over, replica.replica_id, number)
        goes = timetables.added(effect.name, handle, identity, at_ms, addition)
        if goes is not None:
            keep_one(keyspace, effect.db, effect.name, goes)


def keep_one(keyspace: Keyspace, db: int, key: bytes, goes: Addition) -> None:
    """Two regions have added one scheduled entry for the same time: one of both goes."""
    stream = known_stream(keyspace, db, key)
    if stream is not None and collapse(keyspace.replica, stream, goes.dot):
        keyspace.databases[db].touch(key)
