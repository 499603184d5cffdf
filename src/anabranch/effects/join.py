"""Joins a full sync of another region with the own data.

The result is as if this region had applied every effect that the other region had applied. No own
data is lost; the own part of consumer groups (deliveries and pending entries) stays.
"""

from __future__ import annotations

from anabranch.effects.apply_producers import record_processed
from anabranch.effects.streams import (
    begun_stream,
    bind_by_state,
    known_stream,
    renew_producers,
)
from anabranch.keyspace.keyspace import Keyspace
from anabranch.stream.joining import join_dots, join_streams, replace_shared
from anabranch.stream.stream import Stream

__all__ = ["join_keyspaces", "take_key"]


def join_keyspaces(ours: Keyspace, theirs: Keyspace, *, partial: bool) -> None:
    """Join the data of another region with the own; do not use the other keyspace afterwards.

    With ``partial`` it lacks the keys on which the other region has no effect that this one lacks.
    """
    mine, other = ours.replica, theirs.replica
    new = {
        replica_id: number
        for replica_id, number in other.vector.items()
        if number > mine.vector.get(replica_id, 0)
    }
    if not partial:
        mine.last_effects.record_all(new)
    for database, there in zip(ours.databases, theirs.databases, strict=True):
        db = database.index
        flushes = (
            dict.fromkeys(dot for dot, which in mine.flushes.items() if which in (None, db)),
            dict.fromkeys(dot for dot, which in other.flushes.items() if which in (None, db)),
        )
        ours_too = () if partial else (*database.values, *database.remembered)
        for key in {*there.values, *there.remembered, *ours_too}:
            stream = begun_stream(ours, db, key)
            value = there.values.get(key) or there.remembered.get(key)
            if value is None:
                value = Stream.of_regions(mine.own, *mine.default_limits())
            assert type(value) is Stream
            join_streams(stream, value, mine.vector, other.vector, flushes)
            stream.recount()
            renew_producers(ours, stream)
            bind_by_state(ours, db, key, stream)
            if partial:
                mine.last_effects.record((db, key), new)
            else:
                mine.last_effects.mark_changed((db, key))
            database.changed(key)
    join_dots(mine.flushes, other.flushes, mine.vector, other.vector)
    for region, epoch in other.removed.items():
        mine.removed[region] = max(mine.removed.get(region, 0), epoch)
    mine.former_names = {**other.former_names, **mine.former_names}
    for region in {**mine.admissions, **other.admissions}:
        join_dots(
            mine.admissions.setdefault(region, {}),
            other.admissions.get(region, {}),
            mine.vector,
            other.vector,
        )
    mine.renew_members()
    for goes, stays in mine.conflicts.join(other.conflicts, mine.vector, mine.resolves_for):
        resolved = known_stream(ours, goes.db, goes.key)
        if resolved is not None:
            place = goes.db, goes.key
            record_processed(mine, resolved, place, goes.entry, stays.entry, stays.entry_id)
    mine.hybrid_ms = max(mine.hybrid_ms, other.hybrid_ms)
    for replica_id, number in other.vector.items():
        mine.vector[replica_id] = max(mine.vector.get(replica_id, 0), number)
    ours.renew_unstable_tombstones()


def take_key(ours: Keyspace, theirs: Keyspace, db: int, key: bytes) -> None:
    """Take over the part of a key that regions share; do not use the other stream afterwards.

    Both regions must have applied the same effects on the key, so only a bug made them differ.
    """
    mine, other = ours.replica, theirs.replica
    there = theirs.databases[db]
    source = there.values.get(key) or there.remembered.get(key)
    fresh = Stream.of_regions(mine.own, *mine.default_limits())
    if source is not None:
        assert type(source) is Stream
        join_streams(fresh, source, {}, other.vector, ({}, {}))
    stream = begun_stream(ours, db, key)
    replace_shared(stream, fresh)
    stream.write_as(mine.own)
    stream.recount()
    renew_producers(ours, stream)
    bind_by_state(ours, db, key, stream)
    mine.last_effects.mark_changed((db, key))
    ours.renew_unstable_tombstones()
    ours.databases[db].changed(key)
