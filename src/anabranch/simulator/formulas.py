"""The data of a region, computed only from the set of effects that it has applied.

A region computes its data step by step, with shortcuts. Here each part of the data is one
expression over the set of applied effects, independent of their order. Of the engine only the
effect classes are used. Two rules suffice:

* The *context* of an effect is what its replica ID had applied when it made the effect: the
  dependencies of its batch, and all earlier effects of the replica ID.
* A removal removes the additions in its context. For groups the reverse holds as well: a creation
  counts only if every removal is in the creation's context.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Generic, TypeVar

from anabranch.effects import kinds
from anabranch.keyspace.replica import region_of
from anabranch.simulator.facts import (
    NEVER,
    Acknowledged,
    Added,
    AddedOnTime,
    Cleared,
    Configured,
    Created,
    Deadline,
    Destroyed,
    Dot,
    ElementsPut,
    ElementsTaken,
    Fact,
    Increased,
    Key,
    Raised,
    Removed,
    Resolved,
    StringWritten,
    Tagged,
    Vector,
    fact_of,
    fact_of_schedule,
    facts_of_resolution,
    facts_of_run,
)

_PLAIN_NUMBER: Final = re.compile(rb"-?\d{1,300}(\.\d{1,17})?")

ANSWERS_KEPT: Final = 12
"""Cached results of each key: one for each region, and some for regions that lag."""


_F = TypeVar("_F", bound=Fact)
_T = TypeVar("_T")


class _once(Generic[_T]):  # noqa: N801  # used like a decorator of the standard library
    """A property that is computed at most once; without the lock of ``cached_property``."""

    def __init__(self, function: Callable[[Any], _T]) -> None:
        self._function = function
        self._name = function.__name__
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: object = None) -> _T:
        value = instance.__dict__[self._name] = self._function(instance)
        return value


class Shown:
    """The data of a key in one region, computed on demand."""

    def __init__(
        self, facts: Mapping[type[Fact], Sequence[Fact]], flushes: Sequence[Cleared], upto: Vector
    ) -> None:
        """The facts of a key by kind, the flushes of its database, and the applied effects."""
        self._facts = facts
        self._flushes = flushes
        self._upto = dict(upto)

    def _applied(self, kind: type[_F]) -> list[_F]:
        upto = self._upto
        some: Any = self._facts.get(kind, ())
        return [fact for fact in some if fact.number <= upto.get(fact.replica_id, 0)]

    def _kept(self, kind: type[_F]) -> list[_F]:
        """The facts that are in the context of no clearing."""
        facts = self._applied(kind)
        covered = self._covered
        if covered:
            return [fact for fact in facts if fact.number > covered.get(fact.replica_id, 0)]
        return facts

    @_once
    def _cleared(self) -> list[Cleared]:
        upto = self._upto
        flushes = [fact for fact in self._flushes if fact.number <= upto.get(fact.replica_id, 0)]
        return self._applied(Cleared) + flushes

    @_once
    def _covered(self) -> Vector:
        """The union of the contexts of all clearings."""
        return _joined(fact.context for fact in self._cleared)

    @_once
    def added(self) -> list[Added]:
        """Entries added since the key was last deleted, live or not."""
        return self._kept(Added)

    @_once
    def _raised(self) -> list[Raised]:
        return self._kept(Raised)

    @_once
    def entries(self) -> list[Added]:
        """Live entries, ordered by ID, region, epoch, number."""
        removed = {dot for fact in self._applied(Removed) for dot in fact.dots}
        removed |= self.lost | self.added_again
        live = [fact for fact in self.added if fact.dot not in removed]
        return sorted(live, key=_rank)

    @_once
    def groups(self) -> dict[bytes, list[Created]]:
        """The live creations of each group."""
        created = self._applied(Created)
        if not created:
            return {}
        removals = [fact for fact in self._cleared if not fact.expired]
        expired = _joined(fact.context for fact in self._cleared if fact.expired)
        destroyed = self._applied(Destroyed)
        live: dict[bytes, list[Created]] = {}
        for fact in created:
            if (
                fact.number > expired.get(fact.replica_id, 0)
                and all(fact.knew(removal) for removal in removals)
                and all(fact.knew(each) for each in destroyed if each.group == fact.group)
            ):
                live.setdefault(fact.group, []).append(fact)
        return live

    @_once
    def creations(self) -> dict[bytes, frozenset[Dot]]:
        """The dots of the live creations."""
        return {name: frozenset(fact.dot for fact in each) for name, each in self.groups.items()}

    @_once
    def acknowledged(self) -> dict[bytes, list[Acknowledged]]:
        """The acknowledgements of live creations, by group."""
        alive = self.creations
        found: dict[bytes, list[Acknowledged]] = {name: [] for name in alive}
        for fact in self._applied(Acknowledged) if alive else ():
            if fact.group in alive and not fact.creations.isdisjoint(alive[fact.group]):
                found[fact.group].append(fact)
        return found

    @_once
    def deadline(self) -> float:
        """The deadline of the key: that of its string, or of any other value."""
        is_string = self.is_small and self.string is not None
        return self._string_deadline if is_string else _latest(self._settings)

    @_once
    def _settings(self) -> list[Deadline]:
        """The deadlines that are in the context of no other setting, and of no write."""
        settings = self._kept(Deadline)
        known = _joined(fact.context for fact in [*settings, *self._applied(StringWritten)])
        return [fact for fact in settings if fact.number > known.get(fact.replica_id, 0)]

    # -- the string ---------------------------------------------------------------------------

    @_once
    def written(self) -> list[StringWritten]:
        """The writes that no clearing and no other write has seen, the one that counts last."""
        written = self._kept(StringWritten)
        known = _joined(fact.context for fact in written)
        left = [fact for fact in written if fact.number > known.get(fact.replica_id, 0)]
        return sorted(left, key=lambda fact: (fact.stamp_ms, region_of(fact.replica_id), fact.dot))

    @_once
    def increased(self) -> list[tuple[Increased, Decimal]]:
        """The increments that no clearing and no write has seen, and by how much each is."""
        seen = _joined(fact.context for fact in [*self._cleared, *self._applied(StringWritten)])
        totals: dict[tuple[int, int], Decimal] = {}
        found = []
        for fact in sorted(self._applied(Increased), key=lambda fact: fact.number):
            chain = fact.replica_id, fact.chain
            if fact.number > seen.get(fact.replica_id, 0):
                found.append((fact, fact.total - totals.get(chain, Decimal(0))))
            totals[chain] = fact.total
        return found

    @_once
    def string(self) -> bytes | None:
        """The string of the key, which a stream hides; None for none."""
        if not self.written and not self.increased:
            return None
        data = self.written[-1].data if self.written else b"0"
        if not self.increased or _PLAIN_NUMBER.fullmatch(data) is None:
            return data
        total = sum((Fraction(by) for _, by in self.increased), Fraction(data.decode()))
        digits = f"{abs(total * 10**17).numerator:018d}"
        shown = f"{digits[:-17]}.{digits[-17:]}".rstrip("0").rstrip(".")
        return f"{'-' if total < 0 else ''}{shown}".encode()

    @_once
    def _string_deadline(self) -> float:
        """That of the write that counts, and of EXPIREs that have seen it; else of increments."""
        if self.written:
            best = self.written[-1]
            settings: list[Deadline | StringWritten] = [best]
            settings += [each for each in self._kept(Deadline) if each.knew(best)]
            known = _joined(fact.context for fact in settings)
            return _latest(
                [fact for fact in settings if fact.number > known.get(fact.replica_id, 0)]
            )
        if self._settings:
            return _latest(self._settings)
        newest = {fact.replica_id: fact for fact, _ in self.increased}
        return _latest(newest.values())

    # -- the set and the list -----------------------------------------------------------------

    def _standing(self, kind: str) -> dict[bytes, bytes]:
        """By place, what was put there and seen by nothing that cleared, took or replaced it."""
        taken = [each for each in self._applied(ElementsTaken) if each.kind == kind]
        by_place: defaultdict[bytes, list[tuple[ElementsPut, bytes]]] = defaultdict(list)
        for fact in self._kept(ElementsPut):
            for place, item in fact.elements if fact.kind == kind else ():
                by_place[place].append((fact, item))
        found: dict[bytes, bytes] = {}
        for place, puts in by_place.items():
            seen = _joined([
                *[each.context for each in taken if each.names(place)],
                *[each.context for each, _ in puts],
            ])  # fmt: skip
            left = [each for each in puts if each[0].number > seen.get(each[0].replica_id, 0)]
            if left:
                found[place] = max(left, key=lambda put: _region_rank(put[0]))[1]
        return found

    @_once
    def members(self) -> set[bytes]:
        """The members of the set of the key."""
        return set(self._standing("set"))

    @_once
    def items(self) -> list[bytes]:
        """The items of the list of the key."""
        return [item for _, item in sorted(self._standing("list").items())]

    @_once
    def small_kinds(self) -> list[str]:
        """What the key has beside a stream; the first is shown if there is no stream."""
        has = {"string": self.string is not None, "set": self.members, "list": self.items}
        return [kind for kind in has if has[kind]]

    @_once
    def is_small(self) -> bool:
        """Whether the key shows a string, a set or a list."""
        return not self.has_stream and bool(self.small_kinds)

    @_once
    def small(self) -> Any:
        """The string, the set or the list that the key shows without a stream."""
        return self.string if self.string is not None else self.members or self.items

    @_once
    def last_id(self) -> int:
        """The greatest ID that was added or set."""
        return max(
            [fact.entry_id for fact in self.added] + [fact.last_id for fact in self._raised],
            default=0,
        )

    @_once
    def entries_added(self) -> int:
        """The count of added entries, changed by XSETID."""
        return len(self.added) + sum(fact.surplus for fact in self._raised)

    @_once
    def max_deleted_id(self) -> int:
        """The greatest ID of removed entries, of those added since the key was last deleted."""
        covered = self._covered
        ids = [
            entry_id
            for fact in self._applied(Removed)
            for replica_id, number, entry_id in fact.deleted
            if number > covered.get(replica_id, 0)
        ]
        return max(ids + [fact.max_deleted_id for fact in self._raised], default=0)

    @_once
    def exists(self) -> bool:
        """Whether the key exists."""
        return self.has_stream or self.is_small

    @_once
    def has_stream(self) -> bool:
        """Whether the key has a stream."""
        return bool(self.added or self._raised or self.groups)

    @_once
    def tags(self) -> dict[tuple[bytes, bytes], list[Tagged]]:
        """By producer and idempotent ID, the tags that are in the context of no later one."""
        known = _joined(fact.context for fact in self._kept(Configured))
        tags: dict[tuple[bytes, bytes], list[Tagged]] = {}
        for fact in self._kept(Tagged):
            if fact.number > known.get(fact.replica_id, 0):
                tags.setdefault((fact.producer, fact.idempotent_id), []).append(fact)
        return {
            pair: [fact for fact in facts if not any(other.knew(fact) for other in facts)]
            for pair, facts in tags.items()
        }

    @_once
    def all_tags(self) -> dict[tuple[bytes, bytes], list[Tagged]]:
        """By producer and idempotent ID, all tags, removed or not."""
        tags: defaultdict[tuple[bytes, bytes], list[Tagged]] = defaultdict(list)
        for fact in self._applied(Tagged):
            tags[fact.producer, fact.idempotent_id].append(fact)
        return tags

    @_once
    def beaten(self) -> list[Tagged]:
        """The tags that have lost to a concurrent one for the same ID, with a smaller entry ID.

        It does not matter whether tags, or entries, were removed since.
        """
        return [
            fact
            for facts in self.all_tags.values()
            for fact in facts
            if any(
                _rank(other) < _rank(fact) and not (other.knew(fact) or fact.knew(other))
                for other in facts
            )
        ]

    @_once
    def lost(self) -> set[Dot]:
        """Entries that XADD added with a tag that has lost, whoever resolved the conflict."""
        tags = {(fact.replica_id, fact.entry_id): fact for fact in self.beaten if fact.yields}
        return {
            fact.dot
            for fact in (self._applied(Added) if tags else ())
            if (tag := tags.get((fact.replica_id, fact.entry_id))) and tag.number == fact.number + 1
        }

    @_once
    def added_again(self) -> set[Dot]:
        """Scheduled entries that two regions have added: that of their own region stays."""
        found: defaultdict[tuple[object, ...], list[tuple[bool, Dot]]] = defaultdict(list)
        for fact in self._applied(AddedOnTime):
            for handle, stamp_ms, replica_id, at_ms, number in fact.rows:
                is_other = region_of(fact.replica_id) != region_of(replica_id)
                addition = is_other, (fact.replica_id, number)
                found[handle, stamp_ms, replica_id, at_ms].append(addition)
        return {dot for additions in found.values() for _, dot in sorted(additions)[1:]}

    def answer(self, tags: Sequence[Tagged]) -> int:
        """The ID that a retry gets: the smallest, among the entries that do not yield."""
        stays = {fact.tag: fact.entry_id for fact in self._resolved}
        return min(min(fact.entry_id, stays.get(fact.dot, fact.entry_id)) for fact in tags)

    @_once
    def _resolved(self) -> list[Resolved]:
        """The answer of each tag after resolutions: the smallest one."""
        return sorted(self._applied(Resolved), key=lambda fact: -fact.entry_id)

    def delivers(self, group: bytes, entry: Added) -> bool:
        """Whether an existing group begins before an entry."""
        return any(created.delivers(entry) for created in self.groups[group])

    def done(self, group: bytes) -> list[Added]:
        """The acknowledged entries of a group."""
        return [
            entry
            for entry in self.entries
            if self.is_acknowledged(group, entry) and self.delivers(group, entry)
        ]

    def is_acknowledged(
        self, group: bytes, entry: Added, but: frozenset[Dot] = frozenset()
    ) -> bool:
        """Whether an acknowledgement covers an entry; those in ``but`` are ignored."""
        replica_id, number = entry.replica_id, entry.number
        for fact in self.acknowledged[group]:
            if not but or fact.dot not in but:
                for which, low, high in fact.ranges:
                    if which == replica_id and low < number <= high:
                        return True
        return False


def _region_rank(fact: Fact) -> tuple[int, Dot]:
    return region_of(fact.replica_id), fact.dot


def _latest(settings: Iterable[Deadline | StringWritten | Increased]) -> float:
    return max((fact.at_ms for fact in settings), default=NEVER)


def _rank(fact: Added | Tagged) -> tuple[int, int, int, int]:
    return fact.entry_id, region_of(fact.replica_id), fact.replica_id, fact.number


def _joined(contexts: Iterable[Vector]) -> dict[int, int]:
    """The union of the contexts of some facts."""
    found: dict[int, int] = {}
    for context in contexts:
        for replica_id, number in context.items():
            if number > found.get(replica_id, 0):
                found[replica_id] = number
    return found


class History:
    """All effects ever made, of all replica IDs."""

    def __init__(self) -> None:
        self.facts: defaultdict[Key, list[Fact]] = defaultdict(list)
        self.flushes: list[tuple[int | None, Cleared]] = []
        self.stands_for: defaultdict[tuple[Key, Dot], list[Dot]] = defaultdict(list)
        """By the entry that stayed after a conflict, the entries that were removed."""
        self._by_kind: defaultdict[Key, defaultdict[type[Fact], list[Fact]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._numbers: defaultdict[Key | None, defaultdict[int, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        """By replica ID, the numbers of a key's facts, ascending; those of flushes under None."""
        self._shown: defaultdict[Key, dict[tuple[int, ...], Shown]] = defaultdict(dict)
        """Recent results, by how many facts of each replica ID were applied."""

    def add(self, key: Key, fact: Fact) -> None:
        """Add an effect on a key."""
        self.facts[key].append(fact)
        self._by_kind[key][type(fact)].append(fact)
        insort(self._numbers[key][fact.replica_id], fact.number)

    def drop_after(self, replica_id: int, after: int) -> None:
        """Remove lost effects: those of a replica ID after a number that no other region has."""
        kept = self.facts
        flushes = self.flushes
        stands_for = self.stands_for
        self.__init__()  # type: ignore[misc]
        self.stands_for = stands_for
        for key, facts in kept.items():
            self.facts[key] = []
            for fact in facts:
                if fact.replica_id != replica_id or fact.number <= after:
                    self.add(key, fact)
        for db, flush in flushes:
            if flush.replica_id != replica_id or flush.number <= after:
                self.flush(db, flush)

    def flush(self, db: int | None, fact: Cleared) -> None:
        """Add a flush of a database, or of all."""
        self.flushes.append((db, fact))
        insort(self._numbers[None][fact.replica_id], fact.number)

    def read(
        self, replica_id: int, first: int, dependencies: Vector, effects: Iterable[kinds.Effect]
    ) -> None:
        """Add the effects of a batch; ``first`` is the number of the first one."""
        number = first
        for effect in effects:
            context = {**dependencies, replica_id: number - 1}
            if isinstance(effect, kinds.AddRun):
                for fact in facts_of_run(effect, replica_id, number, dependencies):
                    self.add((effect.db, effect.key), fact)
                    number += 1
                continue
            if isinstance(effect, kinds.Flush):
                self.flush(effect.db, Cleared(replica_id, number, context, expired=False))
            elif isinstance(effect, kinds.ResolveConflict):
                stays = (effect.stays[0], effect.stays[1])
                goes = (effect.goes[0], effect.goes[1])
                self.stands_for[(effect.db, effect.key), stays].append(goes)
                for each in facts_of_resolution(effect, replica_id, number, context):
                    self.add((effect.db, effect.key), each)
            elif isinstance(effect, kinds.AdvanceScheduled):
                on_time = fact_of_schedule(effect, replica_id, number, context)
                self.add((effect.db, effect.name), on_time)
            elif (other := fact_of(effect, replica_id, number, context)) is not None:
                self.add((effect.db, effect.key), other)  # type: ignore[attr-defined]
            number += 1

    def keys(self) -> Sequence[Key]:
        """All keys with effects."""
        return sorted(self.facts)

    def shown(self, key: Key, vector: Vector) -> Shown:
        """The data of a key in a region that has applied the effects up to this vector.

        Returns the same object again if the same effects on the key are applied.
        """
        applied = vector.get
        place = tuple(
            [
                len(each)
                if (upto := applied(replica_id, 0)) >= each[-1]
                else bisect_right(each, upto)
                for numbers in (self._numbers[key], self._numbers[None])
                for replica_id, each in numbers.items()
            ]
        )
        answers = self._shown[key]
        found = answers.get(place)
        if found is None:
            if len(answers) >= ANSWERS_KEPT:
                del answers[next(iter(answers))]
            flushes = [fact for db, fact in self.flushes if db is None or db == key[0]]
            found = answers[place] = Shown(self._by_kind[key], flushes, vector)
        return found
