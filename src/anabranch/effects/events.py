"""Keyspace events as values: which effect is which event, in which class.

Local and remote changes publish the same events because both are effects. Class letters follow
``notify-keyspace-events``. FLUSHDB, FLUSHALL and SWAPDB publish nothing, as in Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from anabranch.effects import kinds

__all__ = ["Event", "events_of"]

Event = tuple[str, str, int, bytes]
"""(class letter, event name, database, key)."""

_SIMPLE: dict[type[kinds.Effect], tuple[str, str]] = {
    kinds.CreateStream: ("n", "new"),
    kinds.Add: ("t", "xadd"),
    kinds.Trim: ("t", "xtrim"),
    kinds.SetLastId: ("t", "xsetid"),
    kinds.CreateGroup: ("t", "xgroup-create"),
    kinds.SetGroup: ("t", "xgroup-setid"),
    kinds.DestroyGroup: ("t", "xgroup-destroy"),
    kinds.CreateConsumer: ("t", "xgroup-createconsumer"),
    kinds.DeleteConsumer: ("t", "xgroup-delconsumer"),
    kinds.SetString: ("$", "set"),
    kinds.Push: ("l", "lpush"),
    kinds.Pop: ("l", "lpop"),
    kinds.AddMembers: ("s", "sadd"),
    kinds.Restore: ("g", "restore"),
}


def _remove(effect: kinds.Remove) -> Iterator[Event]:
    yield "t", "xtrim" if effect.trimmed else "xdel", effect.db, effect.key


def _delete(effect: kinds.Delete) -> Iterator[Event]:
    kind, event = ("x", "expired") if effect.expired else ("g", "del")
    yield kind, event, effect.db, effect.key


def _expire(effect: kinds.Expire) -> Iterator[Event]:
    yield "g", "persist" if effect.at_ms is None else "expire", effect.db, effect.key


def _rename(effect: kinds.Rename) -> Iterator[Event]:
    names = ("rename_from", "rename_to") if effect.db == effect.target_db else ("move_from", "move_to")
    yield "g", names[0], effect.db, effect.key
    yield "g", names[1], effect.target_db, effect.target


def _copy(effect: kinds.Copy) -> Iterator[Event]:
    yield "g", "copy_to", effect.target_db, effect.target


_OTHER: dict[type[kinds.Effect], Callable[[Any], Iterator[Event]]] = {
    kinds.Remove: _remove,
    kinds.Delete: _delete,
    kinds.Expire: _expire,
    kinds.Rename: _rename,
    kinds.Copy: _copy,
}


def events_of(effect: kinds.Effect) -> Iterator[Event]:
    """The keyspace events of one effect, in order."""
    simple = _SIMPLE.get(type(effect))
    if simple is not None:
        yield (*simple, effect.db, effect.key)  # type: ignore[attr-defined]
        return
    other = _OTHER.get(type(effect))
    if other is not None:
        yield from other(effect)
