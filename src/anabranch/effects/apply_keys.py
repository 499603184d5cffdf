"""Effects on keys as a whole, and on users. No policy: only carrying out."""

from __future__ import annotations

from weakref import ref

from anabranch.effects import kinds
from anabranch.effects.restoring import value_of
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.values import ListValue, SetValue, StringValue, Value
from anabranch.scheduling import in_one_go
from anabranch.stream.stream import Stream

__all__ = ["bind", "copy_value"]


def delete(keyspace: Keyspace, effect: kinds.Delete) -> None:
    """See :class:`kinds.Delete`."""
    gone = keyspace.databases[effect.db].discard(effect.key)
    if gone is not None:
        keyspace.deferred_free.add(gone)


def expire(keyspace: Keyspace, effect: kinds.Expire) -> None:
    """See :class:`kinds.Expire`."""
    database = keyspace.databases[effect.db]
    if effect.at_ms is None:
        database.deadlines.pop(effect.key, None)
    else:
        database.deadlines[effect.key] = effect.at_ms
    database.touch(effect.key)


def rename(keyspace: Keyspace, effect: kinds.Rename) -> None:
    """See :class:`kinds.Rename`."""
    source = keyspace.databases[effect.db]
    deadline = source.deadlines.get(effect.key)
    value = source.discard(effect.key)
    assert value is not None
    bind(keyspace, effect.target_db, effect.target, value, deadline, effect.incarnation)


def copy(keyspace: Keyspace, effect: kinds.Copy) -> None:
    """See :class:`kinds.Copy`."""
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
    """Bind a key to a value with this deadline, whatever the key held."""
    target = keyspace.databases[db]
    older = target.values.get(key)
    target.put(key, value)
    if older is not None:
        keyspace.deferred_free.add(older)
    if isinstance(value, Stream):
        value.incarnation = incarnation
        for log in value.logs.values():
            keyspace.unsealed.extend(map(ref, log.full_blocks()))
    if deadline is not None:
        target.deadlines[key] = deadline


def copy_value(value: Value) -> Value:
    """An independent copy of any value."""
    if isinstance(value, Stream):
        return value.copy()
    if isinstance(value, StringValue):
        return StringValue(value.data)
    if isinstance(value, ListValue):
        return ListValue(value.items)
    return SetValue(value.members)


def restore(keyspace: Keyspace, effect: kinds.Restore) -> None:
    """See :class:`kinds.Restore`. The command has decoded the payload before: it is sound."""
    value = keyspace.prepared
    if value is None:
        value = in_one_go(value_of(effect))
    bind(keyspace, effect.db, effect.key, value, effect.at_ms, effect.incarnation)


def flush(keyspace: Keyspace, effect: kinds.Flush) -> None:
    """See :class:`kinds.Flush`."""
    for database in keyspace.databases:
        if effect.db is None or effect.db == database.index:
            keyspace.deferred_free.add(database.clear())


def swap(keyspace: Keyspace, effect: kinds.Swap) -> None:
    """See :class:`kinds.Swap`."""
    keyspace.swap(effect.db, effect.other)


def synced(keyspace: Keyspace, effect: kinds.Synced) -> None:
    """See :class:`kinds.Synced`: it tells of the log, and no key changes."""


def set_user(keyspace: Keyspace, effect: kinds.SetUser) -> None:
    """See :class:`kinds.SetUser`."""
    keyspace.users[effect.name] = effect.line


def drop_user(keyspace: Keyspace, effect: kinds.DropUser) -> None:
    """See :class:`kinds.DropUser`."""
    keyspace.users.pop(effect.name, None)
