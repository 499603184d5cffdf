"""Finds the stream of a key for effects, and binds or unbinds the key.

Where several regions write, a key may have both a stream and a string, which met. The stream is
bound then and hides the string. A key with a string alone has no :class:`Stream`: if an effect
needs one, it gets a new one around the same shared state.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.keyspace.conflicts import Conflicts
from anabranch.keyspace.database import Database
from anabranch.keyspace.held_tags import CHUNK_TAGS
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import ALONE
from anabranch.keyspace.values import PLAIN, StringValue
from anabranch.stream.groups.group import Group
from anabranch.stream.shared import Dot, Shared, Tag, drop_covered
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
    if type(value) is StringValue:
        return stream_beside(keyspace, db, key, value)
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
        _go_on(keyspace, db, key, stream)
        keyspace.databases[db].remembered.add(key, stream)
    return stream


def _go_on(keyspace: Keyspace, db: int, key: bytes, stream: Stream) -> None:
    """Let the positions of a new stream begin where the former one of the key ended."""
    for end in keyspace.databases[db].last_positions.of(key):
        stream.log_of(end.replica_id).go_on(end.position, end.known_from, end.floor)
    stream.recount()


def stream_beside(keyspace: Keyspace, db: int, key: bytes, string: StringValue) -> Stream:
    """A stream that shares its state with the string of a key; :func:`bind_by_state` binds it."""
    replica = keyspace.replica
    assert replica.own != ALONE
    stream = Stream.of_regions(replica.own, *replica.default_limits())
    stream.shared = string.shared
    _go_on(keyspace, db, key, stream)
    stream.renew_producers(*replica.default_limits())
    return stream


def shared_of(keyspace: Keyspace, db: int, key: bytes) -> tuple[Shared, Stream | None]:
    """What regions share of a key, and the stream that it belongs to, if there is one."""
    value = keyspace.databases[db].values.get(key)
    if type(value) is StringValue:
        return value.shared, None
    stream = known_stream(keyspace, db, key)
    return (Shared(), None) if stream is None else (stream.shared, stream)


def bind_by_state(keyspace: Keyspace, db: int, key: bytes, stream: Stream) -> None:
    """Bind the key to a stream if the stream exists, or to its string; otherwise unbind it."""
    database = keyspace.databases[db]
    shared = stream.shared
    if shared.tombstones:
        keyspace.replica.tombstoned[db, key] = None
    note_hidden(keyspace, db, key, stream)
    if stream.exists:
        if database.values.get(key) is not stream:
            database.remembered.discard(key)
            database.put(key, stream)
            # These counters are of this region alone. They begin with the key, because what is left
            # of a former one may be forgotten, or not, by now.
            stream.producers.iids_added = stream.producers.duplicates = 0
    elif shared.has_string:
        if key not in database.values:
            database.remembered.forget(key, stream)
        bind_string(keyspace, db, key, shared, None)
        return
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
    _set_deadline(database, key, known, shared.deadline_of(known))


def _set_deadline(database: Database, key: bytes, known: int | None, at_ms: int | None) -> None:
    if at_ms != known:
        if at_ms is None:
            database.deadlines.pop(key, None)
        else:
            database.deadlines[key] = at_ms


def bind_string(
    keyspace: Keyspace, db: int, key: bytes, shared: Shared, stream: Stream | None
) -> None:
    """Bind the key to the string that regions share; ``stream`` is that of the key, if any."""
    if stream is not None:
        bind_by_state(keyspace, db, key, stream)
        return
    database = keyspace.databases[db]
    if shared.tombstones:
        keyspace.replica.tombstoned[db, key] = None
    data = shared.string
    assert data is not None
    value = database.values.get(key)
    if type(value) is StringValue and value.shared is shared:
        value.replace(data)
        if not value.is_due:
            keyspace.account.changed(value)
        database.changed(key)
    else:
        database.put(key, StringValue(data, PLAIN, shared))
    known = database.deadlines.get(key)
    _set_deadline(database, key, known, shared.string_deadline_of(known))


def note_hidden(keyspace: Keyspace, db: int, key: bytes, stream: Stream) -> None:
    """Note whether the stream of a key hides a string."""
    hidden = keyspace.replica.hidden_strings
    if stream.shared.is_register and stream.exists and stream.shared.has_string:
        hidden[db, key] = None
    elif hidden:
        hidden.pop((db, key), None)


def wake_held_back(keyspace: Keyspace, db: int, key: bytes, group: Group) -> None:
    """Call this when entries may have left a consumer of a group, or may have come into its reach.

    By a policy (``max-pending``, ``key-field``) readers may wait for that.
    """
    policed = group.policed
    if policed is not None and policed.holds_back:
        keyspace.databases[db].signal(key)


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
