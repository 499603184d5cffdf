"""Joins a full sync of another region with the own data.

The result is as if this region had applied every effect that the other region had applied. No own
data is lost; the own part of consumer groups (deliveries and pending entries) stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Final

from anabranch.effects.apply_producers import record_processed
from anabranch.effects.apply_scheduled import keep_one
from anabranch.effects.streams import (
    begun_stream,
    bind_by_state,
    free_groups,
    go_on,
    known_stream,
    renew_producers,
)
from anabranch.keyspace.database import Database
from anabranch.keyspace.displaced_tags import Side, join_displaced
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.last_effects import Place
from anabranch.keyspace.replica import Replica
from anabranch.keyspace.values import Value
from anabranch.keyspace.version_vectors import covers, covers_dot, raise_to
from anabranch.stream.joining import join_dots, join_streams, replace_shared
from anabranch.stream.shared import Dot
from anabranch.stream.stream import Stream

_SORTED_PIECE: Final = 4096
"""So many numbers of tombstones are sorted together; in the end these runs are merged."""

_FREED_PIECE: Final = 1024
"""So many names of joined keys are freed in one step."""


class KeyspaceJoin:
    """One full sync that is being joined, key by key.

    What concerns all keys, as the version vector, is joined at once. So each key must be joined
    before anything reads or changes it.
    """

    def __init__(self, ours: Keyspace, theirs: Keyspace, *, partial: bool) -> None:
        """Begin. Do not use the other keyspace from now on.

        With ``partial`` it lacks the keys on which the other region has no effect that this one
        lacks.
        """
        mine, other = ours.replica, theirs.replica
        self._ours = ours
        self._theirs = theirs
        self._displaced = other.conflicts.displaced
        self._partial = partial
        self._our = dict(mine.vector)
        self._their = dict(other.vector)
        self._new = {
            replica_id: number
            for replica_id, number in self._their.items()
            if number > self._our.get(replica_id, 0)
        }
        self._flushes = [
            (_flushes_of(mine, database.index), _flushes_of(other, database.index))
            for database in ours.databases
        ]
        self._joined: set[Place] = set()
        self._unstable: defaultdict[int, list[int]] = defaultdict(list)
        self._is_over = False
        if not partial:
            mine.last_effects.record_all(self._new)
        join_dots(mine.flushes, other.flushes, self._our, self._their)
        for region, epoch in other.removed.items():
            mine.removed[region] = max(mine.removed.get(region, 0), epoch)
        mine.former_names = {**other.former_names, **mine.former_names}
        for region in {**mine.admissions, **other.admissions}:
            join_dots(
                mine.admissions.setdefault(region, {}),
                other.admissions.get(region, {}),
                self._our,
                self._their,
            )
        mine.renew_members()
        mine.hybrid_ms = max(mine.hybrid_ms, other.hybrid_ms)
        raise_to(mine.vector, self._their)
        for dot in mine.flushes:
            if not covers_dot(mine.watermark, dot):
                mine.unstable_tombstones.add(dot)
        for here, there in zip(ours.databases, theirs.databases, strict=True):
            here.last_positions.join(there.last_positions)
            here.policies.join(there.policies)
            here.policies.rebind_all(here.values, here.order)
        resolved_there, self._tagged = mine.conflicts.join(other.conflicts, self._our)
        for here, there in zip(ours.databases, theirs.databases, strict=True):
            for key, added_twice in here.timetables.join(there.timetables):
                self.join_key(here.index, key)
                keep_one(ours, here.index, key, added_twice)
        for goes, stays in resolved_there:
            place = goes.db, goes.key
            self.join_key(*place)
            resolved = known_stream(ours, *place)
            if resolved is not None:
                record_processed(mine, resolved, place, goes.entry, stays.entry, stays.entry_id)

    def join_key(self, db: int, key: bytes) -> None:
        """Join one key, unless that is done."""
        if (db, key) not in self._joined and not self._is_over:
            there = self._theirs.databases[db]
            # What is joined is freed: all of it at once would take long.
            value = there.values.pop(key, None) or there.remembered.get(key)
            if value is not None or not self._partial:
                theirs = None if value is None else _stream_in(self._ours, there, key, value)
                self._join(db, key, theirs)

    def steps(self) -> Iterator[None]:
        """Join all keys that are left; yields after each."""
        for here, there in zip(self._ours.databases, self._theirs.databases, strict=True):
            db = here.index
            for key in list(there.values):
                self.join_key(db, key)
                yield
            for key, value in there.remembered.items():
                if (db, key) not in self._joined:
                    self._join(db, key, value)
                    yield
            for key in () if self._partial else chain(list(here.values), here.remembered):
                if (db, key) not in self._joined:
                    self._join(db, key, None)
                    yield
        for replica_id, numbers in self._unstable.items():
            self._ours.replica.unstable_tombstones.update(replica_id, numbers)
            yield
        self._is_over = True
        while self._joined:  # freed bit by bit
            self._joined.pop()
            if len(self._joined) % _FREED_PIECE == 0:
                yield

    def _join(self, db: int, key: bytes, theirs: Stream | None) -> None:
        """Join a key with what the other region has of it."""
        self._joined.add((db, key))
        ours, replica = self._ours, self._ours.replica
        if theirs is None:
            theirs = Stream.of_regions(replica.own, *replica.default_limits())
        stream = begun_stream(ours, db, key)
        groups = dict(stream.groups)
        displaced = replica.conflicts.displaced
        spans_of = join_displaced(
            Side(displaced.of((db, key)), stream.shared, self._our),
            Side(self._displaced.of((db, key)), theirs.shared, self._their),
        )
        displaced.replace((db, key), spans_of)
        shared, producers = stream.shared, stream.producers
        before = {each: shared.dots(each) | theirs.shared.dots(each) for each in spans_of}
        # Either side may have displaced tags by a smaller limit than that of the joined state.
        producers.maxsize = min(producers.maxsize, theirs.producers.maxsize)
        join_streams(stream, theirs, self._our, self._their, self._flushes[db])
        for pid in spans_of:  # a side that had displaced a tag may know its resolution alone
            for dots in shared.tags.get(pid, {}).values():
                for dot, tag in dots.items():
                    dots[dot] = replica.conflicts.as_resolved(dot, tag)
        free_groups(ours, groups, stream)
        stream.recount()
        if stream.groups:
            replica.untold[db, key] = None
        renew_producers(ours, db, key, stream, before)
        bind_by_state(ours, db, key, stream)
        producers.iids_added = self._iids_added(db, key, producers.iids_added, theirs)
        replica.known_level = max(replica.known_level, shared.level)
        for dot in stream.shared.tombstones:
            if not covers_dot(replica.watermark, dot):
                self._note_unstable(*dot)
        if self._partial:
            replica.last_effects.record((db, key), self._new)
        else:
            replica.last_effects.mark_changed((db, key))
        ours.databases[db].changed(key)

    def _iids_added(self, db: int, key: bytes, known: int, theirs: Stream) -> int:
        """How many idempotent IDs a key has counted, from the counts on both sides.

        What is new of the other side are tags that it holds, if this region is a member. A region
        that is new, or that lacks nothing but effects of the other side, takes its count.
        """
        counted = theirs.producers.iids_added if theirs.exists else 0
        if covers(self._their, self._our):
            return counted
        return max(known + self._tagged[db, key], counted)

    def _note_unstable(self, replica_id: int, number: int) -> None:
        """Note a tombstone. Numbers are sorted in pieces: all at once would take too long."""
        numbers = self._unstable[replica_id]
        numbers.append(number)
        if len(numbers) % _SORTED_PIECE == 0:
            numbers[-_SORTED_PIECE:] = sorted(numbers[-_SORTED_PIECE:])


def _flushes_of(replica: Replica, db: int) -> dict[Dot, None]:
    """The flushes of a database."""
    return dict.fromkeys(dot for dot, which in replica.flushes.items() if which in (None, db))


def _stream_in(ours: Keyspace, there: Database, key: bytes, value: Value) -> Stream:
    """A key of the other region as a stream; other values become the state of an empty one.

    Its logs end where those of the deleted stream did that such a value has replaced.
    """
    if type(value) is Stream:
        return value
    stream = Stream.of_regions(ours.replica.own, *ours.replica.default_limits())
    stream.shared = value.shared
    go_on(there, key, stream)
    return stream


def take_key(ours: Keyspace, theirs: Keyspace, db: int, key: bytes) -> None:
    """Take over the part of a key that regions share; do not use the other stream afterwards.

    Both regions must have applied the same effects on the key, so only a bug made them differ.
    """
    mine, other = ours.replica, theirs.replica
    there = theirs.databases[db]
    source = there.values.get(key) or there.remembered.get(key)
    fresh = Stream.of_regions(mine.own, *mine.default_limits())
    if source is not None:
        join_streams(fresh, _stream_in(ours, there, key, source), {}, other.vector, ({}, {}))
    stream = begun_stream(ours, db, key)
    groups = dict(stream.groups)
    replace_shared(stream, fresh)
    free_groups(ours, groups, stream)
    stream.write_as(mine.own)
    stream.recount()
    if stream.groups:
        mine.untold[db, key] = None
    mine.conflicts.displaced.replace((db, key), other.conflicts.displaced.of((db, key)))
    renew_producers(ours, db, key, stream, {})
    bind_by_state(ours, db, key, stream)
    for dot in stream.shared.tombstones:
        if not covers_dot(mine.watermark, dot):
            mine.unstable_tombstones.add(dot)
    mine.last_effects.mark_changed((db, key))
    ours.databases[db].changed(key)
