"""Applies effects on whole keys, and on users; decides nothing."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.effects import kinds
from anabranch.effects.restoring import value_of
from anabranch.effects.streams import (
    begun_stream,
    bind_by_state,
    free_groups,
    remembered_tags,
    renew_producers,
)
from anabranch.keyspace.database import Database
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.libraries import Library
from anabranch.keyspace.policies import PolicySetting, Subject
from anabranch.keyspace.timetables import Timetables
from anabranch.keyspace.values import ListValue, SetValue, StringValue, Value
from anabranch.keyspace.version_vectors import covers_dot
from anabranch.scheduling import in_one_go
from anabranch.stream import by_number
from anabranch.stream.frozen import copied
from anabranch.stream.groups.group import NO_REPLICA_ID
from anabranch.stream.groups.pending import MAX_DELIVERIES
from anabranch.stream.shared import ALL_GROUPS, NO_GROUP
from anabranch.stream.stream import Stream


def delete(keyspace: Keyspace, effect: kinds.Delete) -> None:
    """Remove everything of a key that is in the context of the effect.

    Where several regions write, nothing else is removed, except for concurrent groups: DEL removes
    them. Expiry does not, because any region may repeat it.
    """
    replica = keyspace.replica
    if not replica.is_regional:  # everything is in its context, whatever type the value has
        gone = keyspace.databases[effect.db].discard(effect.key)
        if gone is not None:
            keyspace.deferred_free.defer(gone)
        return
    stream = begun_stream(keyspace, effect.db, effect.key)
    context = replica.context_now()
    positions = dict(effect.positions)
    for replica_id, log in stream.logs.items():
        whole = by_number.clear_upto(log, context.get(replica_id, 0), positions.get(replica_id, 0))
        keyspace.deferred_free.defer(whole)
    shared = stream.shared
    before = remembered_tags(keyspace, effect.db, effect.key, stream)
    shared.clear(replica.knows)
    shared.cut(effect.cuts)
    replica.conflicts.displaced.remove((effect.db, effect.key), replica.knows)
    for name, group in list(stream.groups.items()):
        if group.shared.drop_creations(lambda dot: not effect.expired or replica.knows(dot)):
            for replica_id in stream.logs:
                group.drop_between(replica_id, 0, context.get(replica_id, 0))
            group.drop_between(NO_REPLICA_ID, 0, MAX_DELIVERIES)
        else:
            del stream.groups[name]
            keyspace.deferred_free.defer(group)
    dot = replica.dot
    shared.bury(dot, NO_GROUP if effect.expired else ALL_GROUPS, replica.unstable_tombstones.add)
    stream.recount()
    renew_producers(keyspace, effect.db, effect.key, stream, before)
    bind_by_state(keyspace, effect.db, effect.key, stream)
    keyspace.databases[effect.db].changed(effect.key)


def delete_keys(keyspace: Keyspace, effect: kinds.DeleteKeys) -> None:
    """Remove those of several keys that exist, at one moment."""
    database = keyspace.databases[effect.db]
    keyspace.deferred_free.defer(database.discard_all(effect.keys))
    keyspace.deferred_free.settle(database.order)


def expire(keyspace: Keyspace, effect: kinds.Expire) -> None:
    """Set the deadline of a key, or none; it replaces the deadlines in its context."""
    replica = keyspace.replica
    database = keyspace.databases[effect.db]
    value = database.values.get(effect.key) or begun_stream(keyspace, effect.db, effect.key)
    at_ms = value.shared.set_deadline(replica.dot, effect.at_ms, replica.knows)
    if type(value) is not Stream:
        at_ms = value.shared.small_deadline_of(at_ms)
    if effect.key in database.values:
        if at_ms is None:
            database.deadlines.pop(effect.key, None)
        else:
            database.deadlines[effect.key] = at_ms
        if not value.is_due:
            keyspace.account.changed(value)
    database.touch(effect.key)


def rename(keyspace: Keyspace, effect: kinds.Rename) -> None:
    """Move a value and its deadline to another key, maybe of another database."""
    source = keyspace.databases[effect.db]
    deadline = source.deadlines.get(effect.key)
    value = source.discard(effect.key)
    assert value is not None
    bind(keyspace, effect.target_db, effect.target, value, deadline, effect.incarnation)


def copy(keyspace: Keyspace, effect: kinds.Copy) -> None:
    """Bind another key to an independent copy of a value and its deadline."""
    source = keyspace.databases[effect.db]
    value = copy_value(source.values[effect.key])
    deadline = source.deadlines.get(effect.key)
    bind(keyspace, effect.target_db, effect.target, value, deadline, effect.incarnation)


def bind(
    keyspace: Keyspace,
    db: int,
    key: bytes,
    value: Value,
    deadline: int | None,
    incarnation: int = 0,
) -> None:
    """Bind a key to a value with this deadline; an earlier value of the key is discarded."""
    target = keyspace.databases[db]
    older = target.values.get(key)
    target.put(key, value)
    if older is not None:
        keyspace.deferred_free.defer(older)
    if isinstance(value, Stream):
        target.begin(key, value, incarnation)
        target.policies.bind(key, value)  # they belong to the name
    if deadline is not None:
        target.deadlines[key] = deadline


def copy_value(value: Value) -> Value:
    """An independent copy of any value."""
    if isinstance(value, Stream):
        return copied(value)
    if isinstance(value, StringValue):
        return StringValue(value.data, value.form)
    if isinstance(value, ListValue):
        return ListValue(value.items)
    return SetValue(value.members)


def restore(keyspace: Keyspace, effect: kinds.Restore) -> None:
    """Bind a key to the value of a payload, which the command has decoded before: it is sound."""
    value = keyspace.prepared
    if value is None:
        value = in_one_go(value_of(effect))
    bind(keyspace, effect.db, effect.key, value, effect.at_ms, effect.incarnation)


def flush(keyspace: Keyspace, effect: kinds.Flush) -> None:
    """Empty a database, or all of them."""
    emptied = [each for each in keyspace.databases if effect.db in (None, each.index)]
    if keyspace.replica.is_regional:  # each key in its context was deleted before
        _destroy_unseen_groups(keyspace, emptied, effect.db)
        return
    for database in emptied:
        keyspace.deferred_free.defer(database.clear())
        timetables, database.timetables = database.timetables, Timetables()
        if timetables.entries:
            keyspace.deferred_free.defer(timetables.freed())


def _destroy_unseen_groups(
    keyspace: Keyspace, databases: Iterable[Database], db: int | None
) -> None:
    """Remove all groups that are left; the tombstone of the flush beats concurrent creations."""
    replica = keyspace.replica
    replica.flushes[replica.dot] = db
    replica.unstable_tombstones.add(replica.dot)
    replica.last_effects.record_all({replica.replica_id: replica.number})
    for database in databases:
        for key, value in list(database.values.items()):
            if type(value) is Stream and value.groups:
                groups, value.groups = value.groups, {}
                free_groups(keyspace, groups, value)
                bind_by_state(keyspace, database.index, key, value)
                replica.last_effects.mark_changed((database.index, key))
                database.changed(key)


def swap(keyspace: Keyspace, effect: kinds.Swap) -> None:
    """Exchange the contents of two databases."""
    keyspace.swap(effect.db, effect.other)


def synced(keyspace: Keyspace, effect: kinds.Synced) -> None:
    """Do nothing: that the log was on the disk concerns the log, no key changes."""


def set_user(keyspace: Keyspace, effect: kinds.SetUser) -> None:
    """Note the line of an ACL user, new or changed."""
    keyspace.users[effect.name] = effect.line


def drop_user(keyspace: Keyspace, effect: kinds.DropUser) -> None:
    """Remove an ACL user."""
    keyspace.users.pop(effect.name, None)


def set_library(keyspace: Keyspace, effect: kinds.SetLibrary) -> None:
    """Note a library of functions, new or replaced."""
    keyspace.libraries[effect.name] = Library(effect.name, effect.code, effect.functions)


def drop_library(keyspace: Keyspace, effect: kinds.DropLibrary) -> None:
    """Remove a library of functions."""
    keyspace.libraries.pop(effect.name, None)


def set_policies(keyspace: Keyspace, effect: kinds.SetPolicies) -> None:
    """Set or delete policies of a name; of a deleted one the stamp stays while members lack it."""
    replica = keyspace.replica
    replica.hybrid_ms = max(replica.hybrid_ms, effect.stamp_ms)
    database = keyspace.databases[effect.db]
    subject = Subject(effect.is_pattern, effect.subject, effect.group)
    keeps = not covers_dot(replica.watermark, replica.dot)
    for name, text in effect.rows:
        setting = PolicySetting(effect.stamp_ms, *replica.dot, text)
        database.policies.set(subject, name, setting, keeps=keeps)
    database.policies.rebind(subject, database.values, database.order)
