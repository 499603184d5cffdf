"""Finds the stream of a key for effects, and binds or unbinds the key.

Where several regions write, a key may have values of several types, which met. One is bound then
and hides the others: a stream, otherwise a string, a set, a list (:attr:`Shared.small_kinds`). A
key without a stream has no :class:`Stream`: if an effect needs one, it gets a new one around the
same shared state.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.keyspace.conflicts import Conflicts
from anabranch.keyspace.database import Database
from anabranch.keyspace.held_tags import CHUNK_TAGS
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import ALONE
from anabranch.keyspace.values import PLAIN, ListValue, SetValue, StringValue, Value
from anabranch.stream.elements import SET
from anabranch.stream.groups.group import Group
from anabranch.stream.shared import STRING, Dot, Shared, Tag, drop_covered
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
    if value is None:
        return None
    if type(value) is not Stream:
        return stream_beside(keyspace, db, key, value.shared)
    if not value.is_due:
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
        go_on(keyspace.databases[db], key, stream)
        keyspace.databases[db].remembered.add(key, stream)
    return stream


def go_on(database: Database, key: bytes, stream: Stream) -> None:
    """Let the positions of a new stream begin where the former one of the key ended."""
    for end in database.last_positions.of(key):
        stream.log_of(end.replica_id).go_on(end.position, end.known_from, end.floor)
    stream.recount()


def stream_beside(keyspace: Keyspace, db: int, key: bytes, shared: Shared) -> Stream:
    """A stream around the shared state of a key without one; :func:`bind_by_state` binds it."""
    replica = keyspace.replica
    assert replica.own != ALONE
    stream = Stream.of_regions(replica.own, *replica.default_limits())
    stream.shared = shared
    go_on(keyspace.databases[db], key, stream)
    stream.renew_producers(*replica.default_limits())
    return stream


def shared_of(keyspace: Keyspace, db: int, key: bytes) -> tuple[Shared, Stream | None]:
    """What regions share of a key, and the stream that it belongs to, if there is one."""
    value = keyspace.databases[db].values.get(key)
    if value is not None and type(value) is not Stream:
        return value.shared, None
    stream = known_stream(keyspace, db, key)
    return (Shared(), None) if stream is None else (stream.shared, stream)


def bind_by_state(keyspace: Keyspace, db: int, key: bytes, stream: Stream) -> None:
    """Bind the key to a stream if the stream exists, or to what it hides; otherwise unbind it."""
    database = keyspace.databases[db]
    shared = stream.shared
    if shared.tombstones:
        keyspace.replica.tombstoned[db, key] = None
    note_hidden(keyspace, db, key, shared, stream)
    if stream.exists:
        if database.values.get(key) is not stream:
            database.remembered.discard(key)
            database.put(key, stream)
            # These counters are of this region alone. They begin with the key, because what is left
            # of a former one may be forgotten, or not, by now.
            stream.producers.iids_added = stream.producers.duplicates = 0
    elif shared.has_small and shared.small_kinds:
        if key not in database.values:
            database.remembered.forget(key, stream)
        bind_small(keyspace, db, key, shared, None)
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


def bind_small(
    keyspace: Keyspace, db: int, key: bytes, shared: Shared, stream: Stream | None
) -> None:
    """Bind the key to the string, set or list that regions share, or unbind it.

    ``stream`` is that of the key, if there is one.
    """
    database = keyspace.databases[db]
    kinds = shared.small_kinds if stream is None else []
    if not kinds:
        if stream is None and shared.is_blank:
            note_hidden(keyspace, db, key, shared, None)
            database.unbind(key)
        else:
            stream = stream or stream_beside(keyspace, db, key, shared)
            bind_by_state(keyspace, db, key, stream)
        return
    if shared.tombstones:
        keyspace.replica.tombstoned[db, key] = None
    note_hidden(keyspace, db, key, shared, None)
    value = database.values.get(key)
    if value is None or value.shared is not shared or value.type_name != kinds[0].encode():
        database.put(key, _small_value(kinds[0], shared))
    else:
        if isinstance(value, StringValue):
            value.replace(shared.string or b"")
        elif isinstance(value, SetValue):
            value.order = None
        if not value.is_due:
            keyspace.account.changed(value)
        database.changed(key)
    known = database.deadlines.get(key)
    _set_deadline(database, key, known, shared.small_deadline_of(known))


def _small_value(kind: str, shared: Shared) -> Value:
    if kind == STRING:
        return StringValue(shared.string or b"", PLAIN, shared)
    return SetValue((), shared) if kind == SET else ListValue((), shared)


def note_hidden(
    keyspace: Keyspace, db: int, key: bytes, shared: Shared, stream: Stream | None
) -> None:
    """Note whether the value of a key hides another one."""
    hidden = keyspace.replica.hidden_values
    if shared.has_small:
        shown = 0 if stream is not None and stream.exists else 1
        if len(shared.small_kinds) > shown:
            hidden[db, key] = None
            return
    if hidden:
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
