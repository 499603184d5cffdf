"""Some keys of a keyspace with their values, which are looked up before the moment that counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.keyspace.database import Database
from anabranch.keyspace.last_effects import Place
from anabranch.keyspace.values import Value


class Places:
    """Keys by database. Who changes a key meanwhile must let it be looked at again."""

    __slots__ = ("_databases", "others", "values")

    def __init__(self, databases: Sequence[Database], places: Iterable[Place] = ()) -> None:
        self._databases = databases
        self.values: list[dict[bytes, Value]] = [{} for _ in databases]
        """By database and key; streams of deleted keys that are objects are among them."""
        self.others: list[dict[bytes, None]] = [{} for _ in databases]
        """Deleted keys that are packed, and keys of which nothing is known."""
        for place in places:
            self.look(place)

    def look(self, place: Place) -> None:
        """Add a key, or look at it again."""
        db, key = place
        database = self._databases[db]
        value = database.values.get(key) or database.remembered.objects.get(key)
        if value is None:
            self.values[db].pop(key, None)
            self.others[db][key] = None
        else:
            self.others[db].pop(key, None)
            self.values[db][key] = value
