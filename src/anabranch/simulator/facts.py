"""Effects as facts on keys; uses only the effect classes of the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from anabranch.effects import kinds

Dot = tuple[int, int]
"""A replica ID and an effect number."""

Vector = Mapping[int, int]
"""Per replica ID, the number of its last applied effect."""

Key = tuple[int, bytes]
"""Database and name."""

NEVER = float("inf")
"""The deadline that PERSIST sets: none."""


@dataclass(frozen=True, slots=True)
class Fact:
    """An effect on one key: its dot and its context."""

    replica_id: int
    number: int
    context: Vector

    @property
    def dot(self) -> Dot:
        """Replica ID and number of the effect."""
        return self.replica_id, self.number

    def knew(self, other: Fact) -> bool:
        """Whether another effect is in the context of this one."""
        return other.number <= self.context.get(other.replica_id, 0)


@dataclass(frozen=True, slots=True)
class Added(Fact):
    """An entry was added (XADD)."""

    entry_id: int
    payload: object


@dataclass(frozen=True, slots=True)
class Removed(Fact):
    """XDEL, XTRIM and similar commands: removed entries."""

    dots: frozenset[Dot]
    deleted: tuple[tuple[int, int, int], ...]
    """``(replica_id, number, ID)`` of entries that raise max-deleted-entry-id."""


@dataclass(frozen=True, slots=True)
class Cleared(Fact):
    """DEL, FLUSHALL or expiry: removes what is in its context."""

    expired: bool
    """Whether the key expired: this removes only groups in its context."""


@dataclass(frozen=True, slots=True)
class Created(Fact):
    """A group was created (XGROUP CREATE)."""

    group: bytes
    start: int | None
    """The group begins above this ID; None: with the entries that are not in its context."""
    offset: int = 0
    """The first entries-read."""

    def delivers(self, entry: Added) -> bool:
        """Whether the group begins before an entry."""
        if self.start is None:
            return not self.knew(entry)
        return entry.entry_id > self.start


@dataclass(frozen=True, slots=True)
class Destroyed(Fact):
    """A group was destroyed (XGROUP DESTROY)."""

    group: bytes


@dataclass(frozen=True, slots=True)
class Acknowledged(Fact):
    """Entries that were acknowledged, for creations of a group."""

    group: bytes
    creations: frozenset[Dot]
    ranges: tuple[tuple[int, int, int], ...]
    """``(replica_id, low, high)``: the numbers above low, up to high."""


@dataclass(frozen=True, slots=True)
class Raised(Fact):
    """Counters of a stream were raised (XSETID)."""

    last_id: int
    surplus: int
    max_deleted_id: int


@dataclass(frozen=True, slots=True)
class Deadline(Fact):
    """The deadline of a key was set or removed (EXPIRE, PERSIST)."""

    at_ms: float
    """``NEVER`` for none."""


@dataclass(frozen=True, slots=True)
class StringWritten(Fact):
    """A string was written (SET)."""

    data: bytes
    stamp_ms: int
    at_ms: float
    """Its deadline, ``NEVER`` for none."""


@dataclass(frozen=True, slots=True)
class Increased(Fact):
    """A number was increased (INCR)."""

    chain: int
    """The number of the first increment of the total."""
    total: Decimal
    at_ms: float
    """The deadline of the key, ``NEVER`` for none."""


@dataclass(frozen=True, slots=True)
class ElementsPut(Fact):
    """Members were added to a set, or items put into a list."""

    kind: str
    elements: tuple[tuple[bytes, bytes], ...]
    """Places and what was put there; a member is its own place."""


@dataclass(frozen=True, slots=True)
class ElementsTaken(Fact):
    """Members of a set, or items of a list, were removed."""

    kind: str
    places: tuple[bytes, ...]
    """Members, or the first and the last place of ranges."""

    def names(self, place: bytes) -> bool:
        """Whether it removes what it has seen at this place."""
        if self.kind == "set":
            return place in self.places
        pairs = zip(self.places[::2], self.places[1::2], strict=True)
        return any(low <= place <= high for low, high in pairs)


@dataclass(frozen=True, slots=True)
class Tagged(Fact):
    """An idempotent ID that was accepted."""

    producer: bytes
    idempotent_id: bytes
    entry_id: int
    yields: bool
    """Whether its entry is removed if another region accepted the ID for a smaller entry ID."""
    at_ms: int


@dataclass(frozen=True, slots=True)
class Resolved(Fact):
    """The resolution of a conflict: the losing tag answers with the entry that stays."""

    tag: Dot
    entry_id: int


@dataclass(frozen=True, slots=True)
class AddedOnTime(Fact):
    """Scheduled entries were added (AB.SCHEDULE)."""

    rows: tuple[tuple[bytes, int, int, int, int], ...]
    """``(handle, stamp, replica ID, time, number)``: the entry, and the effect that added it."""


@dataclass(frozen=True, slots=True)
class Configured(Fact):
    """XCFGSET: forgets the tags in its context."""


def facts_of_run(
    effect: kinds.AddRun, replica_id: int, first: int, dependencies: Vector
) -> Iterator[Fact]:
    """The facts of a run: each entry has a number of its own."""
    at = 0
    for index, (entry_id, size) in enumerate(zip(effect.ids, effect.sizes, strict=True)):
        context = {**dependencies, replica_id: first + index - 1}
        payload = effect.data[at : at + size]
        at += size
        yield Added(replica_id, first + index, context, entry_id, payload)


def facts_of_resolution(
    effect: kinds.ResolveConflict, replica_id: int, number: int, context: Vector
) -> Iterator[Fact]:
    """The facts of a resolution: another answer, and perhaps a removed entry."""
    tag = effect.replica_id, effect.number
    yield Resolved(replica_id, number, context, tag, effect.entry_id)
    if effect.removed:
        goes = frozenset([(effect.goes[0], effect.goes[1])])
        yield Removed(replica_id, number, context, goes, ())


def fact_of_schedule(
    effect: kinds.AdvanceScheduled, replica_id: int, number: int, context: Vector
) -> AddedOnTime:
    """The fact of what was added of all that is noted on scheduled entries."""
    rows = tuple((*row[:4], row[5]) for row in effect.rows if row[5])
    return AddedOnTime(replica_id, number, context, rows)


def _or_never(at_ms: int | None) -> float:
    return NEVER if at_ms is None else at_ms


def fact_of(effect: kinds.Effect, replica_id: int, number: int, context: Vector) -> Fact | None:
    """The fact of an effect; None for kinds that the formulas do not cover."""
    at = replica_id, number, context
    match effect:
        case kinds.Add():
            return Added(*at, effect.entry_id, effect.fragment)
        case kinds.RemoveNumbers():
            dots = frozenset(
                (removed_from, removed)
                for removed_from, edges in effect.ranges
                for low, high in zip(edges[::2], edges[1::2], strict=True)
                for removed in range(low + 1, high + 1)
            )
            return Removed(*at, dots, tuple(map(tuple, effect.deleted)))  # type: ignore[arg-type]
        case kinds.Delete():
            return Cleared(*at, effect.expired)
        case kinds.CreateGroup():
            return Created(*at, effect.group, effect.start, effect.offset)
        case kinds.DestroyGroup():
            return Destroyed(*at, effect.group)
        case kinds.AcknowledgeRuns():
            creations = frozenset((region, created) for region, created in effect.creations)
            return Acknowledged(*at, effect.group, creations, tuple(effect.ranges))
        case kinds.SetLastId():
            added, deleted_id = effect.entries_added or 0, effect.max_deleted_id or 0
            return Raised(*at, effect.last_id, added, deleted_id)
        case kinds.Remember():
            tag = effect.pid, effect.iid, effect.entry_id
            return Tagged(*at, *tag, effect.yields, effect.at_ms)
        case kinds.ConfigureProducers():
            return Configured(*at)
        case kinds.Expire():
            return Deadline(*at, _or_never(effect.at_ms))
        case kinds.WriteString():
            return StringWritten(*at, effect.data, effect.stamp_ms, _or_never(effect.at_ms))
        case kinds.Increase():
            total = Decimal(effect.total.decode())
            return Increased(*at, effect.since or number, total, _or_never(effect.at_ms))
        case kinds.PutElements():
            items = effect.items or [b""] * len(effect.places)
            elements = tuple(zip(effect.places, items, strict=True))
            return ElementsPut(*at, effect.kind, elements)
        case kinds.TakeElements():
            return ElementsTaken(*at, effect.kind, tuple(effect.places))
    return None
