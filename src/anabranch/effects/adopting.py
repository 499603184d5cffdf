"""Writes the consumer groups of a stream again in a region, for RESTORE, COPY and MOVE.

Entries get new numbers of this region, and the progress of each group is expressed in these
numbers. Other regions get a group that begins at the last-delivered-id, or below the lowest entry
that nobody has processed; in it all processed entries count as acknowledged. Pending entries and
consumers concern this region alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from anabranch.effects import kinds
from anabranch.stream import by_number
from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.groups.group import NO_REPLICA_ID, Group
from anabranch.stream.groups.pending_entry import Holder, PendingEntry
from anabranch.stream.ranges import Ranges
from anabranch.stream.region_log import Span
from anabranch.stream.renumbering import Renumbering
from anabranch.stream.shared import Dot
from anabranch.stream.stream import Stream

SETTLED_RANGES_MAX: Final = 100_000
"""The most intervals in one effect, about 2 MB: a frame between regions is bounded."""

_Row = tuple[int, int, int, int, int, int]

_Place = tuple[PendingEntry, int, int, int]
"""A pending entry, and its ID, replica ID and number for the new key."""


def groups_again(
    db: int, key: bytes, source: Stream, target: Stream, renumbering: Renumbering
) -> Iterator[kinds.Effect]:
    """Effects that give all groups of ``source`` to ``target``, which has the entries."""
    for name, group in list(source.groups.items()):
        yield from _group_again(db, key, name, _AdoptedGroup(source, group, target, renumbering))


def _group_again(db: int, key: bytes, name: bytes, was: _AdoptedGroup) -> Iterator[kinds.Effect]:
    yield kinds.CreateGroup(db, key, name, was.start, None)
    replica_id = was.replica_id
    yield kinds.AdoptGroup(
        db,
        key,
        name,
        was.last_id,
        [(replica_id, was.delivered.flat())],
        [(replica_id, number) for number in was.passed_over],
        [(each.name, each.seen_ms, each.active_ms) for each in was.group.consumers.values()],
        was.pending,
        was.entries_read,
    )
    done = was.delivered.without(Ranges.of_numbers(was.unprocessed))
    ranges = [(replica_id, low, high) for low, high in done]
    for low in range(0, len(ranges), SETTLED_RANGES_MAX):
        some = ranges[low : low + SETTLED_RANGES_MAX]
        greatest = by_number.id_upto(was.log, some[-1][-1])
        yield kinds.AcknowledgeRuns(db, key, name, was.creations(name), some, greatest)


class _AdoptedGroup:
    """The progress of a group, in the new numbers of its entries."""

    def __init__(
        self, source: Stream, group: Group, target: Stream, renumbering: Renumbering
    ) -> None:
        self.group = group
        self.last_id = renumbering.behind(group.progress.last_delivered_id)
        self.entries_read = group.progress.read_count(source)
        self._source = source
        self._target = target
        self._renumbering = renumbering
        self.replica_id, self.log = next(
            (replica_id, log) for replica_id, log in target.logs.items() if log is target.local
        )
        late = self._numbers(group.progress.late(source.logs))
        self.passed_over = self._numbers(group.passed_over(source.logs))
        self.pending = self._pending()
        held = [row[2] for row in self.pending if row[1] != NO_REPLICA_ID]
        self.unprocessed = sorted({*held, *self.passed_over})
        given = Ranges(self._given(self.last_id))
        self.delivered = given.without(Ranges.of_numbers(late))
        lowest = min([*self.unprocessed, *late], default=None)
        self.start = self.last_id
        if lowest is not None:
            self.start = min(self.start, by_number.id_upto(self.log, lowest) - 1)

    def creations(self, name: bytes) -> list[Dot]:
        """The creations of the group that was made for the new key."""
        made = self._target.groups[name]
        return list(made.shared.creations)

    def _given(self, last_id: int) -> Iterator[tuple[int, int]]:
        """The numbers of the entries up to an ID."""
        top = by_number.number_upto(self.log, last_id)
        for block, low, _ in by_number.spans(self.log, 0, top):
            yield block.number(low) - 1, top
            return

    def _number(self, entry_id: int) -> int | None:
        found = self.log.find(entry_id)
        if found is None:
            return None
        block, index = found
        return block.number(index)

    def _numbers(self, spans: Iterable[tuple[int, Span]]) -> list[int]:
        id_of = self._renumbering.id_of
        numbers = (
            self._number(id_of(replica_id, block.number(at), old))
            for replica_id, (block, low, high) in spans
            for at, old in enumerate(block.ids[low:high], low)
        )
        return sorted({number for number in numbers if number is not None})

    def _pending(self) -> list[_Row]:
        """Pending entries in the order of delivery, then released ones in the order of release.

        Deleted entries are numbered by their IDs.
        """
        group = self.group
        live: dict[int, PendingEntry] = {}
        gone: list[PendingEntry] = []
        for replica_id, pending in group.pending.lists.items():
            self._divide(replica_id, list(pending.between(MIN_ID, MAX_ID)), live, gone)
        ids = sorted(live)
        numbers = by_number.numbers_of(self.log, ids)
        placed = [
            (live[entry_id], entry_id, self.replica_id, number)
            for entry_id, number in zip(ids, numbers, strict=True)
        ]
        gone.sort(key=_entry_id)
        placed += [(each, each.entry_id, NO_REPLICA_ID, at) for at, each in enumerate(gone, 1)]
        placed.sort(key=_stamp)
        if group.pending.released:
            released = {entry: at for at, entry in enumerate(group.pending.released)}
            placed.sort(key=lambda each: released.get(each[0], -1))
        owners: dict[Holder | None, int] = {None: -1}
        owners |= {each: at for at, each in enumerate(group.consumers.values())}
        rows = [
            (entry_id, source, number, owners[each.consumer], each.delivery_ms, each.delivery_count)
            for each, entry_id, source, number in placed
        ]
        if not gone:
            return rows
        first: dict[tuple[int, int], _Row] = {}  # of the entries with one ID
        for row in rows:
            first.setdefault((row[1], row[0]), row)
        return list(first.values())

    def _divide(
        self,
        replica_id: int,
        entries: list[PendingEntry],
        live: dict[int, PendingEntry],
        gone: list[PendingEntry],
    ) -> None:
        """Add pending entries of a region to the live ones, by their new IDs, or to the others."""
        log = self._source.logs.get(replica_id)
        numbers = sorted([entry.number for entry in entries if entry.number])
        live_numbers = set() if log is None else set(by_number.live_among(log, numbers))
        ids = [entry.entry_id for entry in entries if not entry.number]
        live_ids = set(self._source.live_among(ids))
        moved = self._renumbering.moved
        for entry in entries:
            number, entry_id = entry.number, entry.entry_id
            if number in live_numbers:
                if moved:
                    entry_id = self._renumbering.id_of(replica_id, number, entry_id)
                live.setdefault(entry_id, entry)
            elif not number and entry_id in live_ids:
                live.setdefault(entry_id, entry)
            else:
                gone.append(entry)


def _stamp(place: _Place) -> int:
    return place[0].stamp


def _entry_id(entry: PendingEntry) -> int:
    return entry.entry_id
