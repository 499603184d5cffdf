"""Strings, lists and sets."""

from __future__ import annotations

from anabranch.effects.kinds.base import Effect, KeyEffect


class SetString(KeyEffect, tag=50):
    """Binds a key to a string and replaces its value.

    ``keeps_deadline`` is SET KEEPTTL. ``event`` is the keyspace event of a string that was changed,
    and not replaced: ``append``, ``incrby``; ``counted`` is how earlier versions wrote ``incrby``.
    """

    data: bytes
    keeps_deadline: bool = False
    counted: bool = False
    event: str = ""


class Overwrite(KeyEffect, tag=58):
    """Replaces the bytes of a string from position ``at`` on; zeros fill a gap before it.

    A new string is made if there is none. ``event`` is the keyspace event.
    """

    at: int
    data: bytes
    event: str


class Push(KeyEffect, tag=51):
    """Items put at a list's head (or ``tail``), one after the other."""

    items: list[bytes]
    tail: bool = False


class Pop(KeyEffect, tag=52):
    """Items taken off a list's head (or ``tail``); an empty list's key is removed."""

    count: int = 1
    tail: bool = False


class Splice(KeyEffect, tag=54):
    """Replaces ``removed`` items of a list from an index on; an empty list's key is removed.

    ``event`` is the keyspace event; none if it is empty.
    """

    index: int
    removed: int
    items: list[bytes]
    event: str = ""


class RemoveItems(KeyEffect, tag=55):
    """The first ``count`` equal items of a list taken out, the last ones if it is negative.

    An empty list's key is removed.
    """

    item: bytes
    count: int


class AddMembers(KeyEffect, tag=53):
    """Adds members to a set."""

    members: list[bytes]


class RemoveMembers(KeyEffect, tag=56):
    """Removes members; an empty set's key is removed. ``event`` is the keyspace event."""

    members: list[bytes]
    event: str = "srem"


class SetStrings(Effect, tag=57):
    """Binds several keys to strings at one moment: ``keys`` and ``data`` are columns."""

    db: int
    keys: list[bytes]
    data: list[bytes]
