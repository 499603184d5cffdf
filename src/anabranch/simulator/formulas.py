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
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import chain, zip_longest
from typing import Any, Final, TypeVar

from anabranch.effects import kinds
from anabranch.effects.codec import additions
from anabranch.keyspace.replica import region_of
from anabranch.simulator.facts import (
    COVERED,
    NEVER,
    Added,
    Dot,
    Fact,
    Key,
    Tagged,
    Vector,
    once,
)

_PLAIN_NUMBER: Final = re.compile(rb"-?\d{1,300}(\.\d{1,17})?")

ANSWERS_KEPT: Final = 12
"""Cached results of each key: one for each region, and some for regions that lag."""


_E = TypeVar("_E", bound=kinds.Effect)
_Timed = Fact[kinds.Expire] | Fact[kinds.WriteString] | Fact[kinds.Increase]


class Shown:
    """The data of a key in one region, computed on demand."""

    def __init__(
        self,
        facts: Mapping[type[kinds.Effect], Sequence[Fact[kinds.Effect]]],
        flushes: Sequence[Fact[kinds.Delete]],
        upto: Vector,
    ) -> None:
        """The facts of a key by kind, the flushes of its database, and the applied effects."""
        self._facts = facts
        self._flushes = flushes
        self._upto = dict(upto)

    def _applied(self, kind: type[_E]) -> list[Fact[_E]]:
        upto = self._upto
        some: Any = self._facts.get(kind, ())
        return [fact for fact in some if fact.number <= upto.get(fact.replica_id, 0)]

    def _kept(self, kind: type[_E]) -> list[Fact[_E]]:
        """The facts that are in the context of no clearing."""
        facts = self._applied(kind)
        covered = self._covered
        if covered:
            return [fact for fact in facts if fact.number > covered.get(fact.replica_id, 0)]
        return facts

    @once
    def _cleared(self) -> list[Fact[kinds.Delete]]:
        upto = self._upto
        flushes = [fact for fact in self._flushes if fact.number <= upto.get(fact.replica_id, 0)]
        return self._applied(kinds.Delete) + flushes

    @once
    def _covered(self) -> Vector:
        """The union of the contexts of all clearings."""
        return _joined(fact.context for fact in self._cleared)

    @once
    def added(self) -> list[Added]:
        """Entries added since the key was last deleted, live or not."""
        return self._kept(kinds.Add)

    @once
    def _raised(self) -> list[kinds.SetLastId]:
        return [fact.effect for fact in self._kept(kinds.SetLastId)]

    @once
    def entries(self) -> list[Added]:
        """Live entries, ordered by ID, region, epoch, number."""
        removals = [*self._applied(kinds.RemoveNumbers), *self._applied(kinds.ResolveConflict)]
        removed = {dot for fact in removals for dot in fact.removed}
        removed |= self.lost | self.added_again
        live = [fact for fact in self.added if fact.dot not in removed]
        return sorted(live, key=_rank)

    @once
    def groups(self) -> dict[bytes, list[Fact[kinds.CreateGroup]]]:
        """The live creations of each group."""
        created = self._applied(kinds.CreateGroup)
        if not created:
            return {}
        removals = [fact for fact in self._cleared if not fact.effect.expired]
        expired = _joined(fact.context for fact in self._cleared if fact.effect.expired)
        destroyed = self._applied(kinds.DestroyGroup)
        live: dict[bytes, list[Fact[kinds.CreateGroup]]] = {}
        for fact in created:
            name = fact.effect.group
            if (
                fact.number > expired.get(fact.replica_id, 0)
                and all(fact.knew(removal) for removal in removals)
                and all(fact.knew(each) for each in destroyed if each.effect.group == name)
            ):
                live.setdefault(name, []).append(fact)
        return live

    @once
    def creations(self) -> dict[bytes, frozenset[Dot]]:
        """The dots of the live creations."""
        return {name: frozenset(fact.dot for fact in each) for name, each in self.groups.items()}

    @once
    def acknowledged(self) -> dict[bytes, list[Fact[kinds.AcknowledgeRuns]]]:
        """The acknowledgements of live creations, by group."""
        alive = self.creations
        found: dict[bytes, list[Fact[kinds.AcknowledgeRuns]]] = {name: [] for name in alive}
        for fact in self._applied(kinds.AcknowledgeRuns) if alive else ():
            name = fact.effect.group
            if name in alive and not alive[name].isdisjoint(fact.effect.creations):
                found[name].append(fact)
        return found

    @once
    def deadline(self) -> float:
        """The deadline of the key: that of its string, or of any other value."""
        is_string = self.is_small and self.string is not None
        return self._string_deadline if is_string else _latest(self._settings)

    @once
    def _settings(self) -> list[Fact[kinds.Expire]]:
        """The deadlines that are in the context of no other setting, and of no write."""
        settings = self._kept(kinds.Expire)
        written = self._applied(kinds.WriteString)
        known = _joined(fact.context for fact in [*settings, *written])
        return [fact for fact in settings if fact.number > known.get(fact.replica_id, 0)]

    # -- the string ---------------------------------------------------------------------------

    @once
    def written(self) -> list[Fact[kinds.WriteString]]:
        """The writes that no clearing and no other write has seen, the one that counts last."""
        written = self._kept(kinds.WriteString)
        known = _joined(fact.context for fact in written)
        left = [fact for fact in written if fact.number > known.get(fact.replica_id, 0)]
        return sorted(left, key=lambda fact: (fact.effect.stamp_ms, _region_rank(fact)))

    @once
    def increased(self) -> list[tuple[Fact[kinds.Increase], Decimal]]:
        """The increments that no clearing and no write has seen, and by how much each is."""
        written = self._applied(kinds.WriteString)
        seen = _joined(fact.context for fact in [*self._cleared, *written])
        totals: dict[tuple[int, int], Decimal] = {}
        found = []
        for fact in sorted(self._applied(kinds.Increase), key=lambda fact: fact.number):
            series = fact.replica_id, fact.effect.since or fact.number
            total = Decimal(fact.effect.total.decode())
            if fact.number > seen.get(fact.replica_id, 0):
                found.append((fact, total - totals.get(series, Decimal(0))))
            totals[series] = total
        return found

    @once
    def string(self) -> bytes | None:
        """The string of the key, which a stream hides; None for none."""
        if not self.written and not self.increased:
            return None
        data = self.written[-1].effect.data if self.written else b"0"
        if not self.increased or _PLAIN_NUMBER.fullmatch(data) is None:
            return data
        total = sum((Fraction(by) for _, by in self.increased), Fraction(data.decode()))
        digits = f"{abs(total * 10**17).numerator:018d}"
        shown = f"{digits[:-17]}.{digits[-17:]}".rstrip("0").rstrip(".")
        return f"{'-' if total < 0 else ''}{shown}".encode()

    @once
    def _string_deadline(self) -> float:
        """That of the write that counts, and of EXPIREs that have seen it; else of increments."""
        if self.written:
            best = self.written[-1]
            settings: list[_Timed] = [best]
            settings += [each for each in self._kept(kinds.Expire) if each.knew(best)]
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
        taken = [each for each in self._applied(kinds.TakeElements) if each.effect.kind == kind]
        by_place: dict[bytes, list[tuple[Fact[kinds.PutElements], bytes]]] = {}
        for fact in self._kept(kinds.PutElements):
            effect = fact.effect
            for place, item in zip_longest(effect.places, effect.items, fillvalue=b""):
                if effect.kind == kind:
                    by_place.setdefault(place, []).append((fact, item))
        found: dict[bytes, bytes] = {}
        for place, puts in by_place.items():
            seen = _joined([
                *[each.context for each in taken if _names(each.effect, place)],
                *[each.context for each, _ in puts],
            ])  # fmt: skip
            left = [each for each in puts if each[0].number > seen.get(each[0].replica_id, 0)]
            if left:
                found[place] = max(left, key=lambda put: _region_rank(put[0]))[1]
        return found

    @once
    def members(self) -> set[bytes]:
        """The members of the set of the key."""
        return set(self._standing("set"))

    @once
    def items(self) -> list[bytes]:
        """The items of the list of the key."""
        return [item for _, item in sorted(self._standing("list").items())]

    @once
    def small_kinds(self) -> list[str]:
        """What the key has beside a stream; the first is shown if there is no stream."""
        has = {"string": self.string is not None, "set": self.members, "list": self.items}
        return [kind for kind in has if has[kind]]

    @once
    def is_small(self) -> bool:
        """Whether the key shows a string, a set or a list."""
        return not self.has_stream and bool(self.small_kinds)

    @once
    def small(self) -> Any:
        """The string, the set or the list that the key shows without a stream."""
        return self.string if self.string is not None else self.members or self.items

    @once
    def last_id(self) -> int:
        """The greatest ID that was added or set."""
        return max(
            [fact.effect.entry_id for fact in self.added]
            + [effect.last_id for effect in self._raised],
            default=0,
        )

    @once
    def entries_added(self) -> int:
        """The count of added entries, changed by XSETID."""
        return len(self.added) + sum(effect.entries_added or 0 for effect in self._raised)

    @once
    def max_deleted_id(self) -> int:
        """The greatest ID of removed entries, of those added since the key was last deleted."""
        covered = self._covered
        ids = [
            entry_id
            for fact in self._applied(kinds.RemoveNumbers)
            for replica_id, number, entry_id in fact.effect.deleted
            if number > covered.get(replica_id, 0)
        ]
        return max(ids + [effect.max_deleted_id or 0 for effect in self._raised], default=0)

    @once
    def exists(self) -> bool:
        """Whether the key exists."""
        return self.has_stream or self.is_small

    @once
    def has_stream(self) -> bool:
        """Whether the key has a stream."""
        return bool(self.added or self._raised or self.groups)

    @once
    def tags(self) -> dict[tuple[bytes, bytes], list[Tagged]]:
        """By producer and idempotent ID, the tags that are in the context of no later one."""
        known = _joined(fact.context for fact in self._kept(kinds.ConfigureProducers))
        tags: dict[tuple[bytes, bytes], list[Tagged]] = {}
        for fact in self._kept(kinds.Remember):
            if fact.number > known.get(fact.replica_id, 0):
                tags.setdefault((fact.effect.pid, fact.effect.iid), []).append(fact)
        return {
            pair: [fact for fact in facts if not any(other.knew(fact) for other in facts)]
            for pair, facts in tags.items()
        }

    @once
    def all_tags(self) -> dict[tuple[bytes, bytes], list[Tagged]]:
        """By producer and idempotent ID, all tags, removed or not."""
        tags: defaultdict[tuple[bytes, bytes], list[Tagged]] = defaultdict(list)
        for fact in self._applied(kinds.Remember):
            tags[fact.effect.pid, fact.effect.iid].append(fact)
        return tags

    @once
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

    @once
    def lost(self) -> set[Dot]:
        """Entries that XADD added with a tag that has lost, whoever resolved the conflict."""
        tags = {
            (fact.replica_id, fact.effect.entry_id): fact
            for fact in self.beaten
            if fact.effect.yields
        }
        return {
            fact.dot
            for fact in (self._applied(kinds.Add) if tags else ())
            if (tag := tags.get((fact.replica_id, fact.effect.entry_id)))
            and tag.number == fact.number + 1
        }

    @once
    def added_again(self) -> set[Dot]:
        """Scheduled entries that two regions have added: that of their own region stays."""
        found: defaultdict[tuple[object, ...], list[tuple[bool, Dot]]] = defaultdict(list)
        for fact in self._applied(kinds.AdvanceScheduled):
            for handle, stamp_ms, replica_id, at_ms, _, number in fact.effect.rows:
                if not number:  # nothing was added
                    continue
                is_other = region_of(fact.replica_id) != region_of(replica_id)
                addition = is_other, (fact.replica_id, number)
                found[handle, stamp_ms, replica_id, at_ms].append(addition)
        return {dot for additions in found.values() for _, dot in sorted(additions)[1:]}

    def answer(self, tags: Sequence[Tagged]) -> int:
        """The ID that a retry gets: the smallest, among the entries that do not yield."""
        stays = {(each.replica_id, each.number): each.entry_id for each in self._resolved}
        given = [(fact.effect.entry_id, fact.dot) for fact in tags]
        return min(min(entry_id, stays.get(dot, entry_id)) for entry_id, dot in given)

    @once
    def _resolved(self) -> list[kinds.ResolveConflict]:
        """The answer of each tag after resolutions: the smallest one."""
        resolved = [fact.effect for fact in self._applied(kinds.ResolveConflict)]
        return sorted(resolved, key=lambda effect: -effect.entry_id)

    def delivers(self, group: bytes, entry: Added) -> bool:
        """Whether an existing group begins before an entry."""
        return any(
            not created.knew(entry)
            if created.effect.start is None
            else entry.effect.entry_id > created.effect.start
            for created in self.groups[group]
        )

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
                for which, low, high in fact.effect.ranges:
                    if which == replica_id and low < number <= high:
                        return True
        return False


def _region_rank(fact: Fact[kinds.Effect]) -> tuple[int, Dot]:
    return region_of(fact.replica_id), fact.dot


def _names(effect: kinds.TakeElements, place: bytes) -> bool:
    """Whether an effect removes what it has seen at this place."""
    if effect.kind == "set":
        return place in effect.places
    pairs = zip(effect.places[::2], effect.places[1::2], strict=True)
    return any(low <= place <= high for low, high in pairs)


def _latest(settings: Iterable[_Timed]) -> float:
    times = [fact.effect.at_ms for fact in settings]
    return max((NEVER if each is None else each for each in times), default=NEVER)


def _rank(fact: Added | Tagged) -> tuple[int, int, int, int]:
    return fact.effect.entry_id, region_of(fact.replica_id), fact.replica_id, fact.number


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
        self.facts: defaultdict[Key, list[Fact[kinds.Effect]]] = defaultdict(list)
        self.flushes: list[tuple[int | None, Fact[kinds.Delete]]] = []
        self.stands_for: defaultdict[tuple[Key, Dot], list[Dot]] = defaultdict(list)
        """By the entry that stayed after a conflict, the entries that were removed."""
        self._by_kind: defaultdict[
            Key, defaultdict[type[kinds.Effect], list[Fact[kinds.Effect]]]
        ] = defaultdict(lambda: defaultdict(list))
        self._numbers: defaultdict[Key | None, defaultdict[int, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        """By replica ID, the numbers of a key's facts, ascending; those of flushes under None."""
        self._shown: defaultdict[Key, dict[tuple[int, ...], Shown]] = defaultdict(dict)
        """Recent results, by how many facts of each replica ID were applied."""

    def add(self, key: Key, fact: Fact[kinds.Effect]) -> None:
        """Add an effect on a key."""
        self.facts[key].append(fact)
        self._by_kind[key][type(fact.effect)].append(fact)
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

    def flush(self, db: int | None, fact: Fact[kinds.Delete]) -> None:
        """Add a flush of a database, or of all: of each key it is a deletion."""
        self.flushes.append((db, fact))
        insort(self._numbers[None][fact.replica_id], fact.number)

    def read(
        self, replica_id: int, first: int, dependencies: Vector, effects: Iterable[kinds.Effect]
    ) -> None:
        """Add the effects of a batch; ``first`` is the number of the first one."""
        singles = chain.from_iterable(
            additions(each) if isinstance(each, kinds.AddRun) else [each] for each in effects
        )
        for number, effect in enumerate(singles, first):
            context = {**dependencies, replica_id: number - 1}
            if isinstance(effect, kinds.Flush):
                deletion = kinds.Delete(effect.db or 0, b"", expired=False)
                self.flush(effect.db, Fact(replica_id, number, context, deletion))
            elif isinstance(effect, COVERED):
                name = effect.name if isinstance(effect, kinds.AdvanceScheduled) else effect.key
                key = effect.db, name
                self.add(key, Fact(replica_id, number, context, effect))
                if isinstance(effect, kinds.ResolveConflict):
                    stays = (effect.stays[0], effect.stays[1])
                    self.stands_for[key, stays].append((effect.goes[0], effect.goes[1]))

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
