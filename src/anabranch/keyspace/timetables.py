"""The scheduled entries of one database: what is to be added to which stream, and when.

A scheduled entry belongs to the *name* of a stream, and has a *handle* there. It may be there
before the stream, and stays when the stream is deleted. Its *owner* is the region that scheduled
it: this region adds the entry when it is due. Where several regions write, all of this is merged by
comparing: of two entries with one handle the one with the greater stamp counts, and of one entry
the state that is further on, of which being gone is the last. So effects may come in any order that
their causes allow, and more than once.

If two regions add the same entry for the same time (one of them took over for the other), each
region that has heard of both keeps one of the two: see :meth:`Timetables.added`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from sys import getsizeof
from typing import Final, NamedTuple

from anabranch.compiling import mypyc_attr
from anabranch.keyspace.expiry import Deadlines
from anabranch.keyspace.replica import region_of
from anabranch.keyspace.version_vectors import covers_dot
from anabranch.metrics.holdings import DICT_BYTES, DICT_SLOT_BYTES, OBJECT_BYTES, PAIR_BYTES
from anabranch.stream.shared import Dot

GONE_MS: Final = 1 << 53
"""In place of the next time of an entry: it was added for the last time, or cancelled."""

_ENTRY_BYTES: Final = 2 * DICT_SLOT_BYTES + OBJECT_BYTES + 2 * PAIR_BYTES + 220
_KEY_BYTES: Final = 2 * DICT_SLOT_BYTES + 4 * DICT_BYTES
_LATE_BYTES: Final = DICT_SLOT_BYTES + PAIR_BYTES + 8 + OBJECT_BYTES
_LATE_KEY_BYTES: Final = DICT_SLOT_BYTES + 2 * DICT_BYTES
_ADDITION_BYTES: Final = 2 * DICT_SLOT_BYTES + 250

_FORGOTTEN: Final = 2000
"""What is forgotten at once: a millisecond."""

_FREED: Final = 500
"""Entries that are freed in one step."""


class Recurrence(NamedTuple):
    """When an entry is added again and again."""

    cron: bytes
    """The five fields."""
    zone: bytes
    """The name of a time zone."""
    missed: int
    """What is done about times at which nobody was there, by the index in :data:`MISSED`."""


_NEVER: Final[Dot] = (0, 0)

MISSED: Final = (b"once", b"skip", b"all")


@mypyc_attr(acyclic=True)
class ScheduledEntry:
    """What is added, and when next. It never changes: a snapshot may keep it."""

    def __init__(
        self,
        identity: tuple[int, int],
        at_ms: int,
        fields: bytes,
        recurrence: Recurrence | None = None,
        tag: tuple[bytes, bytes] | None = None,
        ended: Dot = _NEVER,
    ) -> None:
        """``identity`` are a stamp and the replica ID that gave it."""
        self.stamp_ms, self.replica_id = identity
        self.at_ms = at_ms
        """The next time, or :data:`GONE_MS`."""
        self.fields = fields
        """The names and values on the wire, as an array."""
        self.recurrence = recurrence
        self.tag = tag
        """Producer and idempotent ID of the entry."""
        self.ended = ended
        """The effect that ended it, of one that is gone."""

    def moved_to(self, at_ms: int) -> ScheduledEntry:
        """The same for its next time."""
        return ScheduledEntry(self.identity, at_ms, self.fields, self.recurrence, self.tag)

    @property
    def identity(self) -> tuple[int, int]:
        """What tells it from others with its handle: the greater one counts."""
        return self.stamp_ms, self.replica_id

    @property
    def owner(self) -> int:
        """The region that adds the entry."""
        return region_of(self.replica_id)


class Addition(NamedTuple):
    """An entry that was added because it was due: by which effect, and whether by its owner."""

    is_taken_over: bool
    replica_id: int
    number: int

    @property
    def dot(self) -> Dot:
        """The effect that added it."""
        return self.replica_id, self.number


ScheduleFields = tuple[
    bytes, bytes, int, int, int, bytes, tuple[bytes, bytes, int] | None,
    tuple[bytes, bytes] | None, tuple[int, int],
]  # fmt: skip
"""Key, handle, stamp, replica ID, time, fields, recurrence, tag, ended: as they are written."""

_Place = tuple[bytes, bytes]
"""A key and a handle."""

Occurrence = tuple[bytes, bytes, int, int, int]
"""Key, handle, identity, and the time for which the entry was added."""


class Timetables:
    """All scheduled entries of a database. Changed through ``effects`` only."""

    def __init__(self) -> None:
        self.entries: dict[_Place, ScheduledEntry] = {}
        """By key and handle; also those that are gone, as long as some member may lack that."""
        self.handles: dict[bytes, dict[int, Deadlines[bytes]]] = {}
        """By key and owner: when to look at which handle."""
        self.put_off: dict[bytes, Deadlines[bytes]] = {}
        """By key: when what could not be added was due; it is looked at later."""
        self.due: dict[int, Deadlines[bytes]] = {}
        """By owner: when to look at which key."""
        self.additions: OrderedDict[Occurrence, Addition] = OrderedDict()
        """What was added, as long as some member may lack it."""
        self.tombstones: OrderedDict[_Place, None] = OrderedDict()
        """Keys and handles of entries that are gone and remembered."""
        self.live = 0
        self._late = 0  # entries in all of put_off
        self._bytes = 0
        self._handles = (0, 0)  # a time, and how many handles were made in it

    def new_handle(self, key: bytes, now_ms: int, region: int) -> bytes:
        """A handle that no entry of the key has; later ones of a time are greater."""
        while True:
            last_ms, count = self._handles
            count = count + 1 if last_ms == now_ms else 0
            self._handles = now_ms, count
            handle = b"%d-%d-%06d" % (now_ms, region, count)
            if (key, handle) not in self.entries:
                return handle

    def find(self, key: bytes, handle: bytes) -> ScheduledEntry | None:
        """The entry of a handle; None if it is gone, or there never was one."""
        known = self.entries.get((key, handle))
        return None if known is None or known.at_ms == GONE_MS else known

    def earliest(self, key: bytes, count: int) -> list[tuple[int, bytes]]:
        """When so many entries of a key are due, and their handles, the earliest first."""
        places = [*self.handles.get(key, {}).values(), self.put_off.get(key, Deadlines())]
        handles = {handle for each in places for _, handle in each.earliest(count)}
        return sorted([(self.entries[key, each].at_ms, each) for each in handles])[:count]

    def count(self, key: bytes) -> int:
        """How many entries of a key there are."""
        return sum(map(len, self.handles.get(key, {}).values()))

    # -- changing -----------------------------------------------------------------------------

    def set(self, key: bytes, handle: bytes, entry: ScheduledEntry) -> None:
        """A new entry; nothing if one with a greater stamp is known, or this one further on."""
        place = key, handle
        known = self.entries.get(place)
        if known is not None:
            if (known.identity, known.at_ms) >= (entry.identity, entry.at_ms):
                return
            self._drop(place, known)
        self.entries[place] = entry
        self._bytes += getsizeof(handle) + getsizeof(entry.fields)
        if entry.at_ms == GONE_MS:
            self.tombstones[place] = None
        else:
            self.live += 1
            self.look(key, handle, entry.at_ms)

    def advance(
        self,
        key: bytes,
        handle: bytes,
        identity: tuple[int, int],
        next_ms: int,
        *,
        ended: Dot | None,
    ) -> None:
        """An entry is due next at a time, or gone; ``ended`` is what is remembered of that.

        Nothing if it is another entry, or further on.
        """
        known = self.entries.get((key, handle))
        if known is None or known.identity != identity or known.at_ms >= next_ms:
            return
        if next_ms != GONE_MS:
            self.entries[key, handle] = known.moved_to(next_ms)
            self.look(key, handle, next_ms)
            return
        self._drop((key, handle), known)
        if ended is not None:
            self.set(key, handle, ScheduledEntry(identity, GONE_MS, b"", None, None, ended))

    def _drop(self, place: _Place, entry: ScheduledEntry) -> None:
        key, handle = place
        del self.entries[place]
        self._bytes -= getsizeof(handle) + getsizeof(entry.fields)
        if entry.at_ms == GONE_MS:
            self.tombstones.pop(place, None)
        else:
            self.live -= 1
            self._hasten(key, handle)
            self.handles[key][entry.owner].pop(handle)
            self._renew(key, entry.owner)

    def look(self, key: bytes, handle: bytes, at_ms: int) -> None:
        """Look at an entry at a time, or no more before: it may be later than it is due."""
        entry = self.entries[key, handle]
        if at_ms > entry.at_ms:
            late = self.put_off.setdefault(key, Deadlines())
            self._late += handle not in late
            late[handle] = entry.at_ms
        else:
            self._hasten(key, handle)
        self.handles.setdefault(key, {}).setdefault(entry.owner, Deadlines())[handle] = at_ms
        self._renew(key, entry.owner)

    def _hasten(self, key: bytes, handle: bytes) -> None:
        """An entry is not put off, or no more."""
        late = self.put_off.get(key)
        if late is not None:
            self._late -= late.pop(handle, None) is not None
            if not late:
                del self.put_off[key]

    def _renew(self, key: bytes, owner: int) -> None:
        """The key is looked at when the first of its entries is due."""
        owners = self.handles[key]
        first = owners[owner].first_ms()
        deadlines = self.due.setdefault(owner, Deadlines())
        if first is None:
            deadlines.pop(key, None)
            del owners[owner]
            if not owners:
                del self.handles[key]
        elif deadlines.get(key) != first:
            deadlines[key] = first

    def added(
        self, key: bytes, handle: bytes, identity: tuple[int, int], at_ms: int, addition: Addition
    ) -> Addition | None:
        """An entry was added for a time: note it while some member may lack it.

        If another one was added for the same time, this returns which of both goes: the same in
        every region.
        """
        occurrence = (key, handle, *identity, at_ms)
        known = self.additions.get(occurrence)
        if known is None or known.dot == addition.dot:
            self.additions[occurrence] = addition
            return None
        self.additions[occurrence] = min(known, addition)
        return max(known, addition)

    def freed(self) -> Iterator[bool]:
        """Free all of it in steps (:meth:`anabranch.keyspace.deferred_free.DeferredFree.defer`)."""
        while self.entries:
            for _ in range(min(_FREED, len(self.entries))):
                self.entries.popitem()
            yield True
        while self.handles:
            for deadlines in self.handles.popitem()[1].values():
                yield from deadlines.freed()
        for deadlines in (*self.due.values(), *self.put_off.values()):
            yield from deadlines.freed()

    # -- other regions ------------------------------------------------------------------------

    def prune(self, watermark: Mapping[int, int]) -> None:
        """Forget some of what every member has: which entries are gone, and what was added."""
        for _ in range(min(len(self.tombstones), _FORGOTTEN)):
            place = next(iter(self.tombstones))
            gone = self.entries[place]
            if not covers_dot(watermark, gone.ended):
                self.tombstones.move_to_end(place)
                break  # those behind it are younger, as a rule
            self._drop(place, gone)
        for _ in range(min(len(self.additions), _FORGOTTEN)):
            occurrence, addition = next(iter(self.additions.items()))
            if not covers_dot(watermark, addition.dot):
                self.additions.move_to_end(occurrence)
                break
            del self.additions[occurrence]

    def join(self, other: Timetables) -> list[tuple[bytes, Addition]]:
        """Take over what is further on in another region; returns keys, and what goes there."""
        for place, entry in other.entries.items():
            self.set(*place, entry)
        found = []
        for (key, handle, stamp_ms, replica_id, at_ms), addition in other.additions.items():
            goes = self.added(key, handle, (stamp_ms, replica_id), at_ms, addition)
            if goes is not None:
                found.append((key, goes))
        return found

    # -- the rest -----------------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        """The memory of the entries, and of when to look at them; an estimate."""
        size = self._bytes + len(self.entries) * _ENTRY_BYTES
        size += len(self.put_off) * _LATE_KEY_BYTES + self._late * _LATE_BYTES
        return size + len(self.handles) * _KEY_BYTES + len(self.additions) * _ADDITION_BYTES

    def restore(self, rows: list[ScheduleFields]) -> None:
        """Add entries as :func:`written` writes them."""
        for key, handle, stamp_ms, replica_id, at_ms, fields, recurrence, tag, ended in rows:
            again = None if recurrence is None else Recurrence(*recurrence)
            entry = ScheduledEntry((stamp_ms, replica_id), at_ms, fields, again, tag, ended)
            self.set(key, handle, entry)

    def check(self) -> None:
        """Assert every invariant."""
        due: dict[bytes, dict[int, set[bytes]]] = {}
        late = sum(map(len, self.put_off.values()))
        assert self._late == late
        for (key, handle), entry in self.entries.items():
            if entry.at_ms == GONE_MS:
                assert (key, handle) in self.tombstones
            else:
                due.setdefault(key, {}).setdefault(entry.owner, set()).add(handle)
                look_ms = self.handles[key][entry.owner][handle]
                assert look_ms >= entry.at_ms
                if look_ms > entry.at_ms:
                    assert self.put_off[key][handle] == entry.at_ms
                    late -= 1
        found = {
            key: {owner: set(each) for owner, each in owners.items()}
            for key, owners in self.handles.items()
        }
        assert found == due
        assert not late
        assert all(self.put_off.values())
        assert self.live == len(self.entries) - len(self.tombstones)
        assert self.live == sum(map(self.count, self.handles))
        for key, owners in self.handles.items():
            for owner, deadlines in owners.items():
                deadlines.check()
                assert self.due[owner][key] == deadlines.first_ms()
        assert sum(map(len, self.due.values())) == sum(map(len, self.handles.values()))


def written(entries: Iterable[tuple[_Place, ScheduledEntry]]) -> list[ScheduleFields]:
    """Entries as plain values, for a snapshot."""
    return [
        (*place, *each.identity, each.at_ms, each.fields, each.recurrence, each.tag, each.ended)
        for place, each in entries
    ]
