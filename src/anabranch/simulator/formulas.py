"""What every replica must show, computed from the set of all effects and from nothing else.

A replica arrives at its state step by step, with shortcuts. Here each thing shown is one
expression over the set of effects that a replica has applied, whatever their order; no code of the
engine is used but the records that effects are. Two ideas carry all of it:

* An effect's *context* is what its origin had applied when it made it: the dependencies of its
  batch, and all of the origin's own effects before it.
* Removing is *observed*: a removal takes the additions in its context. Only for groups is it
  also the other way round: a creation must have had every removal in *its* context.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.effects import kinds

__all__ = [
    "Acknowledged",
    "Added",
    "Cleared",
    "Configured",
    "Created",
    "Deadline",
    "Destroyed",
    "Dot",
    "Fact",
    "History",
    "Key",
    "Raised",
    "Removed",
    "Shown",
    "Tagged",
    "Vector",
]

Dot = tuple[int, int]
"""An origin and a number of it."""

Vector = Mapping[int, int]
"""Per origin, the number up to which its effects are there."""

Key = tuple[int, bytes]
"""Database and name."""

NEVER = float("inf")
"""The deadline of a key that was made to have none."""


@dataclass(frozen=True, slots=True)
class Fact:
    """An effect on one key: its dot and its context."""

    origin: int
    number: int
    context: Vector

    @property
    def dot(self) -> Dot:
        """What the effect is called everywhere."""
        return self.origin, self.number

    def knew(self, other: Fact) -> bool:
        """Whether the other was applied where this one was made."""
        return other.number <= self.context.get(other.origin, 0)


@dataclass(frozen=True, slots=True)
class Added(Fact):
    """XADD: an entry."""

    entry_id: int
    payload: object


@dataclass(frozen=True, slots=True)
class Removed(Fact):
    """XDEL, XTRIM and their kin: entries that go."""

    dots: frozenset[Dot]
    deleted: tuple[tuple[int, int, int], ...]
    """``(origin, number, ID)`` of entries that raise max-deleted-entry-id."""


@dataclass(frozen=True, slots=True)
class Cleared(Fact):
    """DEL, FLUSHALL or expiry: the key as it was known."""

    expired: bool
    """By its deadline: takes the groups that were known, not those that were not."""


@dataclass(frozen=True, slots=True)
class Created(Fact):
    """XGROUP CREATE."""

    group: bytes
    start: int | None
    """Entries above this ID; None: entries that the creation did not know."""

    def delivers(self, entry: Added) -> bool:
        """Whether the group begins before an entry."""
        if self.start is None:
            return not self.knew(entry)
        return entry.entry_id > self.start


@dataclass(frozen=True, slots=True)
class Destroyed(Fact):
    """XGROUP DESTROY."""

    group: bytes


@dataclass(frozen=True, slots=True)
class Acknowledged(Fact):
    """Entries that are done, for creations of a group."""

    group: bytes
    creations: frozenset[Dot]
    ranges: tuple[tuple[int, int, int], ...]
    """``(origin, low, high)``: the numbers above low, up to high."""


@dataclass(frozen=True, slots=True)
class Raised(Fact):
    """XSETID: counters."""

    last_id: int
    surplus: int
    max_deleted_id: int


@dataclass(frozen=True, slots=True)
class Deadline(Fact):
    """EXPIRE and PERSIST."""

    at_ms: float
    """``NEVER`` for none."""


@dataclass(frozen=True, slots=True)
class Tagged(Fact):
    """An idempotent ID that was accepted."""

    producer: bytes
    idempotent_id: bytes
    entry_id: int
    yields: bool
    """Whether its entry goes if another region accepted the same for a smaller ID."""


@dataclass(frozen=True, slots=True)
class Configured(Fact):
    """Forgets the tags that it knew."""


@dataclass(frozen=True)
class Shown:
    """What a replica shows of a key."""

    entries: list[Added] = field(default_factory=list)
    """By ID, origin, number."""
    groups: dict[bytes, list[Created]] = field(default_factory=dict)
    """The live creations of each."""
    acknowledged: dict[bytes, list[Acknowledged]] = field(default_factory=dict)
    """What counts of the acknowledgements in each: not those of removed creations."""
    deadline: float = NEVER
    last_id: int = 0
    entries_added: int = 0
    max_deleted_id: int = 0
    exists: bool = False
    tags: dict[tuple[bytes, bytes], list[Tagged]] = field(default_factory=dict)
    """By producer and idempotent ID; one expects an answer with the smallest entry ID."""

    def is_acknowledged(
        self, group: bytes, entry: Added, but: frozenset[Dot] = frozenset()
    ) -> bool:
        """Whether an acknowledgement covers an entry, ``but`` some that are not asked."""
        return any(
            origin == entry.origin and low < entry.number <= high
            for fact in self.acknowledged[group]
            if fact.dot not in but
            for origin, low, high in fact.ranges
        )


class History:
    """All effects that were ever made, of all origins."""

    def __init__(self) -> None:
        self.facts: defaultdict[Key, list[Fact]] = defaultdict(list)
        self.flushes: list[tuple[int | None, Cleared]] = []

    def add(self, key: Key, fact: Fact) -> None:
        """An effect on a key."""
        self.facts[key].append(fact)

    def forget(self, origin: int, after: int) -> None:
        """Effects of an origin beyond a number were lost before anybody had heard of them."""
        for key, facts in self.facts.items():
            self.facts[key] = [f for f in facts if f.origin != origin or f.number <= after]
        self.flushes = [
            (db, fact) for db, fact in self.flushes if fact.origin != origin or fact.number <= after
        ]

    def flush(self, db: int | None, fact: Cleared) -> None:
        """Of a database, or of all."""
        self.flushes.append((db, fact))

    def read(
        self, origin: int, first: int, dependencies: Vector, effects: Iterable[kinds.Effect]
    ) -> None:
        """The effects of a batch; ``first`` is the number of the first of them."""
        number = first
        for effect in effects:
            context = {**dependencies, origin: number - 1}
            if isinstance(effect, kinds.AddRun):
                for fact in _run(effect, origin, number, dependencies):
                    self.add((effect.db, effect.key), fact)
                    number += 1
                continue
            if isinstance(effect, kinds.Flush):
                self.flush(effect.db, Cleared(origin, number, context, expired=False))
            elif (other := _fact(effect, origin, number, context)) is not None:
                self.add((effect.db, effect.key), other)  # type: ignore[attr-defined]
            number += 1

    def keys(self) -> Sequence[Key]:
        """All that were ever touched."""
        return sorted(self.facts)

    def shown(self, key: Key, vector: Vector) -> Shown:
        """What a replica shows of a key that has applied the effects up to this vector."""

        def applied(fact: Fact) -> bool:
            return fact.number <= vector.get(fact.origin, 0)

        facts = list(filter(applied, self.facts[key]))
        cleared = [fact for fact in facts if isinstance(fact, Cleared)]
        cleared += [
            fact for db, fact in self.flushes if (db is None or db == key[0]) and applied(fact)
        ]

        def is_cleared(fact: Fact) -> bool:
            return any(clearing.knew(fact) for clearing in cleared)

        kept = [fact for fact in facts if not is_cleared(fact)]
        removed = {dot for fact in facts if isinstance(fact, Removed) for dot in fact.dots}
        added = [fact for fact in kept if isinstance(fact, Added)]
        raised = [fact for fact in kept if isinstance(fact, Raised)]
        entries = [fact for fact in added if fact.dot not in removed]
        groups = _groups(facts, cleared)
        return Shown(
            entries=sorted(entries, key=lambda fact: (fact.entry_id, fact.dot)),
            groups=groups,
            acknowledged=_acknowledged(facts, groups),
            deadline=_deadline([fact for fact in kept if isinstance(fact, Deadline)]),
            last_id=max(
                [fact.entry_id for fact in added] + [fact.last_id for fact in raised], default=0
            ),
            entries_added=len(added) + sum(fact.surplus for fact in raised),
            max_deleted_id=_max_deleted(facts, cleared, raised),
            exists=bool(groups or added or raised),
            tags=_tags(kept),
        )


def _groups(facts: Sequence[Fact], cleared: Sequence[Cleared]) -> dict[bytes, list[Created]]:
    destroyed = [fact for fact in facts if isinstance(fact, Destroyed)]
    live: dict[bytes, list[Created]] = {}
    for fact in facts:
        if (
            isinstance(fact, Created)
            and all(
                fact.knew(removal)
                for removal in [*cleared, *destroyed]
                if not (isinstance(removal, Cleared) and removal.expired)
                and not (isinstance(removal, Destroyed) and removal.group != fact.group)
            )
            and not any(removal.expired and removal.knew(fact) for removal in cleared)
        ):
            live.setdefault(fact.group, []).append(fact)
    return live


def _acknowledged(
    facts: Sequence[Fact], groups: Mapping[bytes, Sequence[Created]]
) -> dict[bytes, list[Acknowledged]]:
    alive = {name: {fact.dot for fact in created} for name, created in groups.items()}
    return {
        name: [
            fact
            for fact in facts
            if isinstance(fact, Acknowledged)
            and fact.group == name
            and not fact.creations.isdisjoint(alive[name])
        ]
        for name in groups
    }


def _deadline(settings: Sequence[Deadline]) -> float:
    """The greatest of those that no other setting knew."""
    return max(
        (fact.at_ms for fact in settings if not any(other.knew(fact) for other in settings)),
        default=NEVER,
    )


def _max_deleted(
    facts: Sequence[Fact], cleared: Sequence[Cleared], raised: Sequence[Raised]
) -> int:
    """Of entries that were added since the key was last deleted."""
    ids = [
        entry_id
        for fact in facts
        if isinstance(fact, Removed)
        for origin, number, entry_id in fact.deleted
        if not any(number <= clearing.context.get(origin, 0) for clearing in cleared)
    ]
    return max(ids + [fact.max_deleted_id for fact in raised], default=0)


def _tags(kept: Sequence[Fact]) -> dict[tuple[bytes, bytes], list[Tagged]]:
    configured = [fact for fact in kept if isinstance(fact, Configured)]
    tags: dict[tuple[bytes, bytes], list[Tagged]] = {}
    for fact in kept:
        if isinstance(fact, Tagged) and not any(other.knew(fact) for other in configured):
            tags.setdefault((fact.producer, fact.idempotent_id), []).append(fact)
    return tags


# -- from records to facts ------------------------------------------------------------------------


def _run(effect: kinds.AddRun, origin: int, first: int, dependencies: Vector) -> Iterator[Fact]:
    """A run has a number an entry."""
    at = 0
    for index, (entry_id, size) in enumerate(zip(effect.ids, effect.sizes, strict=True)):
        context = {**dependencies, origin: first + index - 1}
        payload = effect.data[at : at + size]
        at += size
        yield Added(origin, first + index, context, entry_id, payload)


def _fact(effect: kinds.Effect, origin: int, number: int, context: Vector) -> Fact | None:
    """None for kinds of which nothing is shown here."""
    match effect:
        case kinds.Add():
            return Added(origin, number, context, effect.entry_id, effect.fragment)
        case kinds.RemoveNumbers():
            dots = frozenset(
                (removed_from, removed)
                for removed_from, edges in effect.ranges
                for low, high in zip(edges[::2], edges[1::2], strict=True)
                for removed in range(low + 1, high + 1)
            )
            return Removed(origin, number, context, dots, tuple(map(tuple, effect.deleted)))  # type: ignore[arg-type]
        case kinds.Delete():
            return Cleared(origin, number, context, effect.expired)
        case kinds.CreateGroup():
            return Created(origin, number, context, effect.group, effect.start)
        case kinds.DestroyGroup():
            return Destroyed(origin, number, context, effect.group)
        case kinds.Settle():
            creations = frozenset((region, created) for region, created in effect.creations)
            return Acknowledged(
                origin, number, context, effect.group, creations, tuple(effect.ranges)
            )
        case kinds.SetLastId():
            return Raised(
                origin,
                number,
                context,
                effect.last_id,
                effect.entries_added or 0,
                effect.max_deleted_id or 0,
            )
        case kinds.Remember():
            return Tagged(
                origin, number, context, effect.pid, effect.iid, effect.entry_id, effect.yields
            )
        case kinds.ConfigureProducers():
            return Configured(origin, number, context)
        case kinds.Expire():
            at_ms = NEVER if effect.at_ms is None else effect.at_ms
            return Deadline(origin, number, context, at_ms)
    return None
