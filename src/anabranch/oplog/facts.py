"""Results of a survey of the files of a log: plain records, one for each file.

:mod:`anabranch.oplog.inspection` fills them.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Any, NamedTuple

from msgspec import Struct, field

from anabranch.effects import kinds
from anabranch.oplog.batch import Batch
from anabranch.oplog.segment import SEGMENT_HEADER_BYTES, Damage

Due = dict[int, int]
"""By replica ID, the number of the next effect; 1 before the first one."""


class Fate(Enum):
    """What the next start does with a file."""

    SOUND = "sound"
    CUT = "cut"
    """It has a torn end, which the start cuts off, or lies behind one."""
    REFUSED = "refused"
    """It is damaged, or does not continue the log: the server does not start."""
    UNREAD = "unread"
    """It is damaged, but no start reads it."""


class SeenBatch(NamedTuple):
    """A sound batch of a whole turn."""

    ordinal: int
    """Its number within the file, from 1."""
    offset: int
    position: int
    batch: Batch
    effects: list[kinds.Effect]


class SeenRecord(NamedTuple):
    """A sound record of a snapshot."""

    offset: int
    size: int
    fields: list[Any]
    """The record type first."""
    database: int
    key: bytes | None
    """The key to whose value the record belongs; None for other records."""
    head: list[Any]
    """The figures of the stream to which the record belongs; empty for other records."""


class SegmentFacts(Struct):
    """What was found in one file of the log."""

    name: str
    shown: str
    first: int
    size: int = 0
    version: int = 0
    sound: int = 0
    """Bytes from the beginning that are the header and whole sound turns."""
    turns: int = 0
    batches: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Effects by kind; every entry of an :class:`kinds.AddRun` counts as an Add."""
    local: int = 0
    """Effects without number; all others have one."""
    first_number: int | None = None
    next_number: int | None = None
    due: Due | None = None
    """The numbers that follow the file; None if unknown."""
    region: int = 0
    epoch: int = 0
    earliest_ms: int | None = None
    latest_ms: int | None = None
    keys: set[tuple[int, bytes]] = field(default_factory=set)
    damage: Damage | None = None
    is_newer: bool = False
    """The file is not damaged: a newer server wrote it."""
    is_superseded: bool = False
    """A snapshot has made it superfluous: no start reads it."""
    is_torn: bool = False
    """The file has a torn end, not damage; if it is misplaced, a start leaves it out."""
    misplaced: str = ""
    """Why the file does not continue the files before it; empty if it does."""
    turns_behind: int = 0
    """Count of sound turns behind the damage."""
    effects_behind: int = 0

    @property
    def end(self) -> int:
        """The position behind the last sound turn."""
        return self.first + max(self.sound - SEGMENT_HEADER_BYTES, 0)

    @property
    def effects(self) -> int:
        """All effects of sound turns."""
        return sum(self.kinds.values())

    @property
    def problem(self) -> tuple[int, str] | None:
        """``(offset, why)`` of the first problem for a start; None without problems."""
        if self.misplaced and (self.is_torn or not (self.damage and self.damage.offset == 0)):
            return 0, self.misplaced
        return None if self.damage is None else (self.damage.offset, self.damage.what)

    @property
    def fate(self) -> Fate:
        """What the next start of a server does with the segment."""
        if self.problem is None:
            return Fate.SOUND
        if self.is_superseded:
            return Fate.UNREAD
        return Fate.CUT if self.is_torn else Fate.REFUSED


class SnapshotFacts(Struct):
    """What was found in one snapshot."""

    name: str
    shown: str
    position: int
    size: int = 0
    version: int = 0
    records: int = 0
    region: int = 0
    epoch: int = 0
    next_number: int = 1
    due: Due = field(default_factory=dict)
    wall_ms: int | None = None
    """When it was taken."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Keys by type."""
    databases: set[int] = field(default_factory=set)
    deadlines: int = 0
    entries: int = 0
    groups: int = 0
    consumers: int = 0
    pending: int = 0
    idempotent_ids: int = 0
    users: int = 0
    libraries: int = 0
    policies: int = 0
    damage: Damage | None = None
    is_newer: bool = False
    is_superseded: bool = False
    """A newer snapshot exists: no start reads this one."""

    @property
    def keys(self) -> int:
        """The count of keys in all databases."""
        return sum(self.kinds.values())

    @property
    def problem(self) -> tuple[int, str] | None:
        """``(offset, why)`` of the damage."""
        return None if self.damage is None else (self.damage.offset, self.damage.what)

    @property
    def fate(self) -> Fate:
        """What the next start of a server does with the snapshot."""
        if self.damage is None:
            return Fate.SOUND
        return Fate.UNREAD if self.is_superseded else Fate.REFUSED
