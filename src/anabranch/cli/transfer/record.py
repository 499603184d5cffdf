"""A key with its value still encoded, and what a transfer is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.pattern import Matcher


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as a source has it."""

    db: int
    key: bytes
    kind: str
    """The type in the words of the command TYPE; for a value of a module the name of its type."""
    expire_at_ms: int | None
    body: bytes | None
    """Type byte and value; None if the kind cannot be decoded here or the value is too large."""
    rdb_version: int
    """The RDB version of servers that can read the body."""
    size: int
    """The size of the body in bytes, also if the body is not here."""
    problem: str | None = None
    """Why the source could not give the value."""
    renumbered: int = 0
    """Entries with another ID than in the source, where two entries had the same ID."""
    ledger: int = 0
    """Records of bulk producers, for which the body has no place."""


@dataclass(frozen=True, slots=True)
class Item:
    """A key for a target, in an encoding that the target can read."""

    db: int
    key: bytes
    kind: str
    expire_at_ms: int | None
    body: bytes
    counts: dict[str, int]
    """1 key; of a stream its entries, groups and pending entries, too."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The selection of keys."""

    databases: frozenset[int]
    """Empty: all."""
    pattern: bytes | None
    """A pattern as in the command KEYS, for servers that select keys by it."""
    matcher: Matcher | None

    def takes(self, db: int, key: bytes) -> bool:
        """Whether a key is selected."""
        if self.databases and db not in self.databases:
            return False
        return self.matcher is None or self.matcher(key)


@dataclass(frozen=True, slots=True)
class TransferOptions:
    """What a transfer is asked for (``transfer_options`` in ``carry.py``)."""

    databases: tuple[int, ...]
    pattern: str | None
    replace: bool
    dry_run: bool
    lossy: bool
    rdb_version: int | None
    as_json: bool
