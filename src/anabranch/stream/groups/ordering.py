"""Order per key: which pending entries of a group have an equal field, and whose turn it is.

All pending entries of a group with the policy ``key-field`` stand in the line of their value, by
ID. Of a line only the first entry is handed out, and only while no consumer has one of the line.
An entry that comes to a reader while its line is not empty becomes pending without a consumer: it
*waits*. So whose turn it is follows from the pending entries and the stream. What is kept here is
made from them when it is first needed, in steps, and then follows every change.

A deleted entry that no consumer has leaves its line when this is noticed, and is acknowledged. One
that a consumer has stays until it is acknowledged or released: the consumer may be at work.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from anabranch.metrics.holdings import DICT_SLOT_BYTES
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.scanning import number_at

if TYPE_CHECKING:
    from anabranch.stream.groups.pending_list import PendingList

__all__ = ["Ordering", "value_of"]

_STEP: Final = 5000
"""Entries of which one step finds the values: some milliseconds."""

_LONG: Final = 64
"""Longer values are known by a hash: two that share one would only wait for each other."""

_LINE_BYTES: Final = DICT_SLOT_BYTES + 250
"""A line with its key, its list, and its place in the table."""

_ENTRY_LINE: Final = len(b"*2\r\n$")
_by_id = attrgetter("entry_id")


def value_of(fragment: bytes, field: bytes) -> bytes | None:
    """The first value of a field in an entry as it is on the wire, None without the field."""
    return _value_at(fragment, b"$%d\r\n%b\r\n" % (len(field), field))


def _value_at(fragment: bytes, name: bytes) -> bytes | None:
    """The same, for the name of the field as it is on the wire."""
    size, at = number_at(fragment, _ENTRY_LINE)
    pairs, at = number_at(fragment, at + size + 3)
    for _ in range(pairs // 2):
        is_found = fragment.startswith(name, at)
        size, at = number_at(fragment, at + 1)
        size, at = number_at(fragment, at + size + 3)
        if is_found:
            return fragment[at : at + size]
        at += size + 2
    return None


class _KeyLine:
    """The pending entries with one value, by ID."""

    __slots__ = ("entries", "key", "taken")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.entries: list[PendingEntry] = []
        self.taken = 0
        """How many of them consumers have."""


class Ordering:
    """The lines of a group."""

    __slots__ = (
        "_lines",
        "_name",
        "_offer",
        "_places",
        "_unsorted",
        "_withdraw",
        "gone",
        "must_look",
        "stuck",
        "suspects",
    )

    def __init__(
        self,
        field: bytes,
        offer: Callable[[PendingEntry, bool], None],
        withdraw: Callable[[PendingEntry], None],
    ) -> None:
        """``offer`` is told each entry whose turn it is, and whether it has the field.

        ``withdraw`` is told each entry that leaves, or that somebody gets.
        """
        self._name = b"$%d\r\n%b\r\n" % (len(field), field)
        self._offer = offer
        self._withdraw = withdraw
        self._lines: dict[bytes, _KeyLine] = {}
        self._places: dict[PendingEntry, _KeyLine | None] = {}  # None: has no such field
        self._unsorted: list[tuple[int, Iterator[PendingEntry]]] = []  # by replica ID
        self.gone: list[PendingEntry] = []
        """Deleted entries that no consumer had: who reads next acknowledges them."""
        self.suspects: list[PendingEntry] = []
        """Entries that have stopped their keys: who reads next looks whether they exist."""
        self.stuck = False
        """No more may wait, and the next new entry would have to."""
        self.must_look = False
        """A read has left something undone, or time may change whose turn it is."""

    # -- following the pending entries ----------------------------------------------------------

    def begin(self, lists: Mapping[int, PendingList]) -> None:
        """Know these pending entries, and nothing else."""
        self._lines.clear()
        for entry in self._places:
            self._withdraw(entry)
        self._places.clear()
        self.gone.clear()
        self.suspects.clear()
        self._unsorted = [
            (replica_id, iter(list(pending.entries.values())))
            for replica_id, pending in lists.items()
        ]

    def added(self, replica_id: int, entries: list[PendingEntry]) -> None:
        """These are pending from now on."""
        self._unsorted.append((replica_id, iter(entries)))

    def leaves(self, entry: PendingEntry) -> None:
        """It is about to change hands."""
        line = self._places.get(entry)
        self.stuck = False
        if entry.consumer is None:
            self._withdraw(entry)
        elif line is not None:
            line.taken -= 1

    def comes(self, entry: PendingEntry) -> None:
        """It has changed hands."""
        if entry not in self._places:
            return  # it is still among those to be sorted
        line = self._places[entry]
        if line is None:
            if entry.consumer is None:
                self._offer(entry, False)
        else:
            line.taken += entry.consumer is not None
            self._call(line)

    def removed(self, entry: PendingEntry) -> None:
        """It is not pending any more, or counts no more."""
        if entry not in self._places:
            return
        self.leaves(entry)
        line = self._places.pop(entry)
        if line is None:
            return
        entries = line.entries
        if entries[0] is entry:  # nearly always
            del entries[0]
        else:
            at = bisect_left(entries, entry.entry_id, key=_by_id)
            while entries[at] is not entry:
                at += 1
            del entries[at]
        self._call(line)

    def _call(self, line: _KeyLine) -> None:
        """A line has changed: offer the entry whose turn it is."""
        if not line.entries:
            del self._lines[line.key]
        elif not line.taken:
            self._offer(line.entries[0], True)

    def deleted(self, entries: Iterable[PendingEntry]) -> None:
        """These do not exist any more; those that no consumer has count no more."""
        self.stuck = False
        for entry in entries:
            if entry.consumer is None:
                self.removed(entry)
                self.gone.append(entry)

    # -- sorting --------------------------------------------------------------------------------

    def key_of(self, fragment: bytes) -> bytes | None:
        """By what an entry is known to have the same value as another one; None: it has none."""
        value = _value_at(fragment, self._name)
        if value is None or len(value) <= _LONG:
            return value
        return blake2b(value, digest_size=32).digest()

    def settle(
        self,
        lists: Mapping[int, PendingList],
        fragment_of: Callable[[PendingEntry], bytes | None],
    ) -> None:
        """Put entries into their lines, as many as one step can do.

        ``fragment_of`` reads an entry, None for a deleted one.
        """
        left = _STEP
        while self._unsorted and left > 0:
            replica_id, entries = self._unsorted[-1]
            some = list(islice(entries, left))
            if len(some) < left:
                self._unsorted.pop()
            left -= len(some)
            pending = lists[replica_id]
            for entry in some:
                if pending.get(entry.entry_id) is not entry or entry in self._places:
                    continue
                fragment = fragment_of(entry)
                if fragment is not None:
                    self._sort(entry, self.key_of(fragment))
                elif entry.consumer is None:
                    self.gone.append(entry)

    def settle_as(
        self, lists: Mapping[int, PendingList], keys: Mapping[int, list[bytes | None]]
    ) -> None:
        """Put the entries into their lines that were delivered just now, in this order.

        Nothing else is left to be sorted. ``keys`` are by replica ID.
        """
        for replica_id, entries in self._unsorted:
            pending = lists[replica_id]
            for entry, key in zip(entries, keys[replica_id], strict=True):
                if pending.get(entry.entry_id) is entry:
                    self._sort(entry, key)
        self._unsorted.clear()

    def _sort(self, entry: PendingEntry, key: bytes | None) -> None:
        if key is None:
            self._places[entry] = None
            if entry.consumer is None:
                self._offer(entry, False)
            return
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _KeyLine(key)
        self._places[entry] = line
        entries = line.entries
        if not entries or entries[-1].entry_id <= entry.entry_id:
            entries.append(entry)
        else:
            if entry.entry_id < entries[0].entry_id:
                self._withdraw(entries[0])
            insort(entries, entry, key=_by_id)
        if entry.consumer is not None:
            line.taken += 1
            if len(entries) > 1:
                self._withdraw(entries[0])
        elif not line.taken and entries[0] is entry:
            self._offer(entry, True)

    # -- whose turn it is -----------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether all pending entries are in their lines."""
        return not self._unsorted

    def may_go(self, entry: PendingEntry) -> bool:
        """Whether a pending entry need not wait for others; it may be with a consumer."""
        if entry not in self._places:
            return False  # it was deleted
        line = self._places[entry]
        if line is None or entry.consumer is not None:
            return True
        return not line.taken and line.entries[0] is entry

    def is_free(self, key: bytes) -> bool:
        """Whether nothing with a key is pending."""
        return key not in self._lines

    def admits(self, key: bytes, entry_id: int, entry: PendingEntry | None) -> bool:
        """Whether a new entry with a key need not wait.

        ``entry``: it is pending already (XGROUP SETID went back) as this one.
        """
        line = self._lines.get(key)
        if line is None:
            return True
        first = line.entries[0]
        if entry is first:
            return line.taken <= (first.consumer is not None)
        return not line.taken and entry_id < first.entry_id

    def first_of(self, value: bytes) -> PendingEntry | None:
        """The first pending entry with a value."""
        key = value if len(value) <= _LONG else blake2b(value, digest_size=32).digest()
        line = self._lines.get(key)
        return None if line is None else line.entries[0]

    def behind(self, entry: PendingEntry) -> int:
        """How many entries wait behind one that is the first of its line."""
        line = self._places.get(entry)
        return 0 if line is None else len(line.entries) - 1

    @property
    def used_bytes(self) -> int:
        """The memory of the lines, without the pending entries."""
        return len(self._places) * (DICT_SLOT_BYTES + 8) + len(self._lines) * _LINE_BYTES

    def shrink(self, count: int) -> bool:
        """Release some entries; the order cannot be used any more. False if none was left."""
        is_left = bool(self._places)
        for _ in range(min(count, len(self._places))):
            line = self._places.popitem()[1]
            if line is not None:
                self._lines.pop(line.key, None)
        return is_left

    def check(self, lists: Mapping[int, PendingList], ripe: Mapping[PendingEntry, None]) -> None:
        """Assert every invariant."""
        pending = {each for some in lists.values() for each in some.entries.values()}
        assert pending.issuperset(self._places)
        in_lines = 0
        for key, line in self._lines.items():
            assert line.key == key
            assert line.entries
            ids = [each.entry_id for each in line.entries]
            assert ids == sorted(ids)
            assert line.taken == sum(each.consumer is not None for each in line.entries)
            assert all(self._places[each] is line for each in line.entries)
            in_lines += len(ids)
        assert in_lines == sum(line is not None for line in self._places.values())
        for entry in ripe:
            assert entry.consumer is None
            assert self.may_go(entry)
