"""Refuses reads that would show changes which a crash could undo.

While the disk does not accept writes, commands that read a key with changes that are not safe get
an error; all other keys are served. See docs/persistence.md and decision 11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from anabranch.effects.events import Event
from anabranch.effects.write_set import WriteSet
from anabranch.engine import texts
from anabranch.engine.key_extraction import has_keys, keys_of
from anabranch.engine.session import Session
from anabranch.engine.spec import Command
from anabranch.errors import CommandError
from anabranch.keyspace.database import Database

_OF_ALL_KEYS: Final = frozenset({"debug", "memory|stats"})
"""Commands that show all keys, in addition to reading commands that name no key."""

_REPORTING: Final = {
    "libraries": "fcall fcall_ro function|dump function|list function|stats".split(),
    "members": "ab.peers ab.region|features ab.region|list".split(),
    "numbers": "ab.read ab.token ab.waitfor".split(),
    "policies": "ab.policy|get ab.policy|list".split(),
    "users": "acl|dryrun acl|getuser acl|list acl|users".split(),
}
"""Commands that report what is in no key, by what :attr:`WriteSet.subjects` says of it."""

_REFUSALS: Final = {
    "libraries": b"Changes of libraries of functions are",
    "members": b"Changes of the list of regions are",
    "numbers": b"Some of what this region has applied is",
    "policies": b"Changes of policies are",
    "users": b"Changes of users are",
}

_SHOWN_MAX: Final = 128


class Withheld:
    """What replies must not show at present, and the errors that clients get instead."""

    def __init__(self, write_set: Callable[[], WriteSet]) -> None:
        """``write_set`` returns what replies must not show."""
        self.write_set = write_set
        self._refusal = ""
        self._until = ""
        self.events: list[Event] = []
        """Keyspace events of withheld keys, published when their changes are safe."""
        self.refused = 0
        """Count of refused reads."""

    def say(self, refusal: str, until: str) -> None:
        """Set the reason: the error of writing commands, and when reads are possible again."""
        self._refusal = refusal
        self._until = until

    def check(self, session: Session, command: Command, args: list[bytes]) -> None:
        """Refuse a command whose reply would show a change that is not safe."""
        write_set = self.write_set()
        if command.name == "exec":  # its reply shows whether keys have changed
            self.check_keys(session.watched)
            return
        keys = [key for key, _ in keys_of(command, args)]
        self.check_keys((session.db, key) for key in keys)
        name = command.full_name
        reads_all = name in _OF_ALL_KEYS or (
            "readonly" in command.flags
            and (has_keys(command) or "keyspace" in command.categories)
            and name != "ab.info"  # shows figures of the process, as INFO does
        )
        if write_set.any_key and reads_all and not keys:
            self._refuse(b"Changes of keys are")
        for subject in write_set.subjects:
            if name in _REPORTING[subject]:
                self._refuse(_REFUSALS[subject])

    def check_keys(self, places: Iterable[tuple[int, bytes]]) -> None:
        """Refuse a read of keys if one of them is withheld."""
        write_set = self.write_set()
        for db, key in places:
            if write_set.includes(db, key):
                self._refuse(b"The last change of key '%b' is" % texts.shown(key)[:_SHOWN_MAX])

    def _refuse(self, changes: bytes) -> None:
        self.refused += 1
        reason, until = self._refusal.encode(), self._until.encode()
        parts = (reason, b". ", changes, b" not on the disk: this cannot be read until ", until)
        raise CommandError(b"".join(parts))

    def hides_some_of(self, db: int) -> bool:
        """Whether a database may have withheld keys."""
        write_set = self.write_set()
        return write_set.includes_all_of(db) or any(each == db for each, _ in write_set.keys)

    def keys_left(self, database: Database) -> tuple[int, int]:
        """How many keys of a database are not withheld, and how many of these have a deadline."""
        write_set = self.write_set()
        if write_set.includes_all_of(database.index):
            return 0, 0
        hidden = [key for db, key in write_set.keys if db == database.index]
        return (
            len(database.values) - sum(key in database.values for key in hidden),
            len(database.deadlines) - sum(key in database.deadlines for key in hidden),
        )
