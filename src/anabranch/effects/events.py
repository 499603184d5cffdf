"""The keyspace events of each kind of effect, as values with their classes.

Local and remote changes publish the same events, because both are effects. Where several regions
write, the region of a command publishes the events of its decision. The other regions publish the
events of the effects that express the decision: a RENAME arrives there as additions and a deletion,
FLUSHALL as deletions.

Class letters are those of ``notify-keyspace-events``. FLUSHDB, FLUSHALL and SWAPDB publish nothing,
as in Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.effects import kinds
from anabranch.effects.apply_group import is_beaten
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica
from anabranch.keyspace.values import ListValue, SetValue, StringValue, Value
from anabranch.stream import by_number
from anabranch.stream.register import NO_DEADLINES, Write, amount_of, winner
from anabranch.stream.stream import Stream

Event = tuple[str, str, int, bytes]
"""(class letter, event name, database, key)."""

_SIMPLE: dict[type[kinds.Effect], tuple[str, str]] = {
    kinds.CreateStream: ("n", "new"),
    kinds.Trim: ("t", "xtrim"),
    kinds.SetGroup: ("t", "xgroup-setid"),
    kinds.CreateConsumer: ("t", "xgroup-createconsumer"),
    kinds.DeleteConsumer: ("t", "xgroup-delconsumer"),
}


_PAYLOAD_TYPES = {
    0: StringValue.type_name,
    **dict.fromkeys((1, 10, 14, 18), ListValue.type_name),
    **dict.fromkeys((2, 11, 20), SetValue.type_name),
}
"""The type of the value by the first byte of a payload; all others are streams (rdb/values.py)."""


def _value(keyspace: Keyspace, db: int, key: bytes) -> Value | None:
    return keyspace.databases[db].values.get(key)


def _created(keyspace: Keyspace, db: int, key: bytes) -> list[Event]:
    """The event ``new`` if the effect creates the key."""
    return [("n", "new", db, key)] if _value(keyspace, db, key) is None else []


def _filled(keyspace: Keyspace, effect: kinds.KeyEffect, letter: str, name: str) -> list[Event]:
    """The events of a kind that puts something into a key, which it may create."""
    db, key = effect.db, effect.key
    return [*_created(keyspace, db, key), (letter, name, db, key)]


def _overwritten(old: Value | None, new_type: bytes, db: int, key: bytes) -> list[Event]:
    """The events of a key whose value is replaced."""
    if old is None:
        return []
    events: list[Event] = [("o", "overwritten", db, key)]
    if old.type_name != new_type:
        events.append(("c", "type_changed", db, key))
    return events


def _add_run(keyspace: Keyspace, effect: kinds.AddRun) -> list[Event]:
    db, key = effect.db, effect.key
    return [*_created(keyspace, db, key), *[("t", "xadd", db, key)] * len(effect.ids)]


def _gone(effect: kinds.Remove | kinds.RemoveNumbers) -> Event:
    return "t", "xtrim" if effect.trimmed else "xdel", effect.db, effect.key


def _remove_numbers(keyspace: Keyspace, effect: kinds.RemoveNumbers) -> list[Event]:
    stream = _value(keyspace, effect.db, effect.key)
    if not isinstance(stream, Stream) or not any(
        by_number.count(stream.logs[replica_id], low, high)
        for replica_id, edges in effect.ranges
        if replica_id in stream.logs
        for low, high in zip(edges[::2], edges[1::2], strict=True)
    ):
        return []  # other regions have removed all of it already
    return [_gone(effect)]


def _resolve_conflict(keyspace: Keyspace, effect: kinds.ResolveConflict) -> list[Event]:
    stream = _value(keyspace, effect.db, effect.key)
    replica_id, number = effect.goes
    if not effect.removed or not isinstance(stream, Stream) or replica_id not in stream.logs:
        return []
    if by_number.find(stream.logs[replica_id], number) is None:
        return []  # it was removed before
    return [("t", "xdel", effect.db, effect.key)]


def _create_group(keyspace: Keyspace, effect: kinds.CreateGroup) -> list[Event]:
    return [] if is_beaten(keyspace, effect) else _filled(keyspace, effect, "t", "xgroup-create")


def _destroy_group(keyspace: Keyspace, effect: kinds.DestroyGroup) -> list[Event]:
    stream = _value(keyspace, effect.db, effect.key)
    if not isinstance(stream, Stream) or effect.group not in stream.groups:
        return []  # another region had it
    return [("t", "xgroup-destroy", effect.db, effect.key)]


def _delete(keyspace: Keyspace, effect: kinds.Delete) -> list[Event]:
    if _value(keyspace, effect.db, effect.key) is None:  # another region had it
        return []
    kind, event = ("x", "expired") if effect.expired else ("g", "del")
    return [(kind, event, effect.db, effect.key)]


def _delete_keys(keyspace: Keyspace, effect: kinds.DeleteKeys) -> list[Event]:
    values = keyspace.databases[effect.db].values
    return [("g", "del", effect.db, key) for key in dict.fromkeys(effect.keys) if key in values]


def _expire(keyspace: Keyspace, effect: kinds.Expire) -> list[Event]:
    if _value(keyspace, effect.db, effect.key) is None:  # another region had it
        return []
    return [("g", "persist" if effect.at_ms is None else "expire", effect.db, effect.key)]


def _replaced(
    keyspace: Keyspace, db: int, key: bytes, new_type: bytes, *moved: Event
) -> list[Event]:
    """The events of RENAME, MOVE, COPY and RESTORE: they delete a key first, so ``new`` is one."""
    older = _overwritten(_value(keyspace, db, key), new_type, db, key)
    return [("n", "new", db, key), *moved, *older]


def _rename(keyspace: Keyspace, effect: kinds.Rename) -> list[Event]:
    db, key = effect.target_db, effect.target
    value = _value(keyspace, effect.db, effect.key)
    assert value is not None
    verb = "rename" if effect.db == db else "move"
    left: Event = ("g", f"{verb}_from", effect.db, effect.key)
    return _replaced(keyspace, db, key, value.type_name, left, ("g", f"{verb}_to", db, key))


def _copy(keyspace: Keyspace, effect: kinds.Copy) -> list[Event]:
    db, key = effect.target_db, effect.target
    value = _value(keyspace, effect.db, effect.key)
    assert value is not None
    return _replaced(keyspace, db, key, value.type_name, ("g", "copy_to", db, key))


def _restore(keyspace: Keyspace, effect: kinds.Restore) -> list[Event]:
    db, key = effect.db, effect.key
    new_type = _PAYLOAD_TYPES.get(effect.payload[0], Stream.type_name)
    return _replaced(keyspace, db, key, new_type, ("g", "restore", db, key))


def _set_string(keyspace: Keyspace, effect: kinds.SetString) -> list[Event]:
    db, key = effect.db, effect.key
    changed = effect.event or ("incrby" if effect.counted else "")
    if changed:
        return _filled(keyspace, effect, "$", changed)
    return [
        *_created(keyspace, db, key),
        *_overwritten(_value(keyspace, db, key), StringValue.type_name, db, key),
        ("$", "set", db, key),
    ]


def _written_there(keyspace: Keyspace, effect: kinds.WriteString | kinds.Increase) -> list[Event]:
    """Another region has written a string or added to it; a stream may hide it here."""
    value = _value(keyspace, effect.db, effect.key)
    if isinstance(value, Stream) or (
        isinstance(value, StringValue) and _stays(keyspace.replica, value, effect)
    ):
        return []
    return _filled(keyspace, effect, "$", effect.event or "set")


def _stays(
    replica: Replica, string: StringValue, effect: kinds.WriteString | kinds.Increase
) -> bool:
    """Whether a string stays as it is: another write counts, or it is no number."""
    if isinstance(effect, kinds.Increase):
        return amount_of(string.data) is None
    unseen = {dot: each for dot, each in string.shared.writes.items() if not replica.knows(dot)}
    unseen[replica.dot] = Write(effect.stamp_ms, effect.data, NO_DEADLINES)
    return not effect.cuts and winner(unseen) != replica.dot


def _set_strings(keyspace: Keyspace, effect: kinds.SetStrings) -> list[Event]:
    db = effect.db
    events: list[Event] = []
    bound: set[bytes] = set()
    for key in effect.keys:
        if key in bound:  # the second time
            events.append(("o", "overwritten", db, key))
        else:
            events += _created(keyspace, db, key)
            events += _overwritten(_value(keyspace, db, key), StringValue.type_name, db, key)
            bound.add(key)
        events.append(("$", "set", db, key))
    return events


def _size(keyspace: Keyspace, db: int, key: bytes) -> int:
    value = _value(keyspace, db, key)
    assert isinstance(value, ListValue)
    return len(value.items)


def _shrunk(kind: str, event: str, effect: Any, *, to_nothing: bool) -> list[Event]:
    """The event of a list or set that loses items, and ``del`` if the key is removed."""
    events: list[Event] = [(kind, event, effect.db, effect.key)] if event else []
    if to_nothing:
        events.append(("g", "del", effect.db, effect.key))
    return events


def _push(keyspace: Keyspace, effect: kinds.Push) -> list[Event]:
    return _filled(keyspace, effect, "l", "rpush" if effect.tail else "lpush")


def _pop(keyspace: Keyspace, effect: kinds.Pop) -> list[Event]:
    left = _size(keyspace, effect.db, effect.key) - effect.count
    return _shrunk("l", "rpop" if effect.tail else "lpop", effect, to_nothing=not left)


def _splice(keyspace: Keyspace, effect: kinds.Splice) -> list[Event]:
    left = _size(keyspace, effect.db, effect.key) - effect.removed + len(effect.items)
    return _shrunk("l", effect.event, effect, to_nothing=not left)


def _remove_items(keyspace: Keyspace, effect: kinds.RemoveItems) -> list[Event]:
    left = _size(keyspace, effect.db, effect.key) - abs(effect.count)
    return _shrunk("l", "lrem", effect, to_nothing=not left)


def _add_members(keyspace: Keyspace, effect: kinds.AddMembers) -> list[Event]:
    value = _value(keyspace, effect.db, effect.key)
    if isinstance(value, SetValue) and set(effect.members) <= value.members:
        return []  # they only win over more removals now
    return _filled(keyspace, effect, "s", "sadd")


def _put_there(keyspace: Keyspace, effect: kinds.PutElements) -> list[Event]:
    """Another region has put elements somewhere; a value of another type may hide them here."""
    db, key = effect.db, effect.key
    value = _value(keyspace, db, key)
    if not _shows(value, effect.kind) or (
        isinstance(value, SetValue) and set(effect.places) <= value.members
    ):
        return []
    if not effect.event:
        return _created(keyspace, db, key)
    return _filled(keyspace, effect, effect.kind[0], effect.event)


def _taken_there(keyspace: Keyspace, effect: kinds.TakeElements) -> list[Event]:
    """Another region has taken elements away, which may be gone here."""
    value = _value(keyspace, effect.db, effect.key)
    if value is None or not _shows(value, effect.kind) or not effect.event:
        return []
    elements = value.shared.elements[effect.kind]
    left = elements.left_without(effect.places, keyspace.replica.knows)
    if left == len(elements):
        return []
    return _shrunk(effect.kind[0], effect.event, effect, to_nothing=not left)


def _shows(value: Value | None, kind: str) -> bool:
    return value is None or value.type_name == kind.encode()


def _remove_members(keyspace: Keyspace, effect: kinds.RemoveMembers) -> list[Event]:
    value = _value(keyspace, effect.db, effect.key)
    assert isinstance(value, SetValue)
    is_all = len(value.members) == len(effect.members)
    return _shrunk("s", effect.event, effect, to_nothing=is_all)


_OTHER: dict[type[kinds.Effect], Callable[[Keyspace, Any], list[Event]]] = {
    kinds.Add: lambda keyspace, effect: _filled(keyspace, effect, "t", "xadd"),
    kinds.AddRun: _add_run,
    kinds.Remove: lambda _, effect: [_gone(effect)],
    kinds.RemoveNumbers: _remove_numbers,
    kinds.ResolveConflict: _resolve_conflict,
    kinds.SetLastId: lambda keyspace, effect: _filled(keyspace, effect, "t", "xsetid"),
    kinds.CreateGroup: _create_group,
    kinds.DestroyGroup: _destroy_group,
    kinds.Delete: _delete,
    kinds.DeleteKeys: _delete_keys,
    kinds.Expire: _expire,
    kinds.Rename: _rename,
    kinds.Copy: _copy,
    kinds.Restore: _restore,
    kinds.SetString: _set_string,
    kinds.WriteString: _written_there,
    kinds.Increase: _written_there,
    kinds.PutElements: _put_there,
    kinds.TakeElements: _taken_there,
    kinds.Overwrite: lambda keyspace, effect: _filled(keyspace, effect, "$", effect.event),
    kinds.SetStrings: _set_strings,
    kinds.Push: _push,
    kinds.Pop: _pop,
    kinds.Splice: _splice,
    kinds.RemoveItems: _remove_items,
    kinds.AddMembers: _add_members,
    kinds.RemoveMembers: _remove_members,
}


def events_of(keyspace: Keyspace, effect: kinds.Effect) -> list[Event]:
    """The keyspace events of an effect that is about to be applied, in order."""
    simple = _SIMPLE.get(type(effect))
    if simple is not None:
        return [(*simple, effect.db, effect.key)]  # type: ignore[attr-defined]
    other = _OTHER.get(type(effect))
    return [] if other is None else other(keyspace, effect)
