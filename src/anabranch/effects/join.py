"""A whole state of another region, joined to ours: for who has missed too much.

What follows is as if we had applied every effect that the other region had applied. Nothing of ours
is lost; our own part of consumer groups (what was delivered here, who holds what) stays.
"""

from __future__ import annotations

from anabranch.effects.merge_stream import (
    note_collapses,
    parts,
    renew_producers,
    replica_of,
    settle,
    shared_stream,
)
from anabranch.keyspace.keyspace import Keyspace
from anabranch.stream.joining import join_dots, join_streams
from anabranch.stream.stream import Stream

__all__ = ["join_keyspaces"]


def join_keyspaces(ours: Keyspace, theirs: Keyspace) -> None:
    """Join another state into ours; the other is of no use afterwards."""
    mine, other = replica_of(ours), replica_of(theirs)
    for database, there in zip(ours.databases, theirs.databases, strict=True):
        db = database.index
        flushes = (
            dict.fromkeys(dot for dot, which in mine.flushes.items() if which in (None, db)),
            dict.fromkeys(dot for dot, which in other.flushes.items() if which in (None, db)),
        )
        known = {**there.remembered, **there.values}
        for key in {*known, *database.values, *database.remembered}:
            stream = shared_stream(ours, db, key)
            value = known.get(key)
            if value is None:
                value = Stream.of_regions(mine.own, *mine.default_limits())
            assert type(value) is Stream
            join_streams(stream, value, mine.vector, other.vector, flushes)
            stream.recount()
            renew_producers(ours, stream)
            settle(ours, db, key, stream)
            for table in parts(stream).tags.values():
                for dots in table.values():
                    if len(dots) > 1:
                        note_collapses(mine, db, key, stream, dots)
            database.changed(key)
    join_dots(mine.flushes, other.flushes, mine.vector, other.vector)
    for region, epoch in other.removed.items():
        mine.removed[region] = max(mine.removed.get(region, 0), epoch)
    for region in {**mine.admissions, **other.admissions}:
        join_dots(
            mine.admissions.setdefault(region, {}),
            other.admissions.get(region, {}),
            mine.vector,
            other.vector,
        )
    mine.renew_members()
    mine.hybrid_ms = max(mine.hybrid_ms, other.hybrid_ms)
    for origin, number in other.vector.items():
        mine.vector[origin] = max(mine.vector.get(origin, 0), number)
