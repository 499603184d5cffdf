"""Decodes and checks a unit of another region as a whole, before its first effect is applied.

Applying has no errors, and a half-applied unit could not be undone. So this module checks every
effect of the unit: kinds that regions do not send, numbers out of range, dots of entries that do
not exist yet, bytes that are no entries, and additions that do not continue the log of their
replica ID.
"""

from __future__ import annotations

from operator import lt
from typing import Any, Final

import msgspec

from anabranch.effects import kinds
from anabranch.effects.apply import EFFECTS
from anabranch.effects.codec import (
    SENT_IDS_MAX,
    EffectFormatError,
    effect_of,
    id_fields,
)
from anabranch.effects.recorded import numbers_of, total_numbers
from anabranch.keyspace.database import Database
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import REGION_MAX
from anabranch.keyspace.timetables import GONE_MS, MISSED
from anabranch.oplog.batch import Batch
from anabranch.stream.elements import KINDS, LIST, are_places
from anabranch.stream.entry_id import make
from anabranch.stream.fields import NUMBER_MAX, STAMP_MAX
from anabranch.stream.producer import DURATION_MAX_S, MAXSIZE_MAX
from anabranch.stream.register import amount_of
from anabranch.stream.rows import RowError, check_fragments
from anabranch.stream.stream import Stream

TEXT_MAX: Final = 256
"""The greatest length of a name or an address of a region, as in messages between regions."""

EPOCH_MAX: Final = (1 << 32) - 1

_FEW_BITS: Final = 1 << 60
"""Machine code compares numbers with this one in a register, but not with ``NUMBER_MAX``."""

_STRING_EVENTS: Final = frozenset(["", *"append incrby incrbyfloat setrange".split()])
"""The keyspace events of strings that were written or increased; "" for ``set``."""

_ELEMENT_EVENTS: Final = frozenset(
    ["", *"sadd srem spop lpush rpush lpop rpop linsert lset lrem ltrim".split()]
)

_RANGES: Final = {
    "asks": (1, REGION_MAX),
    "duration_s": (1, DURATION_MAX_S),
    "epoch": (0, EPOCH_MAX),
    "home": (1, REGION_MAX),
    "maxsize": (1, MAXSIZE_MAX),
    "offset": (-NUMBER_MAX, NUMBER_MAX),
    "port": (0, 0xFFFF),
    "region": (1, REGION_MAX),
    "stamp_ms": (0, STAMP_MAX),
}
"""The least and the greatest number of a field, where that is not 0 or not ``NUMBER_MAX``."""

_NUMBERS: Final = {
    kind: [
        (index, *_RANGES.get(name, (0, NUMBER_MAX)))
        for index, name in enumerate(kind.__struct_fields__)
        if index not in id_fields(kind)
    ]
    for kind, row in EFFECTS.items()
    if row.regional and not kind.local
}
"""Kinds that regions send, and for each its fields, with the range of one that is a number."""


class _KeyEnd:
    """The end of the log of the unit's replica ID in one key."""

    def __init__(self, position: int = 0, base: int = 0, newest_id: int = -1) -> None:
        self.position = position
        self.base = base
        self.newest_id = newest_id


class SentUnit:
    """Checks the batches of a unit, in their order."""

    def __init__(self, keyspace: Keyspace) -> None:
        """``keyspace`` is that to which they will be applied; all earlier batches are applied."""
        self._keyspace = keyspace
        self._ends: dict[tuple[int, bytes], _KeyEnd] = {}
        self._replica_id = 0
        self._number = 0  # the number of the effect that is checked
        self._context: dict[int, int] = {}

    def effects(self, batch: Batch) -> list[kinds.Effect]:
        """The effects of the next batch; :class:`EffectFormatError` if no region sends such."""
        self._replica_id = batch.replica_id
        self._context = batch.dependencies
        self._number = batch.first
        effects = []
        for fields in batch.effects:
            effect = effect_of(fields, SENT_IDS_MAX)
            try:
                self._check(effect)
            except (_Malformed, RowError) as problem:
                raise EffectFormatError(f"{type(effect).__name__}: {problem}") from None
            effects.append(effect)
            self._number += numbers_of(effect)
        if total_numbers(effects) != batch.numbered:
            raise EffectFormatError(
                f"effects with {total_numbers(effects)} numbers where {batch.numbered} were "
                "announced"
            )
        return effects

    def _check(self, effect: kinds.Effect) -> None:
        kind = type(effect)
        numbers = _NUMBERS.get(kind)
        if numbers is None:
            raise _Malformed("regions do not send this kind")
        fields = msgspec.structs.astuple(effect)
        for index, least, greatest in numbers:
            value = fields[index]
            if type(value) is not int:
                _check_numbers(value)
            elif not least <= value <= greatest:
                raise _Malformed(f"{value} is out of range")
        db = getattr(effect, "db", None)
        if db is not None and db >= len(self._keyspace.databases):
            raise _Malformed(
                f"database {db} where there are {len(self._keyspace.databases)}: set databases "
                "alike in all regions"
            )
        self._check_more(effect)

    def _check_more(self, effect: kinds.Effect) -> None:
        """Check what only this kind of effect has."""
        match effect:
            case kinds.Add():
                self._add(effect)
            case kinds.AddRun():
                self._add_run(effect)
            case kinds.RemoveNumbers():
                self._remove_numbers(effect)
            case kinds.AcknowledgeRuns():
                for ends in effect.ranges:
                    self._check_range(*ends)
            case kinds.HandOver():
                self._hand_over(effect)
            case kinds.Remember():
                if effect.at_ms > STAMP_MAX:
                    raise _Malformed(f"time {effect.at_ms}")
            case kinds.Delete():
                self._delete(effect)
            case kinds.WriteString():
                self._check_cuts(effect.cuts)
                _check_event(effect.event)
            case kinds.Increase():
                self._check_cuts([(self._replica_id, effect.since, effect.total)])
                _check_event(effect.event)
            case kinds.PutElements() | kinds.TakeElements():
                _check_elements(effect)
            case kinds.ResolveConflict():
                for replica_id, number in (effect.goes, effect.stays, effect.winner):
                    self._check_range(replica_id, 0, number)
            case kinds.ScheduleEntry():
                self._schedule_entry(effect)
            case kinds.AdvanceScheduled():
                self._advance_scheduled(effect)
            case kinds.AddRegion():
                if max(len(effect.name), len(effect.host)) > TEXT_MAX:
                    raise _Malformed("a name or an address that is too long")

    def _knows(self, replica_id: int, number: int) -> bool:
        """Whether another effect is in the context of this one."""
        if replica_id == self._replica_id:
            return number < self._number
        return number <= self._context.get(replica_id, 0)

    # -- entries ------------------------------------------------------------------------------

    def _add(self, effect: kinds.Add) -> None:
        check_fragments([effect.entry_id], [len(effect.fragment)], effect.fragment)
        self._goes_on(effect.db, effect.key, effect.position, [effect.entry_id])

    def _add_run(self, effect: kinds.AddRun) -> None:
        ids, sizes, opens = effect.ids, effect.sizes, effect.opens
        count = len(ids)
        if not count or len(sizes) != count or len(effect.weights) != count:
            raise _Malformed("columns of entries differ in length")
        if not _ascend(ids) or not _ascend(opens) or (opens and opens[-1] >= count):
            raise _Malformed("entries are not in order")
        if sum(sizes) != len(effect.data) or min(sizes) < 1:
            raise _Malformed("entries are not as long as their data")
        check_fragments(ids, sizes, effect.data)
        self._goes_on(effect.db, effect.key, effect.position, ids)

    def _goes_on(self, db: int, key: bytes, position: int, ids: Any) -> None:
        """Check that additions continue the log.

        They may leave out positions only while entries-added of the log is 0; see
        :meth:`RegionLog.open_at`.
        """
        end = self._end(db, key)
        ahead = position - end.position
        if position > STAMP_MAX or ahead < 0 or (ahead and end.base != end.position):
            raise _Malformed(f"position {position} where {end.position} is next")
        if ids[0] <= end.newest_id:
            raise _Malformed("an ID is not above those before")
        if ahead:
            end.base = position
        end.position = position + len(ids)
        end.newest_id = ids[-1]

    def _end(self, db: int, key: bytes) -> _KeyEnd:
        end = self._ends.get((db, key))
        if end is None:
            end = self._ends[db, key] = self._known_end(self._keyspace.databases[db], key)
        return end

    def _known_end(self, database: Database, key: bytes) -> _KeyEnd:
        """The end that is known before the unit; a new stream goes on where a former one ended."""
        value = database.values.get(key) or database.remembered.get(key)
        if type(value) is Stream:
            log = value.logs.get(self._replica_id)
            if log is None:
                return _KeyEnd()
            newest = -1 if log.tail is None else log.tail.ids[-1]
            return _KeyEnd(log.next_position, log.base, newest)
        for end in database.last_positions.of(key):
            if end.replica_id == self._replica_id:
                return _KeyEnd(end.position, end.position)
        return _KeyEnd()

    def _delete(self, effect: kinds.Delete) -> None:
        """The key was deleted: its entries are gone; positions begin where the effect says."""
        self._check_cuts(effect.cuts)
        positions = dict(effect.positions)
        if positions and max(positions.values()) > STAMP_MAX:
            raise _Malformed(f"position {max(positions.values())}")
        position = positions.get(self._replica_id, 0)
        end = self._end(effect.db, effect.key)
        end.position = max(end.position, position)
        end.base = max(end.base, position)
        end.newest_id = -1

    def _check_cuts(self, cuts: list[tuple[int, int, bytes]]) -> None:
        for replica_id, number, total in cuts:
            self._check_range(replica_id, 0, number)
            if amount_of(total) is None:
                raise _Malformed("a total that is no number")

    def _remove_numbers(self, effect: kinds.RemoveNumbers) -> None:
        for replica_id, edges in effect.ranges:
            if len(edges) % 2:
                raise _Malformed("edges make no ranges")
            for low, high in zip(edges[::2], edges[1::2], strict=True):
                self._check_range(replica_id, low, high)
        for replica_id, number, _ in effect.deleted:
            _check_numbers((replica_id, number))
            self._check_range(replica_id, 0, number)

    def _check_range(self, replica_id: int, low: int, high: int) -> None:
        if low > high or (high and not self._knows(replica_id, high)):
            raise _Malformed(
                f"numbers {low} to {high} of replica ID {replica_id}, which it cannot know"
            )

    def _hand_over(self, effect: kinds.HandOver) -> None:
        for replica_id, number in (*effect.twice, *effect.reopened):
            self._check_range(replica_id, 0, number)
        for _, *numbers in effect.rows:
            _check_numbers(numbers)
            self._check_range(numbers[0], 0, numbers[1])
            if numbers[2] > len(effect.consumers):
                raise _Malformed(f"consumer {numbers[2]} of {len(effect.consumers)}")

    # -- the rest -----------------------------------------------------------------------------

    def _schedule_entry(self, effect: kinds.ScheduleEntry) -> None:
        if effect.at_ms >= GONE_MS:
            raise _Malformed(f"time {effect.at_ms}")
        if effect.recurrence is not None and effect.recurrence[2] >= len(MISSED):
            raise _Malformed(f"missed times are treated by rule {effect.recurrence[2]}")
        check_fields(effect.fields)

    def _advance_scheduled(self, effect: kinds.AdvanceScheduled) -> None:
        for _, stamp_ms, _, at_ms, next_ms, number in effect.rows:
            if stamp_ms > STAMP_MAX or max(at_ms, next_ms) > GONE_MS:
                raise _Malformed(f"stamp {stamp_ms}, time {at_ms}, next time {next_ms}")
            self._check_range(self._replica_id, 0, number)


def check_fields(fields: bytes) -> None:
    """Whether these are the fields of an entry on the wire; :class:`RowError` if not."""
    fragment = b"*2\r\n$3\r\n1-0\r\n" + fields
    check_fragments([make(1, 0)], [len(fragment)], fragment)


class _Malformed(Exception):
    """The effect is one that no region sends."""


def _check_event(event: str) -> None:
    if event not in _STRING_EVENTS:
        raise _Malformed(f"the keyspace event {event[:40]!r}")


def _check_elements(effect: kinds.PutElements | kinds.TakeElements) -> None:
    places = effect.places
    if effect.kind not in KINDS or effect.event not in _ELEMENT_EVENTS or not places:
        raise _Malformed(f"elements of kind {effect.kind[:40]!r}, event {effect.event[:40]!r}")
    if effect.kind == LIST and not are_places(places):
        raise _Malformed("a place of an item that is none")
    if isinstance(effect, kinds.PutElements):
        if len(effect.items) != (len(places) if effect.kind == LIST else 0):
            raise _Malformed("places and items differ in number")
        if len(set(places)) < len(places):
            raise _Malformed("one place twice")
    elif effect.kind == LIST and len(places) % 2:
        raise _Malformed("places make no ranges")


def _check_numbers(value: Any) -> None:
    """Refuse integers, also in nested arrays, that are below 0 or above the limit."""
    if type(value) is int:
        if not 0 <= value < _FEW_BITS and not 0 <= value <= NUMBER_MAX:
            raise _Malformed(f"{value} is out of range")
    elif isinstance(value, list | tuple):
        for each in value:
            _check_numbers(each)


def _ascend(numbers: Any) -> bool:
    """Whether each is greater than the one before."""
    return all(map(lt, numbers, numbers[1:]))
