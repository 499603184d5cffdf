"""The write set of effects: the keys, users, members and libraries that they have changed.

Replies must not show what is in the write set of effects that are not safe yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from anabranch.effects import kinds
from anabranch.effects.apply import EFFECTS
from anabranch.effects.codec import effect_of
from anabranch.effects.recorded import Additions, Recordable

_ONE_PLACE: Final = (("db", "key"), ("db", "name"))
"""The first fields of kinds that name one key, or one stream by its name."""


def is_ageing(effect: Recordable) -> bool:
    """Whether only the passing of time caused this effect: it would come again after a crash."""
    if isinstance(effect, Additions):
        return False
    return EFFECTS[type(effect)].ages or getattr(effect, "expired", False)


def places_of(effect: Any) -> list[tuple[int, bytes]]:
    """``(database, key)`` of every key an effect names, or of the name of a stream."""
    if isinstance(effect, Additions):
        return [(effect.db, effect.key)]
    fields = effect.__struct_fields__
    if "keys" in fields:
        return [(effect.db, key) for key in effect.keys]
    found = [(effect.db, getattr(effect, fields[1]))] if fields[:2] in _ONE_PLACE else []
    if "target" in fields:
        found.append((effect.target_db, effect.target))
    return found


def _is_simple(kind: type[kinds.Effect]) -> bool:
    """Whether an effect of this kind changes the one key that its first two fields name."""
    fields = kind.__struct_fields__
    is_special = "target" in fields or "expired" in fields or EFFECTS[kind].ages
    return fields[:2] == _ONE_PLACE[0] and not is_special


SIMPLE: Final = frozenset(kind.__struct_config__.tag for kind in EFFECTS if _is_simple(kind))
"""The tags of such kinds."""


class WriteSet:
    """The changes of some effects, without ageing (:func:`is_ageing`)."""

    __slots__ = ("_databases", "everything", "keys", "subjects")

    def __init__(self) -> None:
        self.keys: set[tuple[int, bytes]] = set()
        """``(database, key)`` of the keys that the effects name."""
        self._databases: set[int] = set()
        self.everything = False
        """Whether any key may have changed."""
        self.subjects: set[str] = set()
        """What else has changed: users, libraries of functions, policies, members of the cluster,
        or the numbers in the version vector of this region."""

    def add(self, effect: Recordable, *, numbered: bool) -> None:
        """Add an effect; ``numbered`` if it has a number in a cluster of regions."""
        if numbered:
            self.subjects.add("numbers")
        if is_ageing(effect):
            return
        self.keys.update(places_of(effect))
        if isinstance(effect, kinds.Swap):
            self._databases |= {effect.db, effect.other}
        elif isinstance(effect, kinds.Flush) and effect.db is not None:
            self._databases.add(effect.db)
        elif isinstance(effect, kinds.Flush | kinds.JoinFullSync):
            self.everything = True
        if not isinstance(effect, Additions) and (subject := EFFECTS[type(effect)].subject):
            self.subjects.add(subject)

    def add_plain(self, arrays: Iterable[list[Any]], *, numbered: bool) -> None:
        """Add effects in the form of the log; raises what :func:`effect_of` raises."""
        if numbered:
            self.subjects.add("numbers")
        keys = self.keys
        for array in arrays:
            if array[0] in SIMPLE:
                keys.add((array[1], array[2]))
            else:
                self.add(effect_of(array), numbered=numbered)

    def add_all(self) -> None:
        """Record that anything may have changed."""
        self.everything = True
        self.subjects.update(row.subject for row in EFFECTS.values() if row.subject)
        self.subjects.add("numbers")

    def includes(self, db: int, key: bytes) -> bool:
        """Whether a key may have changed."""
        return self.everything or db in self._databases or (db, key) in self.keys

    def includes_all_of(self, db: int) -> bool:
        """Whether every key of a database may have changed."""
        return self.everything or db in self._databases

    @property
    def any_key(self) -> bool:
        """Whether any key may have changed at all."""
        return self.everything or bool(self._databases) or bool(self.keys)
