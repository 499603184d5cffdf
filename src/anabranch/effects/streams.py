"""Finds the stream of a key for effects, and binds or unbinds the key."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.keyspace.conflicts import Conflicts
from anabranch.keyspace.held_tags import CHUNK_TAGS
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import ALONE
from anabranch.stream.groups.group import Group
from anabranch.stream.shared import Dot, Tag, drop_covered
from anabranch.stream.stream import Stream


def stream_of(keyspace: Keyspace, db: int, key: bytes) -> Stream:
    """The stream of a key that must exist; if it does not, the server has a bug."""
    value = keyspace.databases[db].values[key]
    assert type(value) is Stream
    if not value.is_due:  # the caller is going to change it
        keyspace.account.changed(value)
    return value


def known_stream(keyspace: Keyspace, db: int, key: bytes) -> Stream | None:
    """The stream of a key, also if the key does not exist and only tombstones or tags are left."""
    database = keyspace.databases[db]
    value = database.values.get(key) or database.remembered.get(key)
    assert value is None or type(value) is Stream
    if value is not None and not value.is_due:
        keyspace.account.changed(value)
    return value


def begun_stream(keyspace: Keyspace, db: int, key: bytes) -> Stream:
    """The known stream, or a new one; a new stream is not visible to commands at first.

    A region alone begins a stream by :class:`kinds.CreateStream`.
    """
    stream = known_stream(keyspace, db, key)
    if stream is None:
        replica = keyspace.replica
        assert replica.own != ALONE
        stream = Stream.of_regions(replica.own, *replica.default_limits())
        database = keyspace.databases[db]
        for end in database.last_positions.of(key):
            stream.log_of(end.replica_id).go_on(end.position, end.known_from, end.floor)
        stream.recount()
        database.remembered.add(key, stream)
    return stream


def bind_by_state(keyspace: Keyspace, db: int, key: bytes, stream: Stream) -> None:
    """Bind the key to a stream if the stream exists; otherwise unbind it."""
    database = keyspace.databases[db]
    shared = stream.shared
    if shared.tombstones:
        keyspace.replica.tombstoned[db, key] = None
    if stream.exists:
        if key not in database.values:
            database.remembered.discard(key)
            database.put(key, stream)
            # These counters are of this region alone. They begin with the key, because what is left
            # of a former one may be forgotten, or not, by now.
            stream.producers.iids_added = stream.producers.duplicates = 0
    else:
        if key in database.values:
            database.unbind(key)
            if stream.is_blank:
                database.remembered.forget(key, stream)
            else:
                database.remembered.add(key, stream)
        elif stream.is_blank:
            database.remembered.forget(key, stream)
        else:
            database.remembered[key] = stream
        return
    known = database.deadlines.get(key)
    deadline = shared.deadline_of(known)
    if deadline != known:
        if deadline is None:
            database.deadlines.pop(key, None)
        else:
            database.deadlines[key] = deadline


def free_groups(keyspace: Keyspace, before: Mapping[bytes, Group], stream: Stream) -> None:
    """Free the groups that a stream had before, and has not any more."""
    for name, group in before.items():
        if stream.groups.get(name) is not group:
            keyspace.deferred_free.defer(group)


TagsOf = Mapping[bytes, set[Dot]]
"""Tags by producer."""


def remembered_tags(keyspace: Keyspace, db: int, key: bytes, stream: Stream) -> TagsOf:
    """What is remembered of producers with displaced tags; for :func:`renew_producers`."""
    displaced = keyspace.replica.conflicts.displaced
    return {pid: stream.shared.dots(pid) for pid in displaced.of((db, key))}


def renew_producers(
    keyspace: Keyspace, db: int, key: bytes, stream: Stream, before: TagsOf
) -> None:
    """Compute the table of idempotent IDs, which XADD uses, from the tags.

    Displaced tags come back where tags were removed that were remembered ``before``, or where more
    are remembered now.
    """
    replica, place = keyspace.replica, (db, key)
    displaced = replica.conflicts.displaced
    most = stream.producers.maxsize
    lost = {pid for pid, dots in before.items() if not dots <= stream.shared.dots(pid)}
    for pid, dots in stream.renew_producers(*replica.default_limits()).items():
        if dots:
            displaced.add(place, pid, dots)
    for pid in list(displaced.of(place)):
        if pid in lost or stream.producers.maxsize > most:
            _restore_displaced(replica.conflicts, db, key, pid, stream)


def _restore_displaced(
    conflicts: Conflicts, db: int, key: bytes, pid: bytes, stream: Stream
) -> None:
    """Remember displaced tags again, as many as there is room for.

    Tags that were remembered may be older, and are displaced then.
    """
    displaced, most = conflicts.displaced, stream.producers.maxsize + CHUNK_TAGS
    for held in conflicts.displaced_tags(db, key, pid):
        table = stream.shared.tags_of(pid)
        dots = table.setdefault(held.iid, {})
        drop_covered(dots, held.knows)
        tag = Tag(held.entry_id, held.at_ms, held.yields)
        dots.setdefault(held.dot, conflicts.as_resolved(held.dot, tag))
        if len(table) > most:
            displaced.add((db, key), pid, stream.renew_table(pid))
    if pid in stream.shared.tags:
        displaced.add((db, key), pid, stream.renew_table(pid))
