"""Applies effects on the small values beside streams: strings, lists and sets.

Where several regions write, the value of a key follows from what they share of the key
(:mod:`anabranch.stream.register`, :mod:`anabranch.stream.elements`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from anabranch.effects import kinds
from anabranch.effects.apply_keys import bind
from anabranch.effects.streams import bind_small, shared_of
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.values import (
    PLAIN,
    RAW,
    TEXT,
    ListValue,
    SetValue,
    StringValue,
    Value,
)
from anabranch.stream.elements import SET, Elements
from anabranch.stream.register import NO_DEADLINES, Write, amount_of
from anabranch.stream.shared import ELEMENTS_LEVEL, NO_GROUP, STRINGS_LEVEL, Shared


def set_string(keyspace: Keyspace, effect: kinds.SetString) -> None:
    """Bind a key to a string."""
    deadlines = keyspace.databases[effect.db].deadlines
    deadline = deadlines.get(effect.key) if effect.keeps_deadline else None
    # Redis looks for an integer in every new string, but not in the sum of INCRBYFLOAT.
    form = TEXT if effect.event == "incrbyfloat" else PLAIN
    bind(keyspace, effect.db, effect.key, StringValue(effect.data, form), deadline)


def set_strings(keyspace: Keyspace, effect: kinds.SetStrings) -> None:
    """Bind several keys to strings at one moment. Of equal keys the last one counts."""
    database = keyspace.databases[effect.db]
    keyspace.deferred_free.defer(database.put_strings(effect.keys, effect.data))
    keyspace.deferred_free.settle(database.order)


def write_string(keyspace: Keyspace, effect: kinds.WriteString) -> None:
    """Write a string; it replaces the writes, increments and deadlines in its context."""
    replica = keyspace.replica
    replica.hybrid_ms = max(replica.hybrid_ms, effect.stamp_ms)
    replica.known_level = max(replica.known_level, STRINGS_LEVEL)
    shared, stream = shared_of(keyspace, effect.db, effect.key)
    dot = replica.dot
    deadlines = NO_DEADLINES if effect.at_ms is None else {dot: effect.at_ms}
    shared.write(dot, Write(effect.stamp_ms, effect.data, deadlines), replica.knows)
    shared.cut(effect.cuts)
    if effect.cuts:  # until every member has it, increments that it has not seen may arrive
        shared.bury(dot, NO_GROUP, replica.unstable_tombstones.add)
    bind_small(keyspace, effect.db, effect.key, shared, stream)


def increase(keyspace: Keyspace, effect: kinds.Increase) -> None:
    """Add to a number; what was added concurrently is added, too."""
    replica = keyspace.replica
    replica.known_level = max(replica.known_level, STRINGS_LEVEL)
    shared, stream = shared_of(keyspace, effect.db, effect.key)
    total = amount_of(effect.total)
    assert total is not None
    shared.increase(replica.dot, effect.since, total, effect.at_ms)
    bind_small(keyspace, effect.db, effect.key, shared, stream)


def put_elements(keyspace: Keyspace, effect: kinds.PutElements) -> None:
    """Put members into a set or items into a list; they replace what was seen at their places."""
    replica = keyspace.replica
    replica.known_level = max(replica.known_level, ELEMENTS_LEVEL)
    _change(
        keyspace,
        effect,
        lambda elements: elements.put(replica.dot, effect.places, effect.items, replica.knows),
    )


def take_elements(keyspace: Keyspace, effect: kinds.TakeElements) -> None:
    """Take what was seen at places out of a set or a list."""
    knows = keyspace.replica.knows
    _change(keyspace, effect, lambda elements: elements.take(effect.places, knows))


def _change(
    keyspace: Keyspace,
    effect: kinds.PutElements | kinds.TakeElements,
    change: Callable[[Elements], object],
) -> None:
    """Change elements; ``change`` says whether it has added or removed any."""
    shared, stream = shared_of(keyspace, effect.db, effect.key)
    elements = shared.elements_of(effect.kind)
    shown = _shown_set(keyspace, effect, shared)
    order = None if shown is None else shown.order
    known = [] if order is None else [each for each in effect.places if each in elements.puts]
    has_changed = change(elements)
    shared.settle(elements)
    if shown is not None and not has_changed:  # members only win over more removals now, or fewer
        _count_anew(keyspace, shown)
        return
    bind_small(keyspace, effect.db, effect.key, shared, stream)
    if shown is not None and order is not None:
        former = set(known)
        order.add([each for each in effect.places if each in elements.puts and each not in former])
        order.remove([each for each in known if each not in elements.puts])
        shown.order = order


def _shown_set(
    keyspace: Keyspace, effect: kinds.PutElements | kinds.TakeElements, shared: Shared
) -> SetValue | None:
    """The set that an effect changes, if clients see it; it may hide a list that others change."""
    value = keyspace.databases[effect.db].values.get(effect.key)
    if effect.kind == SET and isinstance(value, SetValue) and value.shared is shared:
        return value
    return None


def overwrite(keyspace: Keyspace, effect: kinds.Overwrite) -> None:
    """Replace bytes of a string from a position on; zeros fill a gap before it."""
    database = keyspace.databases[effect.db]
    value = database.values.get(effect.key)
    if value is None:
        data = effect.data.rjust(effect.at + len(effect.data), b"\0")
        value = StringValue(data, PLAIN if effect.event == "append" else RAW)
        bind(keyspace, effect.db, effect.key, value, None)
        return
    assert isinstance(value, StringValue)
    value.overwrite(effect.at, effect.data)
    _count_anew(keyspace, value)
    database.changed(effect.key)


def push(keyspace: Keyspace, effect: kinds.Push) -> None:
    """Put items at a list's head or tail; a new list is made if there is none."""
    database = keyspace.databases[effect.db]
    value = database.values.get(effect.key)
    if value is None:
        value = ListValue()
        database.put(effect.key, value)
    assert isinstance(value, ListValue)
    if effect.tail:
        _items(value).extend(effect.items)
    else:
        _items(value).extendleft(effect.items)
    _count_anew(keyspace, value)
    database.grown(effect.key)


def pop(keyspace: Keyspace, effect: kinds.Pop) -> None:
    """Take items off a list's head or tail; the key of an empty list is removed."""
    items = _items(keyspace.databases[effect.db].values[effect.key])
    take = items.pop if effect.tail else items.popleft
    for _ in range(effect.count):
        take()
    _shrunk(keyspace, effect.db, effect.key)


def splice(keyspace: Keyspace, effect: kinds.Splice) -> None:
    """Replace neighbouring items of a list; the key of an empty list is removed."""
    items = _items(keyspace.databases[effect.db].values[effect.key])
    items.rotate(-effect.index)
    for _ in range(effect.removed):
        items.popleft()
    items.extendleft(reversed(effect.items))
    items.rotate(effect.index)
    _shrunk(keyspace, effect.db, effect.key)


def remove_items(keyspace: Keyspace, effect: kinds.RemoveItems) -> None:
    """Take equal items out of a list, from its head or from its tail."""
    items = _items(keyspace.databases[effect.db].values[effect.key])
    left = abs(effect.count)
    kept: list[bytes] = []
    for item in reversed(items) if effect.count < 0 else items:
        if left and item == effect.item:
            left -= 1
        else:
            kept.append(item)
    if effect.count < 0:
        kept.reverse()
    items.clear()
    items.extend(kept)
    _shrunk(keyspace, effect.db, effect.key)


def add_members(keyspace: Keyspace, effect: kinds.AddMembers) -> None:
    """Add members to a set; a new set is made if there is none."""
    database = keyspace.databases[effect.db]
    value = database.values.get(effect.key)
    if value is None:
        value = SetValue()
        database.put(effect.key, value)
    assert isinstance(value, SetValue)
    if value.order is not None:
        value.order.add(effect.members)
    _members(value).update(effect.members)
    _count_anew(keyspace, value)
    database.touch(effect.key)


def remove_members(keyspace: Keyspace, effect: kinds.RemoveMembers) -> None:
    """Remove members of a set; the key of an empty set is removed."""
    value = keyspace.databases[effect.db].values[effect.key]
    assert isinstance(value, SetValue)
    if value.order is not None:
        value.order.remove(effect.members)
    _members(value).difference_update(effect.members)
    _shrunk(keyspace, effect.db, effect.key)


def _items(value: Value) -> deque[bytes]:
    """The items of the list of a region alone."""
    assert isinstance(value, ListValue)
    assert isinstance(value.items, deque)
    return value.items


def _members(value: SetValue) -> set[bytes]:
    """The members of the set of a region alone."""
    assert isinstance(value.members, set)
    return value.members


def _count_anew(keyspace: Keyspace, value: StringValue | ListValue | SetValue) -> None:
    if not value.is_due:
        keyspace.account.changed(value)


def _shrunk(keyspace: Keyspace, db: int, key: bytes) -> None:
    """Unbind a list or set that is empty now; otherwise break transactions that watch it."""
    database = keyspace.databases[db]
    value = database.values[key]
    assert isinstance(value, ListValue | SetValue)
    _count_anew(keyspace, value)
    if value.items if isinstance(value, ListValue) else value.members:
        database.touch(key)
    else:
        database.discard(key)
