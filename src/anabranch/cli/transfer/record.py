"""A key with its value still encoded, and the interfaces of sources and targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from anabranch.keyspace.pattern import Matcher

__all__ = ["Counts", "Item", "Record", "Selection", "Source", "Target", "TransferFailed"]


class TransferFailed(Exception):
    """The transfer cannot go on; the text is for people, on one line."""


@dataclass(frozen=True, slots=True)
class Record:
    """A key as a source has it."""

    db: int
    key: bytes
    kind: str
    """The word of the command TYPE; for values of modules the name of their type."""
    expire_at_ms: int | None
    body: bytes | None
    """Type byte and value; None if the kind cannot be decoded here or the value is too large."""
    rdb_version: int
    """Servers that know it can read the body."""
    size: int
    """Bytes of the body, also when it is not here."""
    problem: str | None = None
    """Why the source could not give the value."""
    renumbered: int = 0
    """Entries that have another ID here than in the source, where it was there twice."""


@dataclass(slots=True)
class Counts:
    """What was in keys of one kind; all but ``keys`` is 0 for other kinds than streams."""

    keys: int = 0
    entries: int = 0
    groups: int = 0
    pending: int = 0

    def add(self, other: Counts) -> None:
        """Count more."""
        self.keys += other.keys
        self.entries += other.entries
        self.groups += other.groups
        self.pending += other.pending


@dataclass(frozen=True, slots=True)
class Item:
    """A key on its way into a target, in an encoding that the target knows."""

    db: int
    key: bytes
    kind: str
    expire_at_ms: int | None
    body: bytes
    counts: Counts


@dataclass(frozen=True, slots=True)
class Selection:
    """Which keys are wanted."""

    databases: frozenset[int]
    """Empty: all."""
    pattern: bytes | None
    """As in the command KEYS, for those who can ask the server for it."""
    matcher: Matcher | None

    def takes(self, db: int, key: bytes) -> bool:
        """Whether the key is among them."""
        if self.databases and db not in self.databases:
            return False
        return self.matcher is None or self.matcher(key)


class Source(Protocol):
    """Where keys come from."""

    done: int
    """How far it has come, of ``total``."""
    total: int | None

    @property
    def unit(self) -> str:
        """What ``done`` counts."""

    def records(self, value_bytes_max: int) -> Iterator[Record]:
        """All keys, once; raises :class:`TransferFailed`."""

    def passed_over(self) -> dict[str, int]:
        """What there was besides keys and stays behind: name and number."""

    def close(self) -> None:
        """Let go of files and connections."""


class Target(Protocol):
    """Where keys go to."""

    rdb_version: int
    """The newest encoding it reads."""
    value_bytes_max: int
    """The largest payload it takes."""

    def put(self, item: Item) -> None:
        """Take a key, now or soon."""

    def finish(self, *, complete: bool) -> None:
        """Nothing more comes; ``complete``: nothing was held back that was meant to come."""
